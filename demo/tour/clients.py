"""Three clients of other projects, written for Apache Kafka."""

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

TIMEOUT_S = 30


def create_topic(address: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(TIMEOUT_S)


def list_offset(address: str, topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return int(admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset)


def produce_with_confluent(address: str, topic: str, values: list[bytes], codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
    )
    failures: list[confluent_kafka.KafkaError] = []

    def delivered(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    if producer.flush(TIMEOUT_S) or failures:
        raise RuntimeError(f"not everything was delivered: {failures[:3]}")


def produce_with_aiokafka(address: str, topic: str, values: list[bytes], codec: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, compression_type=codec, linger_ms=5
        ) as producer:
            await asyncio.gather(*[await producer.send(topic, value, partition=1) for value in values])

    asyncio.run(run())


def produce_with_kafka_python(address: str, topic: str, values: list[bytes], codec: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address, compression_type=codec, linger_ms=5)
    futures = [producer.send(topic, value, partition=2) for value in values]
    for future in futures:
        future.get(TIMEOUT_S)
    producer.close(timeout=TIMEOUT_S)


def read_with_confluent(address: str, topic: str, partition: int = 0, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of each record from `start` to the current end."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    consumer.assign([TopicPartition(topic, partition, max(start, first))])
    position = max(start, first)
    while position < end:
        messages = consumer.consume(10_000, 0.2)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            offset = message.offset() or 0
            yield offset, message.value() or b""
        # A compacted log has gaps, also at its end: the loop ends by the position and not by the last record.
        position = max(position, consumer.position([TopicPartition(topic, partition)])[0].offset)
    consumer.close()


def read_with_aiokafka(address: str, topic: str, partition: int, count: int) -> list[bytes]:
    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=address, group_id=None) as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, partition)])
            consumer.seek(aiokafka.TopicPartition(topic, partition), 0)
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(count)]

    return asyncio.run(run())


def read_with_kafka_python(address: str, topic: str, partition: int, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=None)
    consumer.assign([kafka.TopicPartition(topic, partition)])
    consumer.seek(kafka.TopicPartition(topic, partition), 0)
    values: list[bytes] = []
    while len(values) < count:
        polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        if not polled:
            break
        values += [record.value for records in polled.values() for record in records]
    consumer.close()
    return values
