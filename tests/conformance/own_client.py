"""Rookery's client with the interface of the foreign ones: record by record, and in columns."""

import asyncio
from typing import Any

import pyarrow as pa

from rookery.client import Consumer, Producer, TopicPartition
from tests.conformance.samples import Sample

TIMEOUT_S = 30
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Rookery:
    name = "rookery"

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        async def run() -> list[int]:
            async with _producer(bootstrap, codec) as producer:
                futures = [
                    await producer.send(
                        topic,
                        sample.value,
                        key=sample.key,
                        partition=0,
                        timestamp_ms=sample.timestamp_ms,
                        headers=sample.headers,
                    )
                    for sample in samples
                ]
                return [(await future).offset for future in futures]

        return asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        async def run() -> list[Sample]:
            async with _consumer(bootstrap, topic) as consumer, asyncio.timeout(TIMEOUT_S):
                found: list[Any] = []
                while len(found) < count:
                    found += await consumer.poll(1.0)
                return [Sample(r.key, r.value, r.timestamp_ms, r.headers) for r in found]

        return asyncio.run(run())


class RookeryColumns:
    name = "rookery-columns"

    def produce(self, bootstrap: str, topic: str, samples: list[Sample], *, codec: str = "none") -> list[int]:
        batch = pa.record_batch(
            {
                "key": pa.array([sample.key for sample in samples], pa.binary()),
                "value": pa.array([sample.value for sample in samples], pa.binary()),
                "partition": pa.array([0] * len(samples), pa.int32()),
                "timestamp": pa.array([sample.timestamp_ms for sample in samples], pa.timestamp("ms", "UTC")),
                "headers": pa.array([_structs(sample) for sample in samples], _HEADERS),
            }
        )

        async def run() -> list[int]:
            async with _producer(bootstrap, codec) as producer:
                landed = await (await producer.send_arrow(batch, topic))
                return [part.base_offset + index for part in landed for index in range(part.record_count)]

        return asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        async def run() -> list[Sample]:
            async with _consumer(bootstrap, topic) as consumer, asyncio.timeout(TIMEOUT_S):
                found: list[Any] = []
                while len(found) < count:
                    found += (await consumer.poll_arrow(1.0)).to_pylist()
                return [_sample(row) for row in found]

        return asyncio.run(run())


def _producer(bootstrap: str, codec: str) -> Producer[bytes, bytes]:
    return Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})


def _consumer(bootstrap: str, topic: str) -> Consumer[bytes, bytes]:
    consumer: Consumer[bytes, bytes] = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def _structs(sample: Sample) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in sample.headers]


def _sample(row: dict[str, Any]) -> Sample:
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return Sample(row["key"], row["value"], round(row["timestamp"].timestamp() * 1000), headers)
