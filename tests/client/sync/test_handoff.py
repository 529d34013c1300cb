"""Records between a sending thread and the clients' thread: serialization, one completion each, no lost wake-up."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.errors import (
    BufferExhaustedError,
    ClientStateError,
    SerializationError,
    TransactionAbortableError,
)
from rookery.client.produce.records import ProducerRecord, RecordMetadata
from rookery.client.sync import Admin, Producer
from rookery.testing import EmbeddedBroker
from tests.client.sync.test_producer import config, read

MAX_LONG = 2**63 - 1


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"transaction.state.log.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:100].replace("[", "-").replace("]", "")
    broker.create_topic(name, partitions=1)
    return name


class RecordingCallback:
    """An on_delivery that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[RecordMetadata | None, ApiError | None]] = []

    def __call__(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
        self.calls.append((metadata, error))


class RecordingInterceptor:
    """An interceptor that records the threads in which it ran."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.acknowledged: list[ApiError | None] = []

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        self.sent.append(threading.current_thread().name)
        return record._replace(headers=(*record.headers, ("seen", b"yes")))

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
        self.acknowledged.append(error)


def connection_count(producer: Producer[Any, Any]) -> float:
    return next(value for name, value in producer.metrics().items() if name.name == "connection-count")


# Serialization in the calling thread


def test_objects_may_be_reused_immediately(broker: EmbeddedBroker, topic: str) -> None:
    """The clients' thread is blocked until everything is sent, so it could see only the last state of each object."""
    may_continue = threading.Event()
    numbers: dict[str, int] = {}
    buffer = bytearray(1)
    headers: dict[str, bytes | None] = {}
    with (
        Producer[Any, Any](config(broker), value_serializer=lambda topic, data: json.dumps(data).encode()) as producer,
        Producer[Any, Any](config(broker)) as plain,
    ):
        producer._loop.call_soon(may_continue.wait)
        try:
            for number in range(10):
                numbers["n"], buffer[0], headers["n"] = number, number, b"%d" % number
                producer.send(topic, numbers, headers=headers)
                plain.send(topic, memoryview(buffer), key=buffer)
        finally:
            may_continue.set()
    found = read(broker, topic, 20)
    made = [record for record in found if record.key is None]
    assert [json.loads(record.value)["n"] for record in made] == list(range(10))
    assert [record.headers for record in made] == [(("n", b"%d" % number),) for number in range(10)]
    copied = [record for record in found if record.key is not None]
    assert [(record.key[0], record.value[0]) for record in copied] == [(number, number) for number in range(10)]


def test_send_raises_serialization_errors(broker: EmbeddedBroker, topic: str) -> None:
    callback, interceptor = RecordingCallback(), RecordingInterceptor()
    with Producer[Any, Any](config(broker), interceptors=[interceptor]) as producer:
        invalid: list[Callable[[], object]] = [
            lambda: producer.send(topic, "no bytes", on_delivery=callback),
            lambda: producer.send(topic, b"x", key=7),
            lambda: producer.send(topic, b"x", timestamp_ms=-1),
            lambda: producer.send(["no topic"], b"x"),  # type: ignore[arg-type]
        ]
        for send in invalid:
            with pytest.raises(SerializationError):
                send()
        with pytest.raises(SerializationError, match="header"):
            producer.send(topic, b"x", headers={"a": "no bytes"})  # type: ignore[dict-item]
        assert [type(error) for error in interceptor.acknowledged] == [SerializationError] * 4
        producer.send(topic, b"fine").result(10)
    assert callback.calls == []
    assert [record.value for record in read(broker, topic, 1)] == [b"fine"]


def test_an_error_of_send_does_not_affect_the_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[Any, Any](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(SerializationError):
            producer.send(topic, "no bytes")
        producer.send(topic, b"fine")
        producer.commit_transaction()
    assert [record.value for record in read(broker, topic, 1, isolation_level="read_committed")] == [b"fine"]


def test_interceptors_see_a_record_once_in_the_sending_thread(broker: EmbeddedBroker, topic: str) -> None:
    interceptor = RecordingInterceptor()
    with Producer[bytes, bytes](config(broker), interceptors=[interceptor]) as producer:
        for _ in range(3):
            producer.send(topic, b"x").result(10)
    assert interceptor.sent == [threading.current_thread().name] * 3
    assert interceptor.acknowledged == [None] * 3
    assert [record.headers for record in read(broker, topic, 3)] == [(("seen", b"yes"),)] * 3


def test_queued_records_count_with_their_serialized_size(broker: EmbeddedBroker, topic: str) -> None:
    settings = config(broker, buffer_memory=100_000, max_block_ms=50)
    may_continue = threading.Event()
    with Producer[Any, str](settings, value_serializer=lambda topic, text: text.encode()) as producer:
        producer._loop.call_soon(may_continue.wait)
        try:
            for _ in range(3):
                producer.send(topic, "x" * 40_000)
            with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms \(50\)"):
                producer.send(topic, "x")
        finally:
            may_continue.set()


# One completion for each record


def fail_for_bad(topic: str, key: bytes | None, value: bytes | None, partition_count: int, **_: object) -> int:
    if value == b"bad":
        raise ValueError("no partition for this")
    return 0


def test_a_record_that_cannot_be_sent_prevents_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    callback, interceptor = RecordingCallback(), RecordingInterceptor()
    settings = config(broker, transactional_id=topic)
    with Producer[bytes, bytes](settings, partitioner=fail_for_bad, interceptors=[interceptor]) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"good")
        bad = producer.send(topic, b"bad", on_delivery=callback)
        with pytest.raises(TransactionAbortableError, match="no partition for this"):
            producer.commit_transaction()
        error = bad.exception(0)
        assert isinstance(error, SerializationError)
        assert isinstance(error.__cause__, ValueError)
        assert callback.calls == [(None, error)]
        assert error in interceptor.acknowledged
        producer.abort_transaction()


def test_a_record_outside_of_a_transaction_fails_once(broker: EmbeddedBroker, topic: str) -> None:
    callback = RecordingCallback()
    with Producer[Any, Any](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        early = producer.send(topic, b"early", on_delivery=callback).exception(10)
        assert isinstance(early, ApiError)
        assert early.code is ErrorCode.OPERATION_NOT_ATTEMPTED
        assert isinstance(early.__cause__, ClientStateError)
        assert callback.calls == [(None, early)]
        producer.begin_transaction()
        wrong = producer.send(topic, b"x", partition="0", on_delivery=callback).exception(10)  # type: ignore[arg-type]
        assert isinstance(wrong, SerializationError)
        assert callback.calls[1:] == [(None, wrong)]
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        # Earlier failures do not affect the next transaction.
        producer.begin_transaction()
        producer.send(topic, b"x")
        producer.commit_transaction()


def test_a_dropped_record_fails_once_and_its_topic_can_be_used_again(broker: EmbeddedBroker, topic: str) -> None:
    interceptor = RecordingInterceptor()
    # Long enough that no record is sent before it is dropped.
    settings = config(broker, transactional_id=topic, linger_ms=60_000)
    with Producer[bytes, bytes](settings, interceptors=[interceptor]) as producer:
        producer.init_transactions()
        for _ in range(20):
            callback = RecordingCallback()
            producer.begin_transaction()
            dropped = producer.send(topic, b"dropped", on_delivery=callback)
            producer.abort_transaction()
            assert callback.calls == [(None, dropped.exception(0))]
        assert len(interceptor.acknowledged) == 20
        producer.begin_transaction()
        kept = producer.send(topic, b"kept")
        producer.commit_transaction()
        assert kept.result(0).topic == topic


def test_a_pump_that_is_cancelled_before_it_starts_is_removed(broker: EmbeddedBroker, topic: str) -> None:
    """The record and its drop reach the loop in one step, so the pump is created and cancelled immediately."""
    with Producer[bytes, bytes](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        callback = RecordingCallback()

        async def send_and_drop() -> None:
            producer.send(topic, b"dropped", on_delivery=callback)
            await producer._drop_queued()

        producer._loop.run(send_and_drop())
        assert [type(error) for _, error in callback.calls] == [ApiError]
        producer.abort_transaction()
        producer.begin_transaction()
        assert producer.send(topic, b"kept").result(10).topic == topic
        producer.commit_transaction()
    assert producer._queued_bytes == 0


def test_an_immediate_close_fails_each_record_once(broker: EmbeddedBroker, topic: str) -> None:
    for _ in range(10):
        producer = Producer[bytes, bytes](config(broker, linger_ms=10_000))
        assert producer.partitions_for(topic)
        callback = [RecordingCallback() for _ in range(5)]
        futures = [producer.send(topic, b"x", on_delivery=each) for each in callback]
        producer.close(0)
        assert [each.calls for each in callback] == [[(None, future.exception(0))] for future in futures]


def test_a_failed_block_aborts_its_transaction(broker: EmbeddedBroker, topic: str) -> None:
    def fail() -> None:
        with Producer[bytes, bytes](config(broker, transactional_id=topic)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"x").result(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with Admin(config(broker)) as admin:
        states = {each.transactional_id: each.state for each in admin.list_transactions()}
    assert states[topic] in ("PrepareAbort", "CompleteAbort")


# Waiting and waking


def test_the_largest_max_block_ms_is_accepted(broker: EmbeddedBroker, topic: str) -> None:
    may_continue = threading.Event()
    with Producer[bytes, bytes](config(broker, buffer_memory=100_000, max_block_ms=MAX_LONG)) as producer:
        producer._loop.call_soon(may_continue.wait)
        producer.send(topic, bytes(99_900))
        # A waiting sender has released the lock; then the loop makes space.
        unblocking = threading.Thread(target=_when_a_sender_waits, args=(producer, may_continue.set))
        unblocking.start()
        try:
            future = producer.send(topic, b"x")
        finally:
            may_continue.set()
            unblocking.join()
        assert future.result(10).topic == topic


def _when_a_sender_waits(producer: Producer[bytes, bytes], act: Callable[[], None]) -> None:
    pause = threading.Event()
    for _ in range(10_000):
        with producer._lock:
            if producer._waiting_count:
                break
        pause.wait(0.001)
    act()


def test_an_interrupted_wake_up_leaves_an_empty_queue(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(callback: object) -> None:
        raise KeyboardInterrupt

    with Producer[bytes, bytes](config(broker)) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(producer._loop, "call_soon", interrupt)
            with pytest.raises(KeyboardInterrupt):
                producer.send(topic, b"interrupted")
        assert producer.send(topic, b"x").result(10).offset == 0
        assert producer._queued_bytes == 0


FORK = """
import os, signal, sys
from rookery.client.errors import ClientStateError
from rookery.client.sync import Producer

producer = Producer({"bootstrap.servers": "localhost:1"})
with producer._lock:
    child = os.fork()
    if not child:
        signal.alarm(60)
        for call in (lambda: producer.send("topic", b"x"), producer.close):
            try:
                call()
            except ClientStateError as error:
                assert "fork" in str(error)
            else:
                os._exit(1)
        os._exit(0)
_, status = os.waitpid(child, 0)
producer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_does_not_wait_for_its_parents_lock() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=90)


# Closing


def test_close_in_a_callback_raises_and_closes_nothing(broker: EmbeddedBroker, topic: str) -> None:
    raised_errors: list[ClientStateError] = []
    is_called = threading.Event()
    producer = Producer[bytes, bytes](config(broker))

    def on_delivery(metadata: RecordMetadata | None, error: ApiError | None) -> None:
        try:
            producer.close()
        except ClientStateError as raised:
            raised_errors.append(raised)
        is_called.set()

    producer.send(topic, b"x", on_delivery=on_delivery)
    assert is_called.wait(10)
    assert "callback" in str(raised_errors[0])
    producer.send(topic, b"still open").result(10)
    producer.close()
    assert connection_count(producer) == 0
    with pytest.raises(ClientStateError, match="closed"):
        producer.send(topic, b"x")


def test_an_interrupted_close_can_be_called_again(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted while a record waits for its topic's metadata."""
    broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="never", times=None)
    callback = RecordingCallback()
    producer = Producer[bytes, bytes](config(broker))
    loop = producer._loop

    def interrupted(work: Any) -> None:
        closing = loop.submit(work)
        loop.submit(_nothing()).result(10)
        assert not closing.done()
        closing.cancel()
        raise KeyboardInterrupt

    try:
        future = producer.send("never", b"x", on_delivery=callback)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.close()
        with pytest.raises(ClientStateError, match="closed"):
            producer.send("never", b"x")
        assert not future.done()
        producer.close(0)
    finally:
        broker.faults.clear()
    assert callback.calls == [(None, future.exception(0))]
    assert connection_count(producer) == 0
    producer.close()


async def _nothing() -> None: ...
