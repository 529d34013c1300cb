"""Loads of the Python clients that the benchmark compares, each with its fastest interface.

The asyncio clients run on uvloop. Every consumer reads the value of every record, and every producer sends the same
values, which are created before the measurement.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from typing import Any

import uvloop

from bench.librdkafka import CONSUMER_SETTINGS
from bench.load import Measurements, await_go, run_action
from bench.payload import event_text

BATCH_BYTES = 500_000
LINGER_MS = 5
_VALUES = 1000
_CHUNK_ROWS = 100_000
_POLL_RECORDS = 10_000
_POLL_S = 1.0
_FLUSH_S = 120.0
_STALLED_POLLS = 30

Values = list[bytes]
Report = Callable[[], None]


def _values(record_bytes: int) -> Values:
    text = event_text(record_bytes * _VALUES)
    return [text[index * record_bytes : (index + 1) * record_bytes] for index in range(_VALUES)]


class Stopwatch:
    """The measured part: seconds that passed, and processor seconds of this process."""

    def __init__(self) -> None:
        await_go()
        self._started_s, self._cpu_s = time.perf_counter(), time.process_time()

    def stop(self, records: int, record_bytes: int) -> Measurements:
        elapsed_s, cpu_s = time.perf_counter() - self._started_s, time.process_time() - self._cpu_s
        return {"elapsed_s": elapsed_s, "cpu_s": cpu_s, "records": records, "bytes": records * record_bytes}


def produce_records(
    *, client: str, bootstrap: str, topic: str, partitions: int, record_bytes: int, records: int
) -> Measurements:
    values = list(islice(cycle(_values(record_bytes)), records))
    return _PRODUCERS[client](bootstrap, topic, values)


def consume_records(
    *, client: str, bootstrap: str, topic: str, partitions: int, record_bytes: int, records: int
) -> Measurements:
    return _CONSUMERS[client](bootstrap, topic, partitions, records, record_bytes)


def produce_columns(
    *, client: str, bootstrap: str, topic: str, partitions: int, record_bytes: int, records: int
) -> Measurements:
    import pyarrow as pa

    values = list(islice(cycle(_values(record_bytes)), min(records, _CHUNK_ROWS)))
    chunk = pa.record_batch({"value": pa.array(values, pa.binary())})

    async def run() -> Measurements:
        from rookery.client import Producer

        async with Producer(_ours(bootstrap)) as producer:
            await producer.partitions_for(topic)
            (await (await producer.send_arrow(chunk.slice(0, 0), topic)))
            stopwatch = Stopwatch()
            left = records
            while left:
                rows = min(left, chunk.num_rows)
                await producer.send_arrow(chunk.slice(0, rows), topic)
                left -= rows
            await producer.flush()
            return stopwatch.stop(records, record_bytes)

    return uvloop.run(run())


def consume_columns(
    *, client: str, bootstrap: str, topic: str, partitions: int, record_bytes: int, records: int
) -> Measurements:
    import pyarrow.compute as pc

    async def run() -> Measurements:
        from rookery.base.types import TopicPartition
        from rookery.client import Consumer

        async with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            await consumer.read_arrow(topic, end=0)
            stopwatch = Stopwatch()
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            seen = size = 0
            while seen < records:
                batch = await consumer.poll_arrow(_POLL_S)
                seen += batch.num_rows
                size += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
            _check(seen, size, records, record_bytes)
            return stopwatch.stop(seen, record_bytes)

    return uvloop.run(run())


def _check(seen: int, size: int, records: int, record_bytes: int) -> None:
    if (seen, size) != (records, records * record_bytes):
        raise RuntimeError(f"{seen} records of {size} bytes were read instead of {records}")


def _ours(bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "acks": "all", "batch.size": BATCH_BYTES, "linger.ms": LINGER_MS}


def _produce_rookery(bootstrap: str, topic: str, values: Values) -> Measurements:
    async def run() -> Measurements:
        from rookery.client import Producer

        async with Producer(_ours(bootstrap)) as producer:
            await producer.partitions_for(topic)
            stopwatch = Stopwatch()
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
            return stopwatch.stop(len(values), len(values[0]))

    return uvloop.run(run())


def _produce_aiokafka(bootstrap: str, topic: str, values: Values) -> Measurements:
    async def run() -> Measurements:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        await producer.start()
        await producer.partitions_for(topic)
        stopwatch = Stopwatch()
        for value in values:
            await producer.send(topic, value)
        await producer.flush()
        measured = stopwatch.stop(len(values), len(values[0]))
        await producer.stop()
        return measured

    return uvloop.run(run())


def _produce_confluent(bootstrap: str, topic: str, values: Values) -> Measurements:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, timeout=_FLUSH_S)
    stopwatch = Stopwatch()
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % _POLL_RECORDS:
            producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise RuntimeError("some records were not delivered")
    return stopwatch.stop(len(values), len(values[0]))


def _produce_kafka_python(bootstrap: str, topic: str, values: Values) -> Measurements:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )
    producer.partitions_for(topic)
    stopwatch = Stopwatch()
    for value in values:
        producer.send(topic, value)
    producer.flush(_FLUSH_S)
    measured = stopwatch.stop(len(values), len(values[0]))
    producer.close()
    return measured


async def _read_all(poll: Callable[[], Awaitable[Values]], records: int, record_bytes: int) -> Measurements:
    stopwatch = Stopwatch()
    seen = size = stalled = 0
    while seen < records:
        values = await poll()
        seen += len(values)
        size += sum(map(len, values))
        stalled = 0 if values else stalled + 1
        if stalled > _STALLED_POLLS:
            raise RuntimeError(f"no record was returned after {seen} of {records} records")
    _check(seen, size, records, record_bytes)
    return stopwatch.stop(seen, record_bytes)


def _consume_rookery(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> Measurements:
    async def run() -> Measurements:
        from rookery.base.types import TopicPartition
        from rookery.client import Consumer

        settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "max.poll.records": _POLL_RECORDS}
        async with Consumer(settings) as consumer:
            await consumer.partitions_for(topic)
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])

            async def poll() -> Values:
                return [record.value or b"" for record in await consumer.poll(_POLL_S)]

            return await _read_all(poll, records, record_bytes)

    return uvloop.run(run())


def _consume_aiokafka(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> Measurements:
    async def run() -> Measurements:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])

        async def poll() -> Values:
            found = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=_POLL_RECORDS)
            return [record.value for batch in found.values() for record in batch]

        measured = await _read_all(poll, records, record_bytes)
        await consumer.stop()
        return measured

    return uvloop.run(run())


def _consume_confluent(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> Measurements:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {**CONSUMER_SETTINGS, "bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.list_topics(topic, timeout=_FLUSH_S)

    async def poll() -> Values:
        return [_value(message) for message in consumer.consume(_POLL_RECORDS, _POLL_S)]

    # The client's threads start to fetch with the assignment.
    async def assign_and_poll() -> Values:
        if not consumer.assignment():
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        return await poll()

    measured = asyncio.run(_read_all(assign_and_poll, records, record_bytes))
    consumer.close()
    return measured


def _value(message: Any) -> bytes:
    if message.error():
        raise RuntimeError(str(message.error()))
    value: bytes = message.value()
    return value


def _consume_kafka_python(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> Measurements:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, index) for index in range(partitions)])

    async def poll() -> Values:
        found = consumer.poll(timeout_ms=int(_POLL_S * 1000), max_records=_POLL_RECORDS)
        return [record.value for batch in found.values() for record in batch]

    measured = asyncio.run(_read_all(poll, records, record_bytes))
    consumer.close()
    return measured


_PRODUCERS = {
    "rookery": _produce_rookery,
    "confluent-kafka": _produce_confluent,
    "aiokafka": _produce_aiokafka,
    "kafka-python": _produce_kafka_python,
}
_CONSUMERS = {
    "rookery": _consume_rookery,
    "confluent-kafka": _consume_confluent,
    "aiokafka": _consume_aiokafka,
    "kafka-python": _consume_kafka_python,
}

if __name__ == "__main__":
    run_action(
        {
            "produce_records": produce_records,
            "consume_records": consume_records,
            "produce_columns": produce_columns,
            "consume_columns": consume_columns,
        }
    )
