"""Between a thread that sends and the clients' thread: bytes, one fate for each record, and no lost wake-up."""

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


class Told:
    """An on_delivery that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[RecordMetadata | None, ApiError | None]] = []

    def __call__(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
        self.calls.append((metadata, error))


class Intercepting:
    """An interceptor that remembers in which threads it ran."""

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


# Bytes in the calling thread


def test_objects_may_be_used_again_at_once(broker: EmbeddedBroker, topic: str) -> None:
    """The clients' thread is kept busy until all is sent, so it sees nothing but the last state of each object."""
    go_on = threading.Event()
    numbers: dict[str, int] = {}
    buffer = bytearray(1)
    headers: dict[str, bytes | None] = {}
    with (
        Producer[Any, Any](config(broker), value_serializer=lambda topic, data: json.dumps(data).encode()) as producer,
        Producer[Any, Any](config(broker)) as plain,
    ):
        producer._loop.call_soon(go_on.wait)
        try:
            for number in range(10):
                numbers["n"], buffer[0], headers["n"] = number, number, b"%d" % number
                producer.send(topic, numbers, headers=headers)
                plain.send(topic, memoryview(buffer), key=buffer)
        finally:
            go_on.set()
    found = read(broker, topic, 20)
    made = [record for record in found if record.key is None]
    assert [json.loads(record.value)["n"] for record in made] == list(range(10))
    assert [record.headers for record in made] == [(("n", b"%d" % number),) for number in range(10)]
    copied = [record for record in found if record.key is not None]
    assert [(record.key[0], record.value[0]) for record in copied] == [(number, number) for number in range(10)]


def test_what_cannot_be_made_bytes_is_raised_by_send(broker: EmbeddedBroker, topic: str) -> None:
    told, interceptor = Told(), Intercepting()
    with Producer[Any, Any](config(broker), interceptors=[interceptor]) as producer:
        unfit: list[Callable[[], object]] = [
            lambda: producer.send(topic, "no bytes", on_delivery=told),
            lambda: producer.send(topic, b"x", key=7),
            lambda: producer.send(topic, b"x", timestamp_ms=-1),
            lambda: producer.send(["no topic"], b"x"),  # type: ignore[arg-type]
        ]
        for send in unfit:
            with pytest.raises(SerializationError):
                send()
        with pytest.raises(SerializationError, match="header"):
            producer.send(topic, b"x", headers={"a": "no bytes"})  # type: ignore[dict-item]
        assert [type(error) for error in interceptor.acknowledged] == [SerializationError] * 4
        producer.send(topic, b"fine").result(10)
    assert told.calls == []
    assert [record.value for record in read(broker, topic, 1)] == [b"fine"]


def test_what_send_raises_does_not_touch_the_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with Producer[Any, Any](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(SerializationError):
            producer.send(topic, "no bytes")
        producer.send(topic, b"fine")
        producer.commit_transaction()
    assert [record.value for record in read(broker, topic, 1, isolation_level="read_committed")] == [b"fine"]


def test_interceptors_see_a_record_once_in_the_thread_that_sends(broker: EmbeddedBroker, topic: str) -> None:
    interceptor = Intercepting()
    with Producer[bytes, bytes](config(broker), interceptors=[interceptor]) as producer:
        for _ in range(3):
            producer.send(topic, b"x").result(10)
    assert interceptor.sent == [threading.current_thread().name] * 3
    assert interceptor.acknowledged == [None] * 3
    assert [record.headers for record in read(broker, topic, 3)] == [(("seen", b"yes"),)] * 3


def test_what_was_made_bytes_counts_with_its_size(broker: EmbeddedBroker, topic: str) -> None:
    settings = config(broker, buffer_memory=100_000, max_block_ms=50)
    go_on = threading.Event()
    with Producer[Any, str](settings, value_serializer=lambda topic, text: text.encode()) as producer:
        producer._loop.call_soon(go_on.wait)
        try:
            for _ in range(3):
                producer.send(topic, "x" * 40_000)
            with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms \(50\)"):
                producer.send(topic, "x")
        finally:
            go_on.set()


# One fate for each record


def fail_for_bad(topic: str, key: bytes | None, value: bytes | None, partition_count: int, **_: object) -> int:
    if value == b"bad":
        raise ValueError("no partition for this")
    return 0


def test_whatever_refuses_a_record_keeps_its_transaction_from_committing(broker: EmbeddedBroker, topic: str) -> None:
    told, interceptor = Told(), Intercepting()
    settings = config(broker, transactional_id=topic)
    with Producer[bytes, bytes](settings, partitioner=fail_for_bad, interceptors=[interceptor]) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"good")
        bad = producer.send(topic, b"bad", on_delivery=told)
        with pytest.raises(TransactionAbortableError, match="no partition for this"):
            producer.commit_transaction()
        error = bad.exception(0)
        assert isinstance(error, SerializationError)
        assert isinstance(error.__cause__, ValueError)
        assert told.calls == [(None, error)]
        assert error in interceptor.acknowledged
        producer.abort_transaction()


def test_a_record_outside_of_a_transaction_is_refused_once(broker: EmbeddedBroker, topic: str) -> None:
    told = Told()
    with Producer[Any, Any](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        early = producer.send(topic, b"early", on_delivery=told).exception(10)
        assert isinstance(early, ApiError)
        assert early.code is ErrorCode.OPERATION_NOT_ATTEMPTED
        assert isinstance(early.__cause__, ClientStateError)
        assert told.calls == [(None, early)]
        producer.begin_transaction()
        wrong = producer.send(topic, b"x", partition="0", on_delivery=told).exception(10)  # type: ignore[arg-type]
        assert isinstance(wrong, SerializationError)
        assert told.calls[1:] == [(None, wrong)]
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        # What was refused before is forgotten.
        producer.begin_transaction()
        producer.send(topic, b"x")
        producer.commit_transaction()


def test_a_dropped_record_is_told_once_and_its_topic_lives_on(broker: EmbeddedBroker, topic: str) -> None:
    interceptor = Intercepting()
    # Long enough that none has left before it is dropped.
    settings = config(broker, transactional_id=topic, linger_ms=60_000)
    with Producer[bytes, bytes](settings, interceptors=[interceptor]) as producer:
        producer.init_transactions()
        for _ in range(20):
            told = Told()
            producer.begin_transaction()
            dropped = producer.send(topic, b"dropped", on_delivery=told)
            producer.abort_transaction()
            assert told.calls == [(None, dropped.exception(0))]
        assert len(interceptor.acknowledged) == 20
        producer.begin_transaction()
        kept = producer.send(topic, b"kept")
        producer.commit_transaction()
        assert kept.result(0).topic == topic


def test_a_pump_that_is_cancelled_before_it_began_leaves_nothing_behind(broker: EmbeddedBroker, topic: str) -> None:
    """Records and their drop reach the loop in one go: so the pump is made and cancelled at once."""
    with Producer[bytes, bytes](config(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        told = Told()

        async def send_and_drop() -> None:
            producer.send(topic, b"dropped", on_delivery=told)
            await producer._drop_handed()

        producer._loop.run(send_and_drop())
        assert [type(error) for _, error in told.calls] == [ApiError]
        producer.abort_transaction()
        producer.begin_transaction()
        assert producer.send(topic, b"kept").result(10).topic == topic
        producer.commit_transaction()
    assert producer._handed_bytes == 0


def test_closing_now_tells_each_record_once(broker: EmbeddedBroker, topic: str) -> None:
    for _ in range(10):
        producer = Producer[bytes, bytes](config(broker, linger_ms=10_000))
        assert producer.partitions_for(topic)
        told = [Told() for _ in range(5)]
        futures = [producer.send(topic, b"x", on_delivery=each) for each in told]
        producer.close(0)
        assert [each.calls for each in told] == [[(None, future.exception(0))] for future in futures]


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


def test_the_longest_time_that_java_can_say_is_waited(broker: EmbeddedBroker, topic: str) -> None:
    go_on = threading.Event()
    with Producer[bytes, bytes](config(broker, buffer_memory=100_000, max_block_ms=MAX_LONG)) as producer:
        producer._loop.call_soon(go_on.wait)
        producer.send(topic, bytes(99_900))
        # Who waits lets go of the lock; then there is room.
        letting_in = threading.Thread(target=_when_somebody_waits, args=(producer, go_on.set))
        letting_in.start()
        try:
            future = producer.send(topic, b"x")
        finally:
            go_on.set()
            letting_in.join()
        assert future.result(10).topic == topic


def _when_somebody_waits(producer: Producer[bytes, bytes], act: Callable[[], None]) -> None:
    patience = threading.Event()
    for _ in range(10_000):
        with producer._lock:
            if producer._waiting_count:
                break
        patience.wait(0.001)
    act()


def test_an_interrupted_wake_up_leaves_no_queue_that_nobody_deals(
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
        assert producer._handed_bytes == 0


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


def test_close_in_a_callback_is_refused_and_closes_nothing(broker: EmbeddedBroker, topic: str) -> None:
    refused: list[ClientStateError] = []
    is_told = threading.Event()
    producer = Producer[bytes, bytes](config(broker))

    def on_delivery(metadata: RecordMetadata | None, error: ApiError | None) -> None:
        try:
            producer.close()
        except ClientStateError as raised:
            refused.append(raised)
        is_told.set()

    producer.send(topic, b"x", on_delivery=on_delivery)
    assert is_told.wait(10)
    assert "callback" in str(refused[0])
    producer.send(topic, b"still open").result(10)
    producer.close()
    assert connection_count(producer) == 0
    with pytest.raises(ClientStateError, match="closed"):
        producer.send(topic, b"x")


def test_an_interrupted_close_can_be_called_again(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted while a record waits for its topic's metadata."""
    broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="never", times=None)
    told = Told()
    producer = Producer[bytes, bytes](config(broker))
    loop = producer._loop

    def interrupted(work: Any) -> None:
        closing = loop.submit(work)
        loop.submit(_nothing()).result(10)
        assert not closing.done()
        closing.cancel()
        raise KeyboardInterrupt

    try:
        future = producer.send("never", b"x", on_delivery=told)
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
    assert told.calls == [(None, future.exception(0))]
    assert connection_count(producer) == 0
    producer.close()


async def _nothing() -> None: ...
