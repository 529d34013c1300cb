"""Transactional producers, group consumers and readers of the foreign clients with one interface.

A scenario of `test_transactions` is written once and runs with every client. What only one client has (its names for
errors, its admin calls) is tested in that client's module. The Java clients are in `java_driver`.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, ClassVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import KafkaError, KafkaException

from tests.conformance.clients import TIMEOUT_S, confluent_consumer
from tests.conformance.interfaces import READ_COMMITTED, FencedError, Partition, Source, Transactor
from tests.conformance.members import HEARTBEAT_MS, SESSION_MS
from tests.conformance.own_transactor import RookerySource, RookeryTransactor, read_with_rookery


class ConfluentSource:
    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        settings = {"group_id": group_id, "auto_offset_reset": "earliest", "isolation_level": READ_COMMITTED}
        self.group_id = group_id
        self.consumer = confluent_consumer(bootstrap, **settings)
        self.consumer.subscribe([topic])

    def take(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < count:
            message = self.consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(values)} of {count} records, then none for {TIMEOUT_S} s"
            # While the broker is down, librdkafka returns messages with an error and without a record.
            if message.error() is None:
                values.append(message.value() or b"")
        return values

    def positions(self) -> dict[Partition, int]:
        found = self.consumer.position(self.consumer.assignment())
        return {(item.topic, item.partition): item.offset for item in found if item.offset >= 0}

    def close(self) -> None:
        self.consumer.close()


class ConfluentTransactor:
    _FENCED: ClassVar = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> None:
        settings = {"transaction.timeout.ms": timeout_ms, "compression.type": codec, "linger.ms": 20}
        quick = {"message.timeout.ms": 0, "reconnect.backoff.max.ms": 200, "log_level": 0}
        name = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        self.producer = confluent_kafka.Producer(name | settings | quick)
        self._call(self.producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: confluent_kafka.Message) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            self._call(self.producer.produce, topic, value, None, partition, on_delivery=delivered)
        self._call(self.producer.flush, TIMEOUT_S)
        if failed:
            self._raise(KafkaException(failed[0]))

    def send_offsets(self, offsets: Mapping[Partition, int], source: ConfluentSource) -> None:
        positions = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        metadata = source.consumer.consumer_group_metadata()
        self._call(self.producer.send_offsets_to_transaction, positions, metadata, TIMEOUT_S)

    def commit(self) -> None:
        self._call(self.producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        self.producer.purge()
        del self.producer

    def _call(self, function: Any, *arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except KafkaException as error:
            self._raise(error)
        except SystemError as error:
            # confluent-kafka raises fatal errors in the next delivery callback.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._raise(error.__cause__)

    def _raise(self, error: KafkaException) -> None:
        if error.args[0].code() in self._FENCED:
            raise FencedError(str(error)) from error
        raise error


class KafkaPythonSource:
    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=READ_COMMITTED,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    def take(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < count:
            polled = self.consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(values))
            assert polled, f"{len(values)} of {count} records, then none for {TIMEOUT_S} s"
            values += [record.value for batch in polled.values() for record in batch]
        return values

    def positions(self) -> dict[Partition, int]:
        return {(item.topic, item.partition): self.consumer.position(item) for item in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class KafkaPythonTransactor:
    _FENCED: ClassVar = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            reconnect_backoff_max_ms=200,
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        futures = [self.producer.send(topic, value=value, partition=partition) for value in values]
        for future in futures:
            self._call(future.get, TIMEOUT_S)

    def send_offsets(self, offsets: Mapping[Partition, int], source: KafkaPythonSource) -> None:
        positions = {
            kafka.TopicPartition(*partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self._call(self.producer.send_offsets_to_transaction, positions, source.consumer.group_metadata())

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=0)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except self._FENCED as error:
            raise FencedError(str(error)) from error


class _Loop:
    """An event loop in a thread, so that aiokafka's senders and heartbeats run between two calls of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, TIMEOUT_S), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class AioKafkaSource:
    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self._loop = _Loop()
        self._loop.run(self._start(bootstrap, topic))

    async def _start(self, bootstrap: str, topic: str) -> None:
        self.consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=READ_COMMITTED,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await self.consumer.start()

    def take(self, count: int) -> list[bytes]:
        return [self._loop.run(self.consumer.getone()).value for _ in range(count)]

    def positions(self) -> dict[Partition, int]:
        return {
            (item.topic, item.partition): self._loop.run(self.consumer.position(item))
            for item in self.consumer.assignment()
        }

    def close(self) -> None:
        self._loop.run(self.consumer.stop())
        self._loop.close()


class AioKafkaTransactor:
    _FENCED: ClassVar = (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch)

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> None:
        self._loop = _Loop()
        self._loop.run(self._start(bootstrap, transactional_id, timeout_ms, codec))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int, codec: str) -> None:
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            retry_backoff_ms=50,
        )
        await self.producer.start()

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        self._run(self._send(topic, partition, values))

    async def _send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        await asyncio.gather(*[await self.producer.send(topic, value=value, partition=partition) for value in values])

    def send_offsets(self, offsets: Mapping[Partition, int], source: AioKafkaSource) -> None:
        positions = {aiokafka.TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._run(self.producer.send_offsets_to_transaction(positions, source.group_id))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._loop.run(self.producer.stop())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._loop.run(work)
        except self._FENCED as error:
            raise FencedError(str(error)) from error


_WAIT_MS = 10


def read_with_confluent(bootstrap: str, topic: str, partition: int = 0, isolation: str = READ_COMMITTED) -> list[bytes]:
    consumer = confluent_consumer(
        bootstrap, isolation_level=isolation, enable_partition_eof=True, fetch_wait_max_ms=_WAIT_MS
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(values)} records, then neither more nor the end"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def read_with_kafka_python(
    bootstrap: str, topic: str, partition: int = 0, isolation: str = READ_COMMITTED
) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, isolation_level=isolation, fetch_max_wait_ms=_WAIT_MS
    )
    place = kafka.TopicPartition(topic, partition)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    values: list[bytes] = []
    try:
        while consumer.position(place) < end:
            polled = consumer.poll(timeout_ms=100)
            values += [record.value for record in polled.get(place, ())]
        return values
    finally:
        consumer.close()


def read_with_aiokafka(bootstrap: str, topic: str, partition: int = 0, isolation: str = READ_COMMITTED) -> list[bytes]:
    async def read() -> list[bytes]:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, isolation_level=isolation, fetch_max_wait_ms=_WAIT_MS
        ) as consumer:
            place = aiokafka.TopicPartition(topic, partition)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            values: list[bytes] = []
            while await consumer.position(place) < end:
                polled = await consumer.getmany(place, timeout_ms=100)
                values += [record.value for record in polled.get(place, ())]
            return values

    return asyncio.run(asyncio.wait_for(read(), TIMEOUT_S))


PYTHON_CLIENTS: dict[str, tuple[type[Transactor], type[Source]]] = {
    "confluent": (ConfluentTransactor, ConfluentSource),
    "aiokafka": (AioKafkaTransactor, AioKafkaSource),
    "kafka-python": (KafkaPythonTransactor, KafkaPythonSource),
    "rookery": (RookeryTransactor, RookerySource),
}
READERS = (read_with_confluent, read_with_kafka_python, read_with_aiokafka, read_with_rookery)
