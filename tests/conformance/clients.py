"""The Python clients with one interface, for tests in which any of them writes and any other reads.

None of them joins a group: partitions are assigned manually.
"""

import asyncio
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from tests.conformance.own_client import Rookery, RookeryColumns
from tests.conformance.samples import Sample

TIMEOUT_S = 30


class ForeignClient(Protocol):
    name: str

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        """Write to partition 0 and wait for the acknowledgements; returns the offsets."""
        ...

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        """Read `count` records of partition 0 from its beginning."""
        ...


class Confluent:
    """confluent-kafka, which is based on librdkafka."""

    name = "confluent"

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", "linger.ms": 20}
        )
        offsets: list[int] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

        for sample in samples:
            producer.produce(
                topic,
                sample.value,
                sample.key,
                partition=0,
                timestamp=sample.timestamp_ms,
                headers=list(sample.headers),
                on_delivery=delivered,
            )
        assert producer.flush(TIMEOUT_S) == 0
        return offsets

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        consumer = confluent_consumer(bootstrap)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        try:
            return [confluent_sample(message) for message in confluent_read(consumer, count)]
        finally:
            consumer.close()


def confluent_consumer(bootstrap: str, **settings: Any) -> confluent_kafka.Consumer:
    """Return a consumer for manual assignment; librdkafka needs a group name even then."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
        | {"log_level": 3}
    )


def confluent_read(consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    messages: list[confluent_kafka.Message] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), TIMEOUT_S)
        assert batch, f"{len(messages)} of {count} records, then none for {TIMEOUT_S} s"
        for message in batch:
            error = message.error()
            assert error is None, error
        messages += batch
    return messages


def confluent_sample(message: confluent_kafka.Message) -> Sample:
    headers: Any = message.headers()
    return Sample(message.key(), message.value(), message.timestamp()[1], tuple(headers or ()))


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=sample.value,
                    key=sample.key,
                    partition=0,
                    timestamp_ms=sample.timestamp_ms,
                    headers=list(sample.headers),
                )
                for sample in samples
            ]
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(timeout=TIMEOUT_S)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        try:
            return [python_sample(record) for record in kafka_python_read(consumer, count)]
        finally:
            consumer.close()


def kafka_python_read(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(records))
        assert polled, f"{len(records)} of {count} records, then none for {TIMEOUT_S} s"
        records += [record for batch in polled.values() for record in batch]
    return records


def python_sample(record: Any) -> Sample:
    """Return the sample of a record of kafka-python or aiokafka."""
    headers = tuple((name, bytes(value)) for name, value in record.headers)
    return Sample(record.key, record.value, record.timestamp, headers)


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        return asyncio.run(self._produce(bootstrap, topic, samples, codec))

    async def _produce(self, bootstrap: str, topic: str, samples: list[Sample], codec: str) -> list[int]:
        compression = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, acks="all", linger_ms=20
        ) as producer:
            futures = [
                await producer.send(
                    topic,
                    value=sample.value,
                    key=sample.key,
                    partition=0,
                    timestamp_ms=sample.timestamp_ms,
                    headers=list(sample.headers),
                )
                for sample in samples
            ]
            done = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
            return [metadata.offset for metadata in done]

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        return asyncio.run(self._consume(bootstrap, topic, count))

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None) as consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [python_sample(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)) for _ in range(count)]


CLIENTS: tuple[ForeignClient, ...] = (Confluent(), AioKafka(), KafkaPython(), Rookery(), RookeryColumns())
