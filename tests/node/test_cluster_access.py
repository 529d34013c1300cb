"""A cluster with an authorizer: nodes are super users, and every node decides about clients by the same ACLs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rookery.base.config_access import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.records.batch import iterate_headers
from rookery.records.record import decode_records
from rookery.testing import EmbeddedCluster
from tests.support import access_requests as make
from tests.support.access_cases import ADMIN, USER, outcome, parse_acls
from tests.support.secured import PLAIN, jaas
from tests.support.waiting import eventually
from tests.support.wire import WireClient

LISTENER = "SASL_PLAINTEXT"
NODE, PASSWORD = "node", "secret"
OWN = {"username": NODE, "password": PASSWORD}
USERS = {f"user_{user}": PASSWORD for user in (ADMIN, USER, NODE)}
SETTINGS = {
    "listener.security.protocol.map": f"{LISTENER}:{LISTENER},CONTROLLER:{LISTENER}",
    "inter.broker.listener.name": LISTENER,
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.inter.broker.protocol": PLAIN,
    "sasl.mechanism.controller.protocol": PLAIN,
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(PLAIN, **OWN, **USERS),
    "listener.name.controller.plain.sasl.jaas.config": jaas(PLAIN, **OWN, **USERS),
    AUTHORIZER: STANDARD_AUTHORIZER,
    SUPER_USERS: f"User:{ADMIN};User:{NODE}",
    "rookery.audit.sink": "topic",
}
CLIENT = {
    "security.protocol": LISTENER,
    "sasl.mechanism": PLAIN,
    "sasl.jaas.config": jaas(PLAIN, username=ADMIN, password=PASSWORD),
}


def log_in(address: str, user: str) -> WireClient:
    client = WireClient(address)
    client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    token = f"\0{user}\0{PASSWORD}".encode()
    assert client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == ErrorCode.NONE
    return client


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, settings=SETTINGS, security_protocol=LISTENER, client_settings=CLIENT) as running:
        running.create_topic("mine", partitions=1, replicas=3)
        running.produce("mine", "x")
        yield running


def test_every_broker_decides_by_the_same_acls(cluster: EmbeddedCluster) -> None:
    """Also about requests that it forwards: the active controller decides for the client."""
    addresses = cluster.bootstrap_servers.split(",")
    assert len(addresses) == 3
    with log_in(addresses[0], ADMIN) as admin:
        for acls, expected in (("", "new1 NO_TOPIC"), ("CREATE topic new1, ALL topic new1", "new1 ok, new1/configs")):
            admin.call(ApiKey.DELETE_ACLS, 3, **make.deleted_acls())
            if acls:
                admin.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(*parse_acls(acls)))
            for address in addresses:
                with log_in(address, USER) as user:

                    def is_decided(user: WireClient = user, expected: str = expected) -> bool:
                        response = user.call(ApiKey.CREATE_TOPICS, 5, **make.new_topics("new1"))
                        return outcome(response, {}) == expected

                    eventually(is_decided, f"{expected} on {address}")


def test_lines_of_all_nodes_are_in_the_topic(cluster: EmbeddedCluster) -> None:
    """Also of those that do not lead its only partition."""
    addresses = cluster.bootstrap_servers.split(",")
    for address in addresses:
        with log_in(address, USER) as user:
            user.call(ApiKey.METADATA, 12, **make.metadata("mine"))
    eventually(lambda: len(sources(cluster)) == 3, "lines of all nodes")


def sources(cluster: EmbeddedCluster) -> set[str]:
    found: set[str] = set()
    for address in cluster.bootstrap_servers.split(","):
        with log_in(address, ADMIN) as admin:
            wanted = make.fetch([make.fetched(topic="__audit_log")], max_bytes=10_000_000)
            wanted["topics"][0].partitions[0].partition_max_bytes = 10_000_000
            data = admin.call(ApiKey.FETCH, 4, **wanted).responses[0].partitions[0].records or b""
            found |= {line["source"] for line in lines(data) if line["type"] == "rookery.audit/authorization"}
    return found


def lines(data: bytes) -> Iterator[dict[str, Any]]:
    for start, header in iterate_headers(data):
        for record in decode_records(data[start : start + 12 + header.batch_length]):
            yield json.loads(record.value or b"")
