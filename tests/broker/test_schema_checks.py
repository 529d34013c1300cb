"""Produce to topics that check schema ids: what is accepted, the errors, and the order of batches that wait."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode, ProtocolError, StorageError
from rookery.base.types import NO_TOPIC_ID
from rookery.broker import schema_checks
from rookery.broker.dispatch import Dispatcher
from rookery.broker.inspections import Inspections
from rookery.broker.schema_checks import SchemaChecks
from rookery.net.connection import ConnectionInfo
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records import inspection
from rookery.records.batch import Codec, read_header, seal
from rookery.records.record import Record, build_batch
from rookery.storage.producers import ProducerStates
from tests.broker import harness, transactional
from tests.broker.harness import Broker, batch, decode, settle
from tests.broker.transactional import FOLLOWER, begin, lead_with_follower

VERSION = 12
ORDERS = "orders-value"


@pytest.fixture(autouse=True)
def _long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long enough for a gate that the test opens, also on a slow machine."""
    monkeypatch.setattr(schema_checks, "CATCH_UP_SECONDS_MAX", 30)


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_checks, "CATCH_UP_SECONDS_MAX", 0.05)


class Schemas:
    """The registered schemas of a test; `catch_up` adds `news` when the gate is open."""

    def __init__(self, **ids: int) -> None:
        self.registered = {(subject.replace("_", "-"), schema_id) for subject, schema_id in ids.items()}
        self.names: dict[int, str | None] = {}
        self.news: set[tuple[str, int]] = set()
        self.gate = asyncio.Event()
        self.can_read = True
        self.asked = 0
        self.gate.set()

    def is_registered(self, subject: str, schema_id: int) -> bool:
        return (subject, schema_id) in self.registered

    def record_name(self, schema_id: int) -> str | None:
        return self.names.get(schema_id)

    async def catch_up(self) -> bool:
        self.asked += 1
        await self.gate.wait()
        if self.can_read:
            self.registered |= self.news
        return self.can_read


def framed(schema_id: int, text: bytes = b"body") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big", signed=True) + text


def play(path: Path, scene: Callable[[Broker, Schemas], Coroutine[Any, Any, None]], **configs: str) -> None:
    """Run `scene` with a broker and the topic "orders", whose values are checked; schema 1 is registered for them."""

    async def main(broker: Broker) -> None:
        schemas = Schemas(orders_value=1)
        broker.services = replace(broker.services, inspections=Inspections(SchemaChecks(schemas)))
        broker.dispatcher = Dispatcher(broker.services)
        await broker.create_topic("orders", partitions=2, **({"value_schema_validation": "true"} | configs))
        await scene(broker, schemas)

    harness.play(path, main, transactional.CONFIG)


def fields(*records: tuple[int, bytes | None], **more: Any) -> dict[str, Any]:
    """`records` are (partition, batch) of the topic "orders"."""
    data = [Message(index=index, records=data) for index, data in records]
    return {"acks": -1, "timeout_ms": 60_000, "topic_data": [Message(name="orders", partition_data=data)]} | more


def results(response: Message) -> list[Message]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


def produce(broker: Broker, *records: tuple[int, bytes | None]) -> list[Message]:
    """Send a request that must be answered in stage 1; return its results."""
    return results(broker.call_now(ApiKey.PRODUCE, VERSION, **fields(*records)))


def send(broker: Broker, *records: tuple[int, bytes | None], **more: Any) -> "asyncio.Task[Reply | None]":
    """Send a request that waits, and run it as the connection does."""
    answer = broker.send(ApiKey.PRODUCE, VERSION, **fields(*records, **more))
    assert answer is not None
    assert not isinstance(answer, list), "the answer did not wait"
    return asyncio.ensure_future(answer)


async def answered(task: "asyncio.Task[Reply | None]") -> list[Message]:
    reply = await asyncio.wait_for(task, 60)
    assert reply is not None
    return results(decode(ApiKey.PRODUCE, VERSION, reply))


async def outcome(broker: Broker, data: bytes) -> Message:
    response = await broker.call(ApiKey.PRODUCE, VERSION, **fields((0, data)))
    (result,) = results(response)
    return result


def summary(found: list[Message]) -> list[tuple[int, int]]:
    return [(result.error_code, result.base_offset) for result in found]


def numbered(sequence: int, schema_id: int = 1) -> bytes:
    """A batch of one record, of an idempotent producer."""
    return batch(framed(schema_id), producer_id=9, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("codec", list(Codec))
def test_registered_ids_pass(tmp_path: Path, codec: Codec) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        (result,) = produce(broker, (0, batch(framed(1), framed(1, b""), codec=codec)))
        assert (result.error_code, result.base_offset) == (0, 0)
        assert schemas.asked == 0

    play(tmp_path, scene)


def test_records_without_a_value_pass(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        records = [Record(0, 0, b"k", None), Record(1, 0, b"k", framed(1)), Record(2, 0, None, None)]
        assert summary(produce(broker, (0, bytes(build_batch(records))))) == [(0, 0)]
        assert summary(produce(broker, (0, bytes(build_batch(records[:1]))))) == [(0, 3)]

    play(tmp_path, scene, key_schema_validation="false")


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with a schema id"),
        (b"\0\0\0\0", "does not begin with a schema id"),
        (b"\1\0\0\0\1", "does not begin with a schema id"),
        (b'{"json": true}', "does not begin with a schema id"),
        (framed(2), "2, is not registered for subject orders-value"),
        (framed(-1), "-1, is not registered for subject orders-value"),
    ],
    ids=["empty", "short", "magic", "text", "unknown", "negative"],
)
def test_rejected_values(tmp_path: Path, codec: Codec, value: bytes, reason: str) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        result = await outcome(broker, batch(framed(1), framed(1), value, framed(1), value, codec=codec))
        assert result.error_code == ErrorCode.INVALID_RECORD
        assert result.base_offset == -1
        assert [error.batch_index for error in result.record_errors] == [2, 4]
        assert all(reason in error.batch_index_error_message for error in result.record_errors)
        assert "due to 2 record errors in total" in result.error_message
        assert reason in result.error_message
        assert broker.replica("orders").log.end_offset == 0, "nothing of the batch is stored"

    play(tmp_path, scene)


def test_values_without_a_schema_id_are_rejected_without_a_wait(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        (result,) = produce(broker, (0, batch(framed(1), b"plain")))
        assert (result.error_code, result.record_errors[0].batch_index) == (ErrorCode.INVALID_RECORD, 1)
        assert schemas.asked == 0

    play(tmp_path, scene)


def test_all_invalid_records_are_reported_but_not_those_with_a_new_id(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        data = batch(framed(2), b"plain", framed(3), framed(1), b"", key=b"k")
        result = await outcome(broker, data)
        assert result.error_code == ErrorCode.INVALID_RECORD
        assert [(error.batch_index, error.batch_index_error_message) for error in result.record_errors] == [
            (1, "its value does not begin with a schema id"),
            (2, "the schema id of its value, 3, is not registered for subject orders-value"),
            (4, "its value does not begin with a schema id"),
        ]

    play(tmp_path, scene)


def test_a_record_is_reported_once_and_its_timestamp_decides_the_code(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        now_ms = broker.services.clock.now_ms()
        records = [
            Record(0, now_ms, None, b"plain"),
            Record(1, now_ms - 2000, b"k", b"plain"),
            Record(2, now_ms, b"k", b"plain"),
            Record(3, now_ms, b"k", framed(1)),
        ]
        (result,) = produce(broker, (0, bytes(build_batch(records))))
        assert result.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in result.record_errors] == [0, 1, 2]
        keyless, untimely, unframed = (error.batch_index_error_message for error in result.record_errors)
        assert "without key" in keyless
        assert "out of range" in untimely
        assert "schema id" in unframed

    play(tmp_path, scene, cleanup_policy="compact", message_timestamp_before_max_ms="1000")


def test_partitions_and_topics_fail_independently(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        await broker.create_topic("plain")
        request = fields((0, batch(b"bad")), (1, batch(framed(1))))
        plain = Message(name="plain", partition_data=[Message(index=0, records=batch(b"anything"))])
        request["topic_data"].append(plain)
        found = results(broker.call_now(ApiKey.PRODUCE, VERSION, **request))
        assert summary(found) == [(ErrorCode.INVALID_RECORD, -1), (0, 0), (0, 0)]

    play(tmp_path, scene)


def test_keys_and_values_are_checked_independently(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.registered.add(("orders-key", 5))
        assert (await outcome(broker, batch(framed(1), key=framed(5)))).error_code == 0
        assert (await outcome(broker, batch(framed(1), key=None))).error_code == 0
        for value, key, part in ((framed(1), framed(1), "key"), (framed(5), framed(5), "value")):
            result = await outcome(broker, batch(value, key=key))
            assert result.error_code == ErrorCode.INVALID_RECORD
            assert f"of its {part}," in result.error_message

    play(tmp_path, scene, confluent_key_schema_validation="true")


def test_only_keys(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.registered.add(("orders-key", 5))
        assert (await outcome(broker, batch(b"anything", key=framed(5)))).error_code == 0
        assert (await outcome(broker, batch(framed(1), key=b"k"))).error_code == ErrorCode.INVALID_RECORD

    play(tmp_path, scene, value_schema_validation="false", key_schema_validation="true")


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("RecordNameStrategy", "shop.Order"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "orders-shop.Order"),
    ],
)
def test_subjects_by_record_name(tmp_path: Path, strategy: str, subject: str) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.registered = {(subject, 3), ("orders-value", 4), ("orders-value", 1)}
        schemas.names = {3: "shop.Order", 4: "shop.Bill"}
        assert (await outcome(broker, batch(framed(3)))).error_code == 0
        refused = [await outcome(broker, batch(framed(schema_id))) for schema_id in (4, 1)]
        assert [result.error_code for result in refused] == [ErrorCode.INVALID_RECORD] * 2
        (first,) = refused[0].record_errors
        assert first.batch_index_error_message.endswith("subject " + subject.replace("Order", "Bill"))
        assert "1, has no known record name" in refused[1].error_message

    play(tmp_path, scene, value_subject_name_strategy=strategy)


async def switch(broker: Broker, text: str, name: str = "value.schema.validation") -> None:
    configs = [Message(name=name, config_operation=0, value=text)]
    resource = Message(resource_type=2, resource_name="orders", configs=configs)
    response = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert response.responses[0].error_code == 0


def test_the_check_can_be_switched_on_and_off(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        for text, expected in (("false", 0), ("true", ErrorCode.INVALID_RECORD), ("false", 0)):
            await switch(broker, text, "confluent.value.schema.validation")
            (result,) = produce(broker, (0, batch(b"plain")))
            assert result.error_code == expected

    play(tmp_path, scene, value_schema_validation="false")


def test_the_order_is_kept_when_the_check_is_switched_off(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        schemas.gate.clear()
        parked = send(broker, (0, numbered(0, 2)), (1, batch(framed(2))))
        await settle()
        await switch(broker, "false")
        after = send(broker, (0, numbered(1)), (1, batch(b"plain")))
        await settle()
        assert [broker.replica("orders", index).log.end_offset for index in (0, 1)] == [0, 0]
        schemas.gate.set()
        found = [summary(await answered(task)) for task in (parked, after)]
        assert found == [[(0, 0), (0, 0)], [(0, 1), (0, 1)]]
        assert summary(produce(broker, (0, numbered(2)))) == [(0, 2)], "answered in stage 1 again"

    play(tmp_path, scene)


def test_waiting_batches_are_appended_if_the_check_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to switch the check off in the meantime, which writes to the disk.
    monkeypatch.setattr(schema_checks, "CATCH_UP_SECONDS_MAX", 1)

    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.can_read = False
        schemas.gate.clear()
        parked = send(broker, (0, numbered(0, 2)))
        await switch(broker, "false")
        tasks = [parked, send(broker, (0, numbered(1)))]
        found = [summary(await answered(task)) for task in tasks]
        assert found == [[(0, 0)], [(0, 1)]]

    play(tmp_path, scene)


def test_a_duplicate_of_a_stored_batch_is_acknowledged(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        plain = batch(b"plain", producer_id=9, producer_epoch=0, base_sequence=0)
        sent = [plain, numbered(1)]
        assert [summary(produce(broker, (0, data))) for data in sent] == [[(0, 0)], [(0, 1)]]
        await switch(broker, "true")
        schemas.registered.clear()
        assert [summary(produce(broker, (0, data))) for data in sent] == [[(0, 0)], [(0, 1)]]
        assert schemas.asked == 0
        assert broker.replica("orders").log.end_offset == 2
        for new in (numbered(2), numbered(5), batch(framed(1))):
            assert (await outcome(broker, new)).error_code == ErrorCode.INVALID_RECORD

    play(tmp_path, scene, value_schema_validation="false")


def test_a_log_whose_producers_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        def fail(*_: object) -> None:
            raise StorageError("the disk is gone")

        monkeypatch.setattr(ProducerStates, "check", fail)
        (result,) = produce(broker, (0, numbered(0, 2)))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    play(tmp_path, scene)


def test_usual_batches_are_inspected_in_stage_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        monkeypatch.setattr(inspection, "unpack_pieces", None)
        assert summary(produce(broker, (0, batch(*[framed(1)] * 100)))) == [(0, 0)]

    play(tmp_path, scene)


def with_invalid_records(batch_data: bytes) -> bytes:
    """Return a batch with a valid checksum, whose records cannot be decoded."""
    return bytes(seal(read_header(batch_data), b"\xff" * 40))


def test_malformed_batches(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        good = batch(framed(1))
        flipped = good[:-1] + bytes([good[-1] ^ 1])
        cases = [
            (flipped, ErrorCode.CORRUPT_MESSAGE),
            (with_invalid_records(good), ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (None, ErrorCode.INVALID_RECORD),
            (batch(b"x" * 5000), ErrorCode.MESSAGE_TOO_LARGE),
        ]
        for data, expected in cases:
            (result,) = produce(broker, (0, data))
            assert result.error_code == expected
            assert result.error_message
        assert broker.replica("orders").log.end_offset == 0

    play(tmp_path, scene, max_message_bytes="2000")


def test_a_batch_with_a_new_id_waits(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        schemas.gate.clear()
        task = send(broker, (0, batch(framed(2))), (1, batch(framed(1))))
        await settle()
        assert not task.done()
        assert [broker.replica("orders", index).log.end_offset for index in (0, 1)] == [0, 1], "others do not wait"
        schemas.gate.set()
        assert summary(await answered(task)) == [(0, 0), (0, 0)]
        assert summary(produce(broker, (0, batch(framed(2))))) == [(0, 1)], "it is known by now"

    play(tmp_path, scene)


def test_five_requests_in_flight_keep_their_order(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2), (ORDERS, 3)}
        schemas.gate.clear()
        ids = (2, 1, 1, 3, 1)
        tasks = [send(broker, (0, numbered(sequence, schema_id))) for sequence, schema_id in enumerate(ids)]
        await settle()
        assert broker.replica("orders").log.end_offset == 0
        schemas.gate.set()
        found = [await answered(task) for task in tasks]
        assert [summary(each) for each in found] == [[(0, offset)] for offset in range(5)]
        assert summary(produce(broker, (0, numbered(5)))) == [(0, 5)], "answered in stage 1 again"

    play(tmp_path, scene)


def test_batches_after_one_that_must_be_retried_must_be_retried_too(tmp_path: Path, short_wait: None) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        schemas.gate.clear()
        schemas.can_read = False
        requests = [numbered(sequence, schema_id) for sequence, schema_id in enumerate((2, 1, 1, 2, 1))]
        tasks = [send(broker, (0, data)) for data in requests]
        schemas.gate.set()
        found = [await answered(task) for task in tasks]
        assert [summary(each) for each in found] == [[(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]] * 5
        assert broker.replica("orders").log.end_offset == 0
        schemas.can_read = True
        again = [await outcome(broker, data) for data in requests]
        assert summary(again) == [(0, offset) for offset in range(5)]

    play(tmp_path, scene)


def test_other_connections_do_not_wait(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.gate.clear()
        task = send(broker, (0, batch(framed(2))))
        broker.connection = ConnectionInfo("127.0.0.1", 50_001, "PLAINTEXT")
        assert summary(produce(broker, (0, batch(framed(1))))) == [(0, 0)]
        schemas.gate.set()
        assert summary(await answered(task)) == [(ErrorCode.INVALID_RECORD, -1)]

    play(tmp_path, scene)


@pytest.mark.parametrize("hangs", [True, False])
def test_schemas_that_cannot_be_read(tmp_path: Path, hangs: bool, short_wait: None) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.can_read = False
        if hangs:
            schemas.gate.clear()
        result = await outcome(broker, batch(framed(2)))
        assert (result.error_code, result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert "cannot be read" in result.error_message
        assert result.record_errors == []
        assert broker.replica("orders").log.end_offset == 0
        assert summary(produce(broker, (0, batch(framed(1))))) == [(0, 0)], "known ids are still accepted"

    play(tmp_path, scene)


def test_schemas_that_can_be_read_again(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        schemas.can_read = False
        task = send(broker, (0, batch(framed(2))))
        await settle()
        assert schemas.asked == 1
        schemas.can_read = True
        assert summary(await answered(task)) == [(0, 0)]

    play(tmp_path, scene)


def test_a_broker_without_a_registry(tmp_path: Path, short_wait: None) -> None:
    async def main(broker: Broker) -> None:
        await broker.create_topic("orders", value_schema_validation="true")
        assert (await outcome(broker, batch(framed(1)))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await outcome(broker, batch(b"plain"))).error_code == ErrorCode.INVALID_RECORD

    harness.play(tmp_path, main, {})


def test_acks_zero(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        with pytest.raises(ProtocolError, match="INVALID_RECORD"):
            broker.send(ApiKey.PRODUCE, VERSION, **fields((0, batch(b"plain")), acks=0))
        assert broker.send(ApiKey.PRODUCE, VERSION, **fields((0, batch(framed(1))), acks=0)) is None
        assert await send(broker, (0, batch(framed(2))), acks=0) is None
        assert broker.replica("orders").log.end_offset == 2
        with pytest.raises(ProtocolError, match="INVALID_RECORD"):
            await send(broker, (0, batch(framed(3))), acks=0)

    play(tmp_path, scene)


def test_after_the_schemas_the_response_waits_for_the_in_sync_replicas(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        replica = broker.replica("orders", 1)
        lead_with_follower(replica)
        task = send(broker, (0, batch(framed(2))), (1, batch(framed(2))))
        while replica.log.end_offset < 1:
            await asyncio.sleep(0)
        await settle()
        assert not task.done()
        replica.read(1, 1000, node_id=FOLLOWER)
        assert summary(await answered(task)) == [(0, 0), (0, 0)]

    play(tmp_path, scene)


def test_in_sync_replicas_that_do_not_follow(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        lead_with_follower(broker.replica("orders", 0))
        task = send(broker, (0, batch(framed(2))), (1, batch(framed(1))), timeout_ms=50)
        assert summary(await answered(task)) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)]

    play(tmp_path, scene)


def test_a_topic_that_is_deleted_during_the_wait(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        schemas.news = {(ORDERS, 2)}
        schemas.gate.clear()
        task = send(broker, (0, batch(framed(2))))
        topics = [Message(name="orders", topic_id=NO_TOPIC_ID)]
        response = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=60_000)
        assert response.responses[0].error_code == 0
        schemas.gate.set()
        assert summary(await answered(task)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    play(tmp_path, scene)


def test_transactional_batches_are_checked_too(tmp_path: Path) -> None:
    async def scene(broker: Broker, schemas: Schemas) -> None:
        await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["t"])
        producer = await begin(broker)
        bad, good = producer.batch(b"plain"), producer.batch(framed(1))
        for data, expected in ((bad, (ErrorCode.INVALID_RECORD, -1)), (good, (0, 0))):
            response = await broker.call(ApiKey.PRODUCE, VERSION, **fields((0, data), transactional_id="t"))
            assert summary(results(response)) == [expected]
        schemas.news = {(ORDERS, 2)}
        schemas.gate.clear()
        # The transaction has not begun on partition 1 yet.
        tasks = [
            send(
                broker,
                (0, producer.batch(framed(schema_id), sequence=sequence + 1)),
                (1, producer.batch(framed(schema_id), sequence=sequence)),
                transactional_id="t",
            )
            for sequence, schema_id in enumerate((2, 1, 2))
        ]
        await settle()
        assert broker.replica("orders", 1).log.end_offset == 0
        schemas.gate.set()
        found = [summary(await answered(task)) for task in tasks]
        assert found == [[(0, sequence + 1), (0, sequence)] for sequence in range(3)]
        assert (await transactional.end(broker, producer)).error_code == ErrorCode.NONE

    play(tmp_path, scene)


def test_records_of_coordinators_are_not_checked(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Schemas) -> None:
        await broker.call(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
        configs = [
            Message(name=f"{part}.schema.validation", config_operation=0, value="true") for part in ("key", "value")
        ]
        resource = Message(resource_type=2, resource_name="__consumer_offsets", configs=configs)
        response = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert response.responses[0].error_code == 0
        offset = Message(partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata="")
        committed = await broker.call(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[Message(name="orders", partitions=[offset])],
        )
        assert committed.topics[0].partitions[0].error_code == 0

    play(tmp_path, scene)
