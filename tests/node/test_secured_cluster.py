"""A cluster that speaks only SASL_SSL inside: it forms, replicates, and goes on without its controller."""

from pathlib import Path

import pytest

from rookery.testing import EmbeddedCluster
from tests.support.certificates import make_certificates
from tests.support.secured import PLAIN, SCRAM_512, SECRET, USER, client_settings, jaas, tls_settings

INSIDE = {"username": "node", "password": "inside"}


def settings(directory: Path, controllers: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the nodes, and of clients."""
    certificates = make_certificates(directory)
    users = {**INSIDE, "user_node": "inside"}
    nodes = {
        **tls_settings(certificates),
        "listener.security.protocol.map": f"SASL_SSL:SASL_SSL,CONTROLLER:{controllers}",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": PLAIN,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.mechanism.controller.protocol": PLAIN,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(PLAIN, **users, **{f"user_{USER}": SECRET}),
        "listener.name.controller.plain.sasl.jaas.config": jaas(PLAIN, **users),
        "listener.name.controller.ssl.client.auth": "required",
    }
    return nodes, client_settings("SASL_SSL", certificates)


@pytest.mark.parametrize("controllers", ["SASL_SSL", "SSL"])
def test_a_cluster_that_is_secured_inside(tmp_path: Path, controllers: str) -> None:
    nodes, clients = settings(tmp_path, controllers)
    with EmbeddedCluster(3, settings=nodes, security_protocol="SASL_SSL", client_settings=clients) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.produce("t", "before")
        cluster.in_sync_replicas("t", at_least=3)
        active = cluster.controller()
        cluster.kill(active)
        assert cluster.controller(other_than=active) != active
        cluster.leader_of("t", other_than=active)
        # Forwarded to the new controller, and with a transaction's markers on other brokers.
        cluster.create_topic("u", partitions=3, replicas=2)
        cluster.produce("t", "after")
        cluster.start(active)
        cluster.in_sync_replicas("t", at_least=3)
        assert [record.value for record in cluster.records("t", count=2)] == [b"before", b"after"]


def test_brokers_log_in_with_scram(tmp_path: Path) -> None:
    """The users exist before the first broker starts; controllers know each other by certificates."""
    certificates = make_certificates(tmp_path)
    nodes = {
        **tls_settings(certificates),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SASL_SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": SCRAM_512,
        "sasl.mechanism.inter.broker.protocol": SCRAM_512,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas(SCRAM_512, **INSIDE),
    }
    clients = client_settings("SASL_SSL", certificates, SCRAM_512)
    users = {USER: SECRET, INSIDE["username"]: INSIDE["password"]}
    with EmbeddedCluster(
        3, settings=nodes, security_protocol="SASL_SSL", client_settings=clients, users=users
    ) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.produce("t", "x")
        assert cluster.in_sync_replicas("t", at_least=3)
