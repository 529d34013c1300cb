"""The same requests to Rookery and to Apache Kafka, whose responses must be equal, including the messages."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest

from bench.systems import KAFKA_SETTINGS
from rookery.base.config import BROKER_KEYS
from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import Codec
from rookery.records.record import Record, build_batch
from tests.conformance import brokers
from tests.support.wire import WireClient

pytestmark = pytest.mark.java

TOPIC, BROKER = 2, 4
NODE_ID = "1"
# Kafka sets this config for all brokers when a cluster is formatted (eligible leader replicas, KIP-966).
SET_BY_FORMATTING = "min.insync.replicas"
# The settings that differ between the two brokers, or whose description differs on purpose (docs/unsupported.md).
DIFFERENT = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "group.initial.rebalance.delay.ms",
    "inter.broker.listener.name",
    "leader.imbalance.check.interval.seconds",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "process.roles",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    SET_BY_FORMATTING,
}
SAME_SETTINGS = {
    name: value for name, value in KAFKA_SETTINGS.items() if name not in DIFFERENT and name not in brokers.SETTINGS
}
# Settings that have an effect in Rookery, but only after a restart.
RESTART = {"cordoned.log.dirs", "listener.security.protocol.map", "listeners"}
# So have all of these but the key stores, which are read again when they change (docs/unsupported.md).
SECURITY = ("sasl.", "ssl.", "principal.builder.class")


class Both(NamedTuple):
    """A connection to each of the two brokers."""

    rookery: WireClient
    kafka: WireClient

    def call(self, api_key: ApiKey, version: int, **fields: Any) -> tuple[Message, Message]:
        return self.rookery.call(api_key, version, **fields), self.kafka.call(api_key, version, **fields)

    def agree(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        """Return the response, which must be the same from both."""
        ours, theirs = self.call(api_key, version, **fields)
        assert ours == theirs
        return ours


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    directory = tmp_path_factory.mktemp("both")
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(contextmanager(brokers.start)(name, directory / name, SAME_SETTINGS))
            for name in ("rookery", "kafka")
        ]
        yield Both(*(stack.enter_context(WireClient(address)) for address in addresses))


def create(both: Both, name: str, **configs: str) -> None:
    topic = Message(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[Message(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    for response in both.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False):
        assert response.topics[0].error_code == 0
    # Kafka responds when the controller has decided, before the broker has the topic.
    retry_until_done(lambda: [described.error_code for described in describe(both, TOPIC, name)])


def retry_until_done(attempt: Callable[[], list[int]]) -> None:
    """Try again while either broker returns an error."""
    while any(attempt()):
        time.sleep(0.1)


def describe(both: Both, kind: int, name: str) -> list[Message]:
    """Return the descriptions of one resource from both brokers."""
    resource = Message(resource_type=kind, resource_name=name, configuration_keys=None)
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    return [response.results[0] for response in both.call(ApiKey.DESCRIBE_CONFIGS, 4, **fields)]


def entries(described: Message) -> dict[str, Message]:
    return {entry.name: entry for entry in described.configs}


def test_topic_configs(both: Both, topic: str) -> None:
    create(both, topic, retention_ms="1234567", segment_ms="999999", flush_ms="55", cleanup_policy="compact")
    create(both, f"{topic}-plain")
    for name in (topic, f"{topic}-plain", f"{topic}-missing"):
        ours, theirs = describe(both, TOPIC, name)
        assert (ours.error_code, ours.error_message) == (theirs.error_code, theirs.error_message)
        mine, wanted = entries(ours), entries(theirs)
        assert {key: mine[key] for key in wanted if key != SET_BY_FORMATTING} == {
            key: entry for key, entry in wanted.items() if key != SET_BY_FORMATTING
        }
        assert [entry.name for entry in ours.configs if entry.value is None] == []


def test_broker_configs(both: Both) -> None:
    ours, theirs = describe(both, BROKER, NODE_ID)
    assert (ours.error_code, ours.error_message) == (theirs.error_code, theirs.error_message) == (0, "")
    mine, wanted = entries(ours), entries(theirs)
    assert [name for name in wanted if name not in mine] == []

    def shown(entry: Message) -> dict[str, Any]:
        return {name: value for name, value in vars(entry).items() if name != "read_only"}

    assert {name: shown(mine[name]) for name in wanted if name not in DIFFERENT} == {
        name: shown(entry) for name, entry in wanted.items() if name not in DIFFERENT
    }


def test_broker_configs_that_change_at_run_time(both: Both) -> None:
    ours, theirs = map(entries, describe(both, BROKER, NODE_ID))
    dynamic_here = {name for name, entry in ours.items() if not entry.read_only}
    dynamic_there = {name for name, entry in theirs.items() if not entry.read_only}
    assert dynamic_here - dynamic_there == set()
    restart = {name for name in dynamic_there - dynamic_here if BROKER_KEYS[name].effective}
    assert restart - RESTART == {name for name in restart if name.startswith(SECURITY)}
    assert restart >= RESTART


def coordinators(both: Both, version: int, kind: int, key: str) -> list[Message]:
    fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
    found = both.call(ApiKey.FIND_COORDINATOR, version, **fields)
    return list(found) if version < 4 else [response.coordinators[0] for response in found]


def await_coordinators(both: Both, kind: int, key: str) -> None:
    """Wait for the coordinators: Kafka creates their topic after it has responded."""
    retry_until_done(lambda: [found.error_code for found in coordinators(both, 6, kind, key)])


def test_messages_about_coordinators_and_groups_that_do_not_exist(both: Both, topic: str) -> None:
    for kind in (0, 1):
        await_coordinators(both, kind, topic)
        for version in range(1, 7):
            ours, theirs = (found.error_message for found in coordinators(both, version, kind, topic))
            assert ours == theirs
    for version in range(7):
        both.agree(ApiKey.DESCRIBE_GROUPS, version, groups=[topic], include_authorized_operations=False)
    for version in range(2):
        both.agree(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[topic], include_authorized_operations=False)


def test_groups_of_the_other_protocol(both: Both, topic: str) -> None:
    create(both, topic)
    classic, consumer = f"{topic}-classic", f"{topic}-consumer"
    await_coordinators(both, 0, classic)
    await_coordinators(both, 0, consumer)
    offset = Message(partition_index=0, committed_offset=0, committed_leader_epoch=-1, committed_metadata="")
    offsets = [Message(name=topic, partitions=[offset])]
    alone = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None, "topics": offsets}
    member = {
        "member_id": "one",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    retry_until_done(
        lambda: [
            response.topics[0].partitions[0].error_code
            for response in both.call(ApiKey.OFFSET_COMMIT, 8, group_id=classic, **alone)
        ]
    )
    retry_until_done(
        lambda: [
            response.error_code
            for response in both.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=consumer, **member)
        ]
    )
    both.agree(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[classic], include_authorized_operations=False)
    both.agree(ApiKey.DESCRIBE_GROUPS, 6, groups=[consumer], include_authorized_operations=False)


def produce(both: Both, topic: str, records: list[Record], codec: Codec = Codec.NONE) -> list[Message]:
    """Return the results of both brokers."""
    numbered = [record._replace(offset=index) for index, record in enumerate(records)]
    data = [Message(index=0, records=bytes(build_batch(numbered, codec=codec)))]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000}
    topics = [Message(name=topic, topic_id=None, partition_data=data)]
    answers = both.call(ApiKey.PRODUCE, 9, topic_data=topics, **fields)
    return [answer.responses[0].partition_responses[0] for answer in answers]


def without_bounds(result: Message) -> dict[str, Any]:
    """Return a result without the bounds in messages about timestamps, which depend on the broker's time."""
    errors = [
        (error.batch_index, error.batch_index_error_message.partition(" within [")[0]) for error in result.record_errors
    ]
    return vars(result) | {"record_errors": errors}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_invalid_records(both: Both, topic: str, codec: Codec) -> None:
    create(both, f"{topic}-compacted", cleanup_policy="compact")
    create(both, f"{topic}-timed", cleanup_policy="compact", message_timestamp_before_max_ms="3600000")
    create(both, f"{topic}-plain")
    now_ms = int(time.time() * 1000)
    good = Record(0, now_ms, b"k", b"v")
    keyless, old = good._replace(key=None), good._replace(timestamp_ms=now_ms - 4_000_000)
    new = good._replace(timestamp_ms=now_ms + 4_000_000)
    bare = good._replace(timestamp_ms=-1)
    cases = [
        ("compacted", [good, keyless, good, *[keyless] * 4], [1, 3, 4, 5, 6]),
        ("compacted", [keyless], [0]),
        ("compacted", [keyless, new, keyless._replace(timestamp_ms=now_ms + 4_000_000)], [0, 1, 2]),
        ("timed", [keyless, good, old, bare, new, keyless], [0, 2, 4, 5]),
        ("timed", [good, keyless], [1]),
        ("plain", [keyless, new, good, new, old], [1, 3]),
        ("plain", [new], [0]),
        ("plain", [good, keyless, old, bare], []),
    ]
    for name, records, bad in cases:
        retry_until_done(partial(produce_one, both, f"{topic}-{name}", good))
        ours, theirs = produce(both, f"{topic}-{name}", records, codec)
        assert [error.batch_index for error in ours.record_errors] == bad
        assert without_bounds(ours) == without_bounds(theirs)


def produce_one(both: Both, topic: str, record: Record) -> list[int]:
    return [result.error_code for result in produce(both, topic, [record])]


def produce_batches(
    client: WireClient, transactional_id: str | None, batches: dict[str, bytes]
) -> list[dict[str, Any]]:
    """Return the results of a request with one batch for each topic."""
    topics = [
        Message(name=name, topic_id=None, partition_data=[Message(index=0, records=data)])
        for name, data in batches.items()
    ]
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 30_000}
    response = client.call(ApiKey.PRODUCE, 12, topic_data=topics, **fields)
    return [vars(result) for topic in response.responses for result in topic.partition_responses]


def test_a_transactional_batch_without_a_transactional_id(both: Both, topic: str) -> None:
    """All batches of the request are refused, plain ones too, whether the producer has an open transaction or not."""
    other = f"{topic}-other"
    for name in (topic, other):
        create(both, name)
    record = Record(0, int(time.time() * 1000), b"k", b"v")
    plain = bytes(build_batch([record]))
    for name in (topic, other):
        retry_until_done(partial(produce_one, both, name, record))
    wanted = {"key_type": 1, "coordinator_keys": [topic]}
    retry_until_done(
        lambda: [each.coordinators[0].error_code for each in both.call(ApiKey.FIND_COORDINATOR, 4, **wanted)]
    )
    initial = {"transactional_id": topic, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    retry_until_done(lambda: [each.error_code for each in both.call(ApiKey.INIT_PRODUCER_ID, 4, **initial)])
    answers: list[list[dict[str, Any]]] = []
    for client in both:
        producer = client.call(ApiKey.INIT_PRODUCER_ID, 4, **initial)

        def batch(sequence: int, producer: Message = producer) -> bytes:
            identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            return bytes(build_batch([record], base_sequence=sequence, transactional=True, **identity))

        found = produce_batches(client, None, {topic: batch(0), other: plain})
        (begun,) = produce_batches(client, topic, {topic: batch(0)})
        assert begun["error_code"] == 0
        found += produce_batches(client, None, {other: plain, topic: batch(1)})
        answers.append(found)
    ours, theirs = answers
    assert ours == theirs
    assert {result["error_code"] for result in ours} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
