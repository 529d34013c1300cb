"""The consumer without asyncio, against a running broker."""

import re
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator

import pytest

from rookery.base.types import TopicPartition
from rookery.client import ConsumerRecord, OffsetAndMetadata, RebalanceListener
from rookery.client.errors import ClientStateError, WakeupError
from rookery.client.sync import Consumer, Producer
from rookery.testing import EmbeddedBroker

BytesConsumer = Consumer[bytes, bytes]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """Create a topic of two partitions, with ten records each."""
    name = str(request.node.name)[:100].replace("[", "-").replace("]", "")
    broker.create_topic(name, partitions=2)
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


def config(broker: EmbeddedBroker, group: str | None = None, **more: object) -> dict[str, object]:
    given = {key.replace("_", "."): value for key, value in more.items()}
    of_group = {} if group is None else {"group.id": group, "enable.auto.commit": False}
    return {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"} | of_group | given


def drain(consumer: BytesConsumer, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    found: list[ConsumerRecord[bytes, bytes]] = []
    while len(found) < count:
        found += consumer.poll(5.0)
    return found


def test_polls_and_positions(broker: EmbeddedBroker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with BytesConsumer(config(broker)) as consumer:
        consumer.assign([first, second])
        assert consumer.assignment() == {first, second}
        assert len(drain(consumer, 20)) == 20
        assert (consumer.position(first), consumer.lag(first)) == (10, 0)
        consumer.seek(first, 8)
        assert [record.offset for record in drain(consumer, 2)] == [8, 9]
        consumer.seek_to_beginning()
        consumer.pause(second)
        assert consumer.paused() == {second}
        assert {record.partition for record in drain(consumer, 10)} == {0}
        consumer.resume(second)
        assert {record.partition for record in drain(consumer, 10)} == {1}
        consumer.seek_to_timestamp(0)
        assert len(drain(consumer, 20)) == 20
        consumer.seek_to_end(first)
        assert consumer.position(first) == 10
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first]) == {first: 10}
        found = consumer.offsets_for_times({first: 0})[first]
        assert found is not None
        assert found.offset == 0
        assert [partition.index for partition in consumer.partitions_for(topic)] == [0, 1]
        assert topic in consumer.list_topics()


def test_iteration_returns_records_one_by_one(broker: EmbeddedBroker, topic: str) -> None:
    """A commit in the middle covers the records that the loop has seen, and no later record is lost."""
    seen: list[ConsumerRecord[bytes, bytes]] = []
    with BytesConsumer(config(broker, topic)) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            seen.append(record)
            if len(seen) == 5:
                consumer.commit()
                break
        last = seen[-1]
        tp = TopicPartition(topic, last.partition)
        assert consumer.committed([tp])[tp].offset == last.offset + 1
        assert consumer.position(tp) == last.offset + 1
        for record in consumer:
            seen.append(record)
            if len(seen) == 20:
                break
    assert len({(record.partition, record.offset) for record in seen}) == 20


def test_closing_in_the_middle_of_an_iteration_commits_what_was_seen(broker: EmbeddedBroker, topic: str) -> None:
    settings = config(broker, topic, enable_auto_commit=True)
    seen: list[ConsumerRecord[bytes, bytes]] = []
    with BytesConsumer(settings) as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            seen.append(record)
            if len(seen) == 7:
                break
    with BytesConsumer(settings) as consumer:
        consumer.subscribe([topic])
        seen += drain(consumer, 13)
    assert len(seen) == len({(record.partition, record.offset) for record in seen}) == 20


class Recorder(RebalanceListener):
    def __init__(self, consumer: BytesConsumer) -> None:
        self.consumer = consumer
        self.threads: set[int] = set()
        self.events: list[str] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        self.events.append("assigned")
        for tp in partitions:
            self.consumer.seek(tp, 5)
            assert self.consumer.position(tp) == 5

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        self.events.append("revoked")
        self.consumer.commit()


@pytest.mark.parametrize("how", ["unsubscribe", "close"])
def test_listeners_run_in_the_polling_thread_and_may_call_the_consumer(
    broker: EmbeddedBroker, topic: str, how: str
) -> None:
    with BytesConsumer(config(broker, topic)) as consumer:
        listener = Recorder(consumer)
        consumer.subscribe(re.compile(re.escape(topic)), listener)
        assert {record.offset for record in drain(consumer, 10)} == set(range(5, 10))
        assert consumer.subscription() == {topic}
        if how == "unsubscribe":
            consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
    assert listener.events == ["assigned", "revoked"]
    assert listener.threads == {threading.get_ident()}
    with BytesConsumer(config(broker, topic)) as consumer:
        parts = [TopicPartition(topic, index) for index in range(2)]
        assert [offset.offset for offset in consumer.committed(parts).values()] == [10, 10]


class Failing(RebalanceListener):
    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        raise ZeroDivisionError


def test_exceptions_of_a_listener_propagate_to_the_poll(broker: EmbeddedBroker, topic: str) -> None:
    with BytesConsumer(config(broker, topic)) as consumer:
        consumer.subscribe([topic], Failing())
        with pytest.raises(ZeroDivisionError):
            drain(consumer, 1)


def test_wakeup_from_another_thread(broker: EmbeddedBroker, topic: str) -> None:
    with BytesConsumer(config(broker)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        drain(consumer, 10)
        timer = threading.Timer(0.05, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(30.0)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(iter(consumer))
        consumer.seek_to_beginning()
        records = iter(consumer)
        assert next(records).offset == 0
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(records)
        assert [record.offset for record in drain(consumer, 9)] == list(range(1, 10))


class SecondThread(RebalanceListener):
    """Calls the consumer from another thread while the poll waits for this listener."""

    def __init__(self, consumer: BytesConsumer) -> None:
        self.consumer = consumer
        self.errors: list[ClientStateError] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        thread = threading.Thread(target=self.call_commit)
        thread.start()
        thread.join()

    def call_commit(self) -> None:
        try:
            self.consumer.commit()
        except ClientStateError as error:
            self.errors.append(error)


def test_a_call_from_a_second_thread_raises(broker: EmbeddedBroker, topic: str) -> None:
    with BytesConsumer(config(broker, topic)) as consumer:
        listener = SecondThread(consumer)
        consumer.subscribe([topic], listener)
        drain(consumer, 1)
    assert ["another thread" in str(error) for error in listener.errors] == [True]


def test_commits(broker: EmbeddedBroker, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    is_committed = threading.Event()
    with BytesConsumer(config(broker, topic)) as consumer:
        consumer.assign([tp])
        consumer.commit({tp: 3})
        assert consumer.committed([tp])[tp].offset == 3
        consumer.commit_async({tp: OffsetAndMetadata(4, "note")}, lambda offsets, error: is_committed.set())
        assert is_committed.wait(10)
        assert consumer.committed([tp])[tp].metadata == "note"
        assert consumer.group_metadata().group_id == topic
        with pytest.raises(ClientStateError):
            consumer.enforce_rebalance()
        assert consumer.metrics()
    consumer.close()
    with pytest.raises(ClientStateError, match="closed"):
        consumer.poll()


INTERRUPTED = """
import signal, sys, threading
from rookery.client import TopicPartition
from rookery.client.sync import Consumer

interrupts = 0

def interrupt(number, frame):
    # Only while a poll waits: elsewhere, an interrupt may lose records in this program itself.
    global interrupts
    while frame is not None:
        if frame.f_code.co_name == "wait" and "listener_calls" in frame.f_code.co_filename:
            interrupts += 1
            raise KeyboardInterrupt
        frame = frame.f_back

def tick():
    while interrupts < 20:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        threading.Event().wait(0.003)

signal.signal(signal.SIGUSR1, interrupt)
seen = []
with Consumer({"bootstrap.servers": sys.argv[1], "auto.offset.reset": "earliest", "max.poll.records": 1}) as consumer:
    consumer.assign([TopicPartition(sys.argv[2], 0)])
    threading.Thread(target=tick).start()
    while len(seen) < 10 or interrupts < 20:
        try:
            seen += [record.offset for record in consumer.poll(0.1)]
        except KeyboardInterrupt:
            pass
print(seen == list(range(10)))
"""


def test_an_interrupt_loses_no_records(broker: EmbeddedBroker, topic: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, broker.bootstrap_servers, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_columns(broker: EmbeddedBroker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with BytesConsumer(config(broker)) as consumer:
        assert consumer.read_arrow(topic).num_rows == 20
        assert consumer.read_arrow(topic, {0: 3}, {0: 7}).column("offset").to_pylist() == [3, 4, 5, 6]
        assert sum(batch.num_rows for batch in consumer.iterate_arrow(topic)) == 20
        pieces = consumer.iterate_arrow(topic)
        assert next(pieces).num_rows
        consumer.assign([first])
        assert next(iter(consumer)).offset == 0
        rows: list[int] = []
        while len(rows) < 9:
            rows += consumer.poll_arrow(5.0).column("offset").to_pylist()
        assert rows == list(range(1, 10))
        consumer.assign([second])
        assert consumer.poll_arrow(30.0).num_rows
        consumer._unreturned_columns = consumer.read_arrow(topic, {1: 4}, {1: 6})
        assert consumer.position(second) == 4
