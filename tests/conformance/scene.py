"""A topic on either kind of broker, Rookery's clients for it, and shared helpers of their conformance tests."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rookery.client import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition

TIMEOUT_S = 30.0
OLD_MS = 1_600_000_000_000

Records = list[ConsumerRecord[bytes, bytes]]


class Scene:
    """A topic on a broker, and clients for it."""

    def __init__(self, bootstrap: str, topic: str, security: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._common = {"bootstrap.servers": bootstrap, **(security or {})}
        self.group = f"{topic}-group"

    def partition(self, index: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, index)

    def admin(self) -> Admin:
        return Admin(self._common)

    def producer(self, **settings: object) -> Producer[Any, Any]:
        return Producer({**self._common, **_dotted(settings)})

    def consumer(self, **settings: object) -> Consumer[Any, Any]:
        return Consumer({**self._common, "auto.offset.reset": "earliest", **_dotted(settings)})

    def member(self, **settings: object) -> Consumer[Any, Any]:
        return self.consumer(group_id=self.group, **settings)

    async def create(self, partitions: int = 1, **configs: str) -> None:
        async with self.admin() as admin:
            new = NewTopic(name=self.topic, partitions=partitions, configs=_texts(configs))
            for outcome in await admin.create_topics([new]):
                outcome.check()
            await until(lambda: self.has_leaders(admin, partitions))

    async def has_leaders(self, admin: Admin, partitions: int) -> bool:
        """Return whether the partitions are served: Kafka responds to CreateTopics before that."""
        (found,) = await admin.describe_topics([self.topic])
        return len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions)

    async def fill(self, count: int, *, partition: int = 0, start: int = 0) -> None:
        async with self.producer() as producer:
            for number in range(start, start + count):
                await producer.send(
                    self.topic, b"%d" % number, partition=partition, timestamp_ms=OLD_MS + number * 1000
                )


def _dotted(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _texts(configs: dict[str, str]) -> dict[str, str | None]:
    return {name.replace("_", "."): value for name, value in configs.items()}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.02)


async def read(consumer: Consumer[Any, Any], count: int) -> Records:
    """Read at least `count` records."""
    found: Records = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            found += await consumer.poll(0.5)
    return found


def numbers(records: Records) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def play(work: Awaitable[None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(2 * TIMEOUT_S):
            await work

    asyncio.run(run())
