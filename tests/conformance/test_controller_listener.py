"""The two listeners of an Apache Kafka node as oracles: the APIs that each serves, and how it treats envelopes."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from bench.systems import ApacheKafka
from rookery.base.errors import ErrorCode
from rookery.metadata.requests import OK, CreatedTopic
from rookery.protocol.api import SERVED, SERVED_BY_CONTROLLERS, ApiKey, VersionRange
from rookery.protocol.codec import decode_response
from rookery.protocol.framing import parse_response_header
from rookery.protocol.message import Message
from rookery.protocol.principal import ANONYMOUS, encode_principal
from tests.broker.cluster import ControllerNode
from tests.broker.harness import request_frame
from tests.conformance.brokers import JARS
from tests.support.wire import WireClient

pytestmark = pytest.mark.java

# Security, quotas and the groups of other kinds (docs/unsupported.md).
NOT_SERVED = {
    "SASL_HANDSHAKE",
    "DESCRIBE_ACLS",
    "CREATE_ACLS",
    "DELETE_ACLS",
    "ALTER_REPLICA_LOG_DIRS",
    "SASL_AUTHENTICATE",
    "CREATE_DELEGATION_TOKEN",
    "RENEW_DELEGATION_TOKEN",
    "EXPIRE_DELEGATION_TOKEN",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_CLIENT_QUOTAS",
    "ALTER_CLIENT_QUOTAS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "PUSH_TELEMETRY",
}
OTHER_GROUPS = ("SHARE", "STREAMS")
TOPIC = Message(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
CREATE = {"topics": [TOPIC], "timeout_ms": 30_000, "validate_only": True}
REQUEST = bytes(request_frame(ApiKey.CREATE_TOPICS, 7, **CREATE))
PRINCIPAL = encode_principal(ANONYMOUS)


class Kafka(NamedTuple):
    broker: str
    controller: str


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    directory = tmp_path_factory.mktemp("kafka")
    process = ApacheKafka(JARS).start(directory)
    try:
        controller_port = json.loads((directory / "ports").read_text())["CONTROLLER"]
        yield Kafka(process.bootstrap, f"127.0.0.1:{controller_port}")
    finally:
        process.stop()


@pytest.mark.parametrize(("listener", "served"), [("broker", SERVED), ("controller", SERVED_BY_CONTROLLERS)])
def test_each_listener_serves_kafkas_apis(kafka: Kafka, listener: str, served: Mapping[ApiKey, VersionRange]) -> None:
    with WireClient(getattr(kafka, listener)) as client:
        response = client.call(ApiKey.API_VERSIONS, 4, client_software_name="a", client_software_version="1")
    theirs = {ApiKey(row.api_key): (row.min_version, row.max_version) for row in response.api_keys}
    missing = {key.name for key in theirs.keys() - served.keys()}
    assert {name for name in missing if not any(word in name for word in OTHER_GROUPS)} <= NOT_SERVED
    # The newest version of InitProducerId is not stable in Kafka 4.3; librdkafka needs the old ones of Produce.
    ours = {key: tuple(versions) for key, versions in served.items() if key is not ApiKey.INIT_PRODUCER_ID}
    assert ours == {key: theirs.get(key) for key in ours}


@pytest.mark.parametrize(("version", "endpoint_type"), [(0, 1), (1, 1), (2, 2), (2, 7)], ids=lambda value: str(value))
def test_describe_cluster_on_a_controller(kafka: Kafka, version: int, endpoint_type: int) -> None:
    fields = {
        "include_cluster_authorized_operations": True,
        "endpoint_type": endpoint_type,
        "include_fenced_brokers": False,
    }
    with WireClient(kafka.controller) as client:
        theirs = client.call(ApiKey.DESCRIBE_CLUSTER, version, **fields)
    ours = asyncio.run(ControllerNode(1).call(ApiKey.DESCRIBE_CLUSTER, version, **fields))
    for node in (*theirs.brokers, *ours.brokers):
        node.host, node.port = "host", 9093
    if ours.cluster_id:
        ours.cluster_id = theirs.cluster_id
    assert ours == theirs


@pytest.mark.parametrize(
    "fields",
    [
        {"request_data": REQUEST},
        {"client_host_address": bytes(16)},
        {"client_host_address": b"abc"},
        {"request_principal": None},
        {"request_principal": b"?"},
        {"request_principal": b"\x00\x07" + PRINCIPAL[2:]},
        {"request_data": REQUEST[:-3]},
        {"request_data": b""},
        {"request_data": REQUEST[:2] + b"\x00\x63" + REQUEST[4:]},
        {"request_data": bytes(request_frame(ApiKey.API_VERSIONS, 0))},
        {"request_data": bytes(request_frame(ApiKey.LIST_GROUPS, 3, states_filter=[]))},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_envelopes(kafka: Kafka, fields: dict[str, Any]) -> None:
    whole = {"request_data": REQUEST, "request_principal": PRINCIPAL, "client_host_address": bytes([127, 0, 0, 1])}
    with WireClient(kafka.controller) as client:
        theirs = client.call(ApiKey.ENVELOPE, 0, **whole | fields)
    node = ControllerNode()
    node.controller.results["create_topics"] = [CreatedTopic("t", OK)]
    ours = asyncio.run(node.call(ApiKey.ENVELOPE, 0, **whole | fields))
    assert ErrorCode(ours.error_code) is ErrorCode(theirs.error_code)
    assert (ours.response_data is None) == (theirs.response_data is None)
    if theirs.response_data is not None:
        (created,), (expected,) = (_topics(response.response_data) for response in (ours, theirs))
        assert (created.name, created.error_code) == (expected.name, expected.error_code) == ("t", 0)


def _topics(data: bytes) -> list[Message]:
    correlation_id, position = parse_response_header(ApiKey.CREATE_TOPICS, 7, data)
    assert correlation_id == int.from_bytes(REQUEST[4:8], "big")
    topics: list[Message] = decode_response(ApiKey.CREATE_TOPICS, 7, data, position).topics
    return topics
