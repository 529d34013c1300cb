"""A cluster that speaks only SASL_SSL inside: it forms, replicates, and goes on without its controller."""

from pathlib import Path

import pytest

from rookery.testing import EmbeddedCluster
from tests.node.test_bearer_tokens import MODULE, UNSECURED, Provider
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


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "unsecured"])
def test_nodes_log_in_with_bearer_tokens(tmp_path: Path, is_signed: bool) -> None:
    """At the listeners of brokers and of controllers: a token from a file, or one without a signature."""
    provider = Provider(tmp_path)
    prefix = "sasl.oauthbearer"
    clients = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    if is_signed:
        provider.token_file.write_text(provider.token(sub="node", exp=4_000_000_000))
        own = {
            "sasl.jaas.config": f"{MODULE};",
            f"{prefix}.token.endpoint.url": provider.token_file.as_uri(),
        }
        nodes = {**own, f"{prefix}.jwks.endpoint.url": provider.keys_file.as_uri()}
    else:
        own = {"sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="node";'}
        nodes = {**own, "sasl.server.callback.handler.class": UNSECURED}
    settings = {
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        **nodes,
    }
    with EmbeddedCluster(
        3, settings=settings, security_protocol="SASL_PLAINTEXT", client_settings={**clients, **own}
    ) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.produce("t", "x")
        assert cluster.in_sync_replicas("t", at_least=3)
