"""The producer without asyncio, against a running broker."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.errors import (
    BufferExhaustedError,
    ClientStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from rookery.client.produce.records import RecordMetadata
from rookery.client.sync import Admin, Consumer, Producer
from rookery.testing import EmbeddedBroker
from tests.support.retention import KEEPS_OLD_RECORDS
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:100].replace("[", "-").replace("]", "")
    broker.create_topic(name, partitions=2)
    return name


def config(broker: EmbeddedBroker, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers} | {
        key.replace("_", "."): value for key, value in more.items()
    }


def read(broker: EmbeddedBroker, topic: str, count: int, **more: object) -> list[Any]:
    found: list[Any] = []
    group = {"group.id": f"reads-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer[bytes, bytes](config(broker, **more) | group) as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            found += consumer.poll(5.0)
    return found


def test_records_arrive_in_order_from_every_thread(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker)) as producer:

        def send(sender: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d" % number, key=b"%d" % sender)

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(broker, topic, 2000)
    for sender in range(4):
        assert [int(r.value) for r in found if r.key == b"%d" % sender] == list(range(500))


def test_futures_are_those_of_the_standard_library(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker)) as producer:
        futures = [producer.send(topic, b"x", partition=0) for _ in range(10)]
        done, pending = wait(futures, timeout=10)
        assert not pending
        assert sorted(future.result().offset for future in done) == list(range(10))
        later = [producer.send(topic, b"x", partition=0, timestamp_ms=7, headers={"a": b"b"}) for _ in range(10)]
        assert [future.result().timestamp_ms for future in as_completed(later, timeout=10)] == [7] * 10
        assert later[0].exception() is None
        assert not later[0].cancel()


def test_a_wait_for_a_future_can_time_out(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker, linger_ms=60_000, batch_size=100_000)) as producer:
        future = producer.send(topic, b"x")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        broker.pause()
        try:
            with pytest.raises(ApiError, match="not everything was acknowledged"):
                producer.flush(0.05)
        finally:
            broker.resume()
        producer.flush()
        assert future.result(0).topic == topic


def test_callbacks_run_on_the_clients_thread_and_may_send(broker: EmbeddedBroker, topic: str) -> None:
    calls: list[tuple[RecordMetadata | None, ApiError | None, str]] = []
    again: list[Future[RecordMetadata]] = []
    with Producer[bytes, bytes](config(broker)) as producer:

        def on_delivery(metadata: RecordMetadata | None, error: ApiError | None) -> None:
            calls.append((metadata, error, threading.current_thread().name))
            again.append(producer.send(topic, b"again"))
            with pytest.raises(ClientStateError, match="callback"):
                producer.flush()

        producer.send(topic, b"x", on_delivery=on_delivery).result(10)
        producer.flush()
        assert again[0].result(10).topic == topic
    ((metadata, error, thread),) = calls
    assert metadata is not None
    assert (error, thread) == (None, "rookery-client")


def test_a_record_that_cannot_be_sent_fails_alone(broker: EmbeddedBroker, topic: str) -> None:
    calls: list[ApiError | None] = []
    with Producer[Any, Any](config(broker)) as producer:
        futures = [
            producer.send("not a topic!", b"x", on_delivery=lambda metadata, error: calls.append(error)),
            producer.send(topic, b"x", partition=9),
            producer.send(topic, b"fine"),
        ]
        codes = [
            error.code for error in (future.exception(10) for future in futures[:2]) if isinstance(error, ApiError)
        ]
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert futures[2].result(10).topic == topic
    assert calls == [futures[0].exception(0)]


def test_serializers(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[str, int](
        config(broker),
        key_serializer=lambda topic, key: key.encode(),
        value_serializer=lambda topic, value: b"%d" % value,
    ) as producer:
        producer.send(topic, 7, key="seven").result(10)
    (record,) = read(broker, topic, 1)
    assert (record.key, record.value) == (b"seven", b"7")


def test_senders_wait_for_memory_and_time_out(broker: EmbeddedBroker, topic: str) -> None:
    settings = config(broker, buffer_memory=100_000, max_block_ms=300, linger_ms=0)
    with Producer[bytes, bytes](settings) as producer:

        def is_known() -> bool:
            with suppress(ApiError):
                return bool(producer.partitions_for(topic))
            return False

        def send_without_end() -> None:
            while True:
                producer.send(topic, bytes(10_000))

        eventually(is_known, "the topic is not known")
        broker.pause()
        try:
            with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms"):
                send_without_end()
        finally:
            broker.resume()
        producer.flush()
        producer.send(topic, b"there is memory again").result(10)


def test_a_topic_without_metadata_does_not_delay_others(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="late", times=None)
    try:
        with Producer[bytes, bytes](config(broker, max_block_ms=60_000)) as producer:
            late = producer.send("late", b"x")
            assert producer.send(topic, b"x").result(10).topic == topic
            assert not late.done()
            broker.faults.clear()
            broker.create_topic("late")
            assert late.result(10).topic == "late"
    finally:
        broker.faults.clear()


def test_close_waits_and_a_failed_block_drops_records(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker, linger_ms=10_000)) as producer:
        kept = [producer.send(topic, b"x") for _ in range(100)]
    assert {future.result(0).topic for future in kept} == {topic}
    dropped: list[Future[RecordMetadata]] = []

    def fail(producer: Producer[bytes, bytes]) -> None:
        with producer:
            dropped.extend(producer.send(topic, b"x") for _ in range(100))
            raise ZeroDivisionError

    producer = Producer(config(broker, linger_ms=10_000))
    with pytest.raises(ZeroDivisionError):
        fail(producer)
    assert {type(future.exception(0)) for future in dropped} == {ApiError}
    with pytest.raises(ClientStateError, match="closed"):
        producer.send(topic, b"x")
    producer.close()


def fail_in_a_block(producer: "Producer[bytes, bytes]", topic: str) -> None:
    with producer.transaction():
        producer.send(topic, b"aborted")
        raise ZeroDivisionError


def test_transactions(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        aborted = [producer.send(topic, b"aborted") for _ in range(10)]
        producer.abort_transaction()
        assert all(future.done() for future in aborted)
        producer.begin_transaction()
        for _ in range(10):
            producer.send(topic, b"committed")
        with Consumer[bytes, bytes](config(broker, group_id=topic)) as consumer:
            metadata = consumer.group_metadata()
        producer.send_offsets_to_transaction({}, metadata)
        producer.commit_transaction()
        assert {r.value for r in read(broker, topic, 10, isolation_level="read_committed")} == {b"committed"}
        with pytest.raises(ZeroDivisionError):
            fail_in_a_block(producer, topic)
        with producer.transaction():
            producer.send(topic, b"in a block")
        (*_, last) = read(broker, topic, 11, isolation_level="read_committed", group_id="block")
        assert last.value == b"in a block"
        with Producer[bytes, bytes](config(broker, transactional_id=topic)) as newer:
            newer.init_transactions()
            producer.begin_transaction()
            assert producer.send(topic, b"late").exception(10) is not None
            with pytest.raises(ProducerFencedError):
                producer.abort_transaction()


def test_a_transaction_with_a_failed_record_is_not_committed(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[Any, Any](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"fine")
        producer.send(topic, b"too large" * 1_000_000)
        with pytest.raises(TransactionAbortableError, match="was not sent"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"better")
        producer.commit_transaction()
    assert [r.value for r in read(broker, topic, 1, isolation_level="read_committed")] == [b"better"]


def test_columns(broker: EmbeddedBroker, topic: str) -> None:
    rows = pa.record_batch({"value": pa.array([b"%d" % number for number in range(50)], pa.binary())})
    with Producer[bytes, bytes](config(broker)) as producer:
        producer.send(topic, b"before", partition=0)
        landed = producer.send_arrow(rows, topic).result(30)
        assert sum(batch.record_count for batch in landed) == 50
    found = read(broker, topic, 51)
    assert next(r.value for r in found if r.partition == 0) == b"before"


def test_metrics(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[bytes, bytes](config(broker)) as producer, Admin(config(broker)) as admin:
        producer.send(topic, b"x").result(10)
        names = {metric.name for metric in producer.metrics()}
        assert {"record-send-total", "request-latency-avg"} <= names
        admin.list_topics()
        assert {"request-total"} <= {metric.name for metric in admin.metrics()}
