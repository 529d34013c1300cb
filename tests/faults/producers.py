"""Producers that write while their broker is killed, and a reader of the result."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import aiokafka
import confluent_kafka
from confluent_kafka import TopicPartition

from rookery.base.loop_thread import LoopThread
from rookery.client import ApiError, RecordMetadata
from rookery.client.sync import Producer

TIMEOUT_S = 60


class Stored(NamedTuple):
    """A record as a producer sent it or a consumer read it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class SteadyProducer:
    """An idempotent producer that writes continuously and keeps the acknowledged records.

    Its values begin with its name and the index. A subclass has the client.
    """

    def __init__(self, bootstrap: str, topic: str, name: str, *, partitions: int = 1, keys: int = 1_000) -> None:
        self.name = name
        self.acknowledged: list[Stored] = []
        self.failures: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._keys = keys
        self._stop = threading.Event()
        self._open(bootstrap)
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the acknowledgements of records in flight, then end."""
        self._stop.set()
        self._thread.join(TIMEOUT_S * 2)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        index = 0
        while not self._stop.is_set():
            # Large enough that segments roll between two kills, and that batches are in flight at a kill.
            value = f"{self.name}:{index}:".encode().ljust(1_500, b".")
            key = f"{self.name}-{index % self._keys}".encode()
            if self._send(key, value, index % self._partitions):
                index += 1
            if index % 20 == 0:
                # A few megabytes per second, so that the disk does not fill up during a long run.
                self._stop.wait(0.004)
        self._finish()

    def _open(self, bootstrap: str) -> None:
        raise NotImplementedError

    def _send(self, key: bytes, value: bytes, partition: int) -> bool:
        """Send a record; returns False if the client's buffer is full."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Wait for the records in flight."""
        raise NotImplementedError


class SteadyConfluent(SteadyProducer):
    def _open(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 5_000,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def _send(self, key: bytes, value: bytes, partition: int) -> bool:
        self._producer.poll(0)
        try:
            self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._delivered)
        except BufferError:
            self._producer.poll(0.01)
            return False
        return True

    def _finish(self) -> None:
        if self._producer.flush(TIMEOUT_S):
            self.failures.append("some records were not acknowledged after the last restart")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged.append(_stored(message))


class SteadyRookery(SteadyProducer):
    """Rookery's client; each producer uses another compression codec."""

    _CODECS: ClassVar = {"first": "lz4", "second": "zstd"}

    def _open(self, bootstrap: str) -> None:
        self._producer: Producer[bytes, bytes] = Producer(
            {
                "bootstrap.servers": bootstrap,
                "max.in.flight.requests.per.connection": 5,
                "compression.type": self._CODECS.get(self.name, "none"),
                "linger.ms": 2,
                "delivery.timeout.ms": 300_000,
                "buffer.memory": 5_000_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )

    def _send(self, key: bytes, value: bytes, partition: int) -> bool:
        def delivered(metadata: RecordMetadata | None, error: ApiError | None) -> None:
            if metadata is None:
                self.failures.append(str(error))
            else:
                self.acknowledged.append(Stored(metadata.partition, metadata.offset, key, value))

        self._producer.send(self._topic, value, key=key, partition=partition, on_delivery=delivered)
        return True

    def _finish(self) -> None:
        try:
            self._producer.flush(TIMEOUT_S)
        except ApiError as error:
            self.failures.append(str(error))
        self._producer.close(0)


class SteadyAiokafka(SteadyProducer):
    """aiokafka, on an event loop in a thread of its own."""

    def _open(self, bootstrap: str) -> None:
        self._loop = LoopThread(f"{self.name}-loop", asyncio.new_event_loop)
        self._producer = self._loop.submit(self._connect(bootstrap)).result(TIMEOUT_S)

    async def _connect(self, bootstrap: str) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2, request_timeout_ms=120_000
        )
        await producer.start()
        return producer

    def _send(self, key: bytes, value: bytes, partition: int) -> bool:
        # One at a time: several that wait for space in the buffer would go on in any order.
        self._loop.submit(self._buffer(key, value, partition)).result()
        return True

    async def _buffer(self, key: bytes, value: bytes, partition: int) -> None:
        def delivered(done: "asyncio.Future[Any]") -> None:
            error = done.exception()
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged.append(Stored(partition, done.result().offset, key, value))

        (await self._producer.send(self._topic, value, key, partition)).add_done_callback(delivered)

    def _finish(self) -> None:
        try:
            self._loop.submit(self._producer.flush()).result(TIMEOUT_S)
        except TimeoutError:
            self.failures.append("some records were not acknowledged after the last restart")
        self._loop.submit(self._producer.stop()).result(TIMEOUT_S)
        self._loop.stop()


STEADY_PRODUCERS: dict[str, type[SteadyProducer]] = {"confluent": SteadyConfluent, "rookery": SteadyRookery}


def _stored(message: confluent_kafka.Message) -> Stored:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Stored(partition, offset, message.key() or b"", message.value() or b"")


def index_of(record: Stored) -> int:
    return int(record.value.split(b":")[1])


def wait_for_acknowledgements(producers: Sequence[SteadyProducer], more: int) -> None:
    goals = [len(producer.acknowledged) + more for producer in producers]
    deadline = time.monotonic() + TIMEOUT_S
    while any(len(producer.acknowledged) < goal for producer, goal in zip(producers, goals, strict=True)):
        assert time.monotonic() < deadline, "the producers make no progress"
        assert not any(producer.failures for producer in producers), [producer.failures for producer in producers]
        time.sleep(0.005)


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterator[Stored]:
    """Yield the records of a partition up to its end, in order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True, "enable.auto.commit": False}
    )
    position, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    consumer.assign([TopicPartition(topic, partition, position)])
    deadline = time.monotonic() + TIMEOUT_S
    while position < end:
        assert time.monotonic() < deadline, f"no record is returned between {position} and {end}"
        for message in consumer.consume(5_000, 0.2):
            error = message.error()
            assert error is None, error
            yield _stored(message)
        # A compacted log may have gaps, also at its end: check the position, not the last record.
        position = max(position, consumer.position([TopicPartition(topic, partition)])[0].offset)
    consumer.close()
