"""The shortcuts of the embedded broker, each as used by a program's test."""

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.sync import Admin, OffsetAndMetadata, TopicPartition
from rookery.testing import EmbeddedBroker
from rookery.testing.seeds import parse_seeds
from tests.support.retention import KEEPS_OLD_RECORDS

pytestmark = pytest.mark.rookery(settings=KEEPS_OLD_RECORDS)

CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "int"}]}


def commit(broker: EmbeddedBroker, group: str, topic: str, offset: int) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.commit_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(offset)})


def test_values_of_all_kinds_are_written_and_read(rookery: EmbeddedBroker) -> None:
    written = rookery.produce("orders", "apple", b"\xff", None, {"id": 7}, key="k", headers={"from": "test"})
    assert [each.offset for each in written] == [0, 1, 2, 3]
    found = rookery.records("orders")
    assert [record.value for record in found] == [b"apple", b"\xff", None, b'{"id":7}']
    assert {record.key for record in found} == {b"k"}
    assert found[0].headers == (("from", b"test"),)


def test_records_are_in_the_order_of_partition_and_offset(rookery: EmbeddedBroker) -> None:
    rookery.create_topic("orders", partitions=2)
    rookery.produce("orders", "c", partition=1, timestamp_ms=1000)
    rookery.produce("orders", "a", "b", partition=0)
    assert [record.value for record in rookery.records("orders", value_format="text")] == ["a", "b", "c"]
    (last,) = rookery.records("orders", partition=1)
    assert last.timestamp_ms == 1000


def test_json_is_read_back(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", {"id": 7}, key=[1, "a"])
    (record,) = rookery.records("orders", value_format="json", key_format="json")
    assert (record.key, record.value) == ([1, "a"], {"id": 7})


def test_missing_records_are_waited_for(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", "a")
    with pytest.raises(TimeoutError, match="not the 2 that were requested"):
        rookery.records("orders", count=2, timeout_s=0.5)
    rookery.produce("orders", "b")
    assert len(rookery.records("orders", count=2)) == 2


def test_records_of_an_unknown_topic_are_an_error(rookery: EmbeddedBroker) -> None:
    with pytest.raises(ApiError) as caught:
        rookery.records("nothing")
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_lag_is_waited_for(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", "a", "b", "c")
    with pytest.raises(TimeoutError, match=r"billing was not 0 or less .*committed no offsets"):
        rookery.wait_for_lag("billing", timeout_s=0.3)
    commit(rookery, "billing", "orders", 1)
    assert rookery.wait_for_lag("billing", at_most=2) == 2
    with pytest.raises(TimeoutError, match="orders-0: 2"):
        rookery.wait_for_lag("billing", timeout_s=0.3)
    commit(rookery, "billing", "orders", 3)
    assert rookery.wait_for_lag("billing", topic="orders") == 0


def test_a_commit_of_another_client_ends_the_wait(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", "a", "b")
    config = {"bootstrap.servers": rookery.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    assert len(consumer.consume(2, timeout=30)) == 2
    consumer.commit(asynchronous=False)
    assert rookery.wait_for_lag("g") == 0
    consumer.close()


def test_a_topic_is_seeded_from_the_output_of_consume(rookery: EmbeddedBroker, tmp_path: Path) -> None:
    lines = [
        {"key": "a", "value": "one", "headers": [{"name": "h", "value": "x"}], "timestamp_ms": 5},
        {"key": None, "value_base64": "/w=="},
        {"topic": "payments", "partition": 0, "value": {"id": 1}},
    ]
    file = tmp_path / "orders.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert rookery.seed(file) == 3
    first, second = rookery.records("orders")
    assert (first.key, first.value, first.headers, first.timestamp_ms) == (b"a", b"one", (("h", b"x"),), 5)
    assert (second.key, second.value) == (None, b"\xff")
    assert [record.value for record in rookery.records("payments")] == [b'{"id":1}']
    assert rookery.seed(file, topic="all") == 3
    assert len(rookery.records("all")) == 3


@pytest.mark.parametrize(
    ("line", "what"),
    [("hello", "Expecting value"), ("[]", "neither a key nor a value"), ('{"valeu": 1}', "neither a key nor a value")],
)
def test_an_invalid_line_is_named(line: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"orders.jsonl:2: .*{what}"):
        list(parse_seeds(f'{{"value": 1}}\n{line}', "orders.jsonl"))


@pytest.mark.rookery(schema_registry=True)
def test_schemas_are_registered_and_used(rookery: EmbeddedBroker, tmp_path: Path) -> None:
    assert rookery.register_schema("customers-value", CUSTOMER) == 1
    assert rookery.register_schema("customers-value", json.dumps(CUSTOMER)) == 1
    file = tmp_path / "key.json"
    file.write_text('{"type": "string"}')
    assert rookery.register_schema("customers-key", file) == 2
    rookery.produce("customers", {"id": 7}, key="ada", value_format="registry", key_format="registry")
    (raw,) = rookery.records("customers")
    assert raw.value == b"\0\0\0\0\x01\x0e"
    (record,) = rookery.records("customers", value_format="registry", key_format="registry")
    assert (record.key, record.value) == ("ada", {"id": 7})


async def use_on_a_loop(broker: EmbeddedBroker) -> int:
    broker.produce("orders", "a")
    return len(broker.records("orders"))


def test_shortcuts_work_on_an_event_loop(rookery: EmbeddedBroker) -> None:
    assert asyncio.run(use_on_a_loop(rookery)) == 1
