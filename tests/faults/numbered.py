"""Numbered records: sent by Rookery's producer under faults, and compared with the broker's log afterwards."""

import asyncio
from dataclasses import dataclass, field

from rookery.base.types import TopicPartition
from rookery.client import Admin, Producer, RecordMetadata
from rookery.client.admin import NewTopic
from rookery.client.errors import DeliveryTimeoutError
from tests.client.produce.support import read_batches

DEADLINE_S = 60.0
# Short backoffs, so that many attempts meet a fault.
HASTY: dict[str, object] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
}


@dataclass
class Numbered:
    """The records of one producer by partition, in the order of its sends."""

    topic: str
    partitions: int
    sent: dict[int, list[bytes]] = field(default_factory=dict)
    is_finished: bool = False
    futures: dict[bytes, "asyncio.Future[RecordMetadata]"] = field(default_factory=dict)

    async def send(self, producer: Producer[bytes, bytes], *, size_bytes: int = 0) -> None:
        """Send the next record. A record for which `send` raises is not counted."""
        number = len(self.futures)
        partition = number % self.partitions
        value = f"{number}:".encode().ljust(size_bytes, b".")
        future = await producer.send(self.topic, value, partition=partition)
        self.sent.setdefault(partition, []).append(value)
        self.futures[value] = future

    async def settle(self) -> None:
        """Wait for all acknowledgements."""
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self.futures.values())

    async def failed(self) -> set[bytes]:
        """Wait for all records; returns those whose delivery timed out."""
        outcomes = await asyncio.gather(*self.futures.values(), return_exceptions=True)
        return {
            value
            for value, outcome in zip(self.futures, outcomes, strict=True)
            if isinstance(outcome, DeliveryTimeoutError)
        }

    async def check(self, bootstrap: str) -> None:
        """Check that every record is stored once, in order, at the acknowledged offset; a failed one may be missing."""
        failed = await self.failed()
        for partition in range(self.partitions):
            sent, found = self.sent.get(partition, []), await self.read(bootstrap, partition)
            values = [value for _, value in found]
            stored = set(values)
            assert values == [value for value in sent if value in stored or value not in failed], f"in {partition}"
            acknowledged = [(self.futures[value].result().offset, value) for value in sent if value not in failed]
            assert [row for row in found if row[1] not in failed] == acknowledged, f"in {partition}"

    async def read(self, bootstrap: str, partition: int) -> list[tuple[int, bytes]]:
        """Return the offsets and values of a partition."""
        batches = await read_batches(bootstrap, self.topic, partition)
        return [(record.offset, record.value or b"") for _, records in batches for record in records]


async def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=partitions)])


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]
