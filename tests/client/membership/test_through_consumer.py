"""Groups of whole consumers: every record is read, and none twice if partitions are revoked gracefully."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rookery.base.types import TopicPartition
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from rookery.client.consume.consumer import Consumer
from rookery.client.errors import CommitFailedError
from rookery.client.membership.interfaces import RebalanceListener
from rookery.client.produce.producer import Producer
from rookery.testing import EmbeddedBroker
from tests.client.membership.group_members import SETTINGS, TIMEOUT_S, partitions
from tests.client.skipping import let_pass

COUNT = 40
PARTITIONS = 4
Bytes = Consumer[bytes, bytes]
CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
NEW = "KIP-848"


class EventRecorder(RebalanceListener):
    """Records the listener's calls; with a `consumer`, commits the positions of revoked partitions."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.consumer: Bytes | None = None

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._record("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._record("revoked", partitions)
        if self.consumer is not None:
            positions = {tp: await self.consumer.position(tp) for tp in partitions}
            await self.consumer.commit(positions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._record("lost", partitions)

    def _record(self, event: str, partitions: Collection[TopicPartition]) -> None:
        self.events.append((event, sorted(tp.partition for tp in partitions)))


def config(broker: EmbeddedBroker, group_id: str, strategy: str, **changes: Any) -> dict[str, object]:
    """Build a configuration. The names in `changes` have underscores instead of dots."""
    own: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": 200,
    }
    if strategy == NEW:
        own["group.protocol"] = "consumer"
    else:
        own |= {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 50, "session.timeout.ms": 30_000}
    return own | {name.replace("_", "."): value for name, value in changes.items()}


@asynccontextmanager
async def consuming(
    settings: dict[str, object], topic: str, listener: RebalanceListener | None = None
) -> AsyncIterator[Bytes]:
    consumer: Bytes = Consumer(settings)
    consumer.subscribe([topic], listener)
    try:
        yield consumer
    finally:
        await consumer.close()


async def fill(broker: EmbeddedBroker, topic: str, count: int = COUNT) -> None:
    producer: Producer[bytes, bytes] = Producer({"bootstrap.servers": broker.bootstrap_servers})
    async with producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


async def poll_until(condition: Callable[[], bool], consumers: Sequence[Bytes]) -> list[tuple[int, int]]:
    """Poll until `condition` holds; return the records that were read, as (partition, offset)."""
    read: list[tuple[int, int]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            for consumer in consumers:
                read += [(record.partition, record.offset) for record in await consumer.poll(0.02)]
    return read


def sharing(*sizes: int) -> Callable[[Sequence[Bytes]], Callable[[], bool]]:
    def are(consumers: Sequence[Bytes]) -> Callable[[], bool]:
        def check() -> bool:
            owned = [tp for consumer in consumers for tp in consumer.assignment()]
            return len(owned) == len(set(owned)) and sorted(len(c.assignment()) for c in consumers) == sorted(sizes)

        return check

    return are


async def settle(*consumers: Bytes, sizes: Sequence[int]) -> list[tuple[int, int]]:
    return await poll_until(sharing(*sizes)(consumers), consumers)


async def read(count: int, *consumers: Bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            for consumer in consumers:
                found += [(record.partition, record.offset) for record in await consumer.poll(0.02)]
    return found


@pytest.mark.parametrize("strategy", [*CLASSIC, NEW])
def test_every_record_is_read_once_while_members_come_and_go(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"once-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        await fill(broker, topic)
        settings = config(broker, topic, strategy)
        async with consuming(settings, topic) as first:
            seen = await settle(first, sizes=[4])
            async with consuming(settings, topic) as second:
                seen += await settle(first, second, sizes=[2, 2])
                seen += await read(COUNT - len(seen), first, second)
                await fill(broker, topic)
                seen += await read(2 * COUNT - len(seen), first, second)
                # The last records count as processed at the next poll.
                assert await second.poll(0) == []
            seen += await settle(first, sizes=[4])
            await fill(broker, topic, PARTITIONS)
            seen += await read(2 * COUNT + PARTITIONS - len(seen), first)
        assert sorted(seen) == [(index, offset) for index in range(PARTITIONS) for offset in range(21)]

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", NEW])
def test_listeners_may_commit_what_is_revoked(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"listen-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        await fill(broker, topic)
        settings = config(broker, topic, strategy, enable_auto_commit=False)
        recorder = EventRecorder()
        async with consuming(settings, topic, recorder) as first:
            recorder.consumer = first
            await read(COUNT, first)
            async with consuming(settings, topic) as second:
                await settle(first, second, sizes=[2, 2])
                moved = sorted(tp.partition for tp in second.assignment())
                everything = list(range(PARTITIONS))
                revoked = everything if strategy == "range" else moved
                assert [entry for entry in recorder.events if entry[1]][:2] == [
                    ("assigned", everything),
                    ("revoked", revoked),
                ]
                found = await second.committed(partitions(topic, *moved))
                assert {position.offset for position in found.values()} == {COUNT // PARTITIONS}
            recorder.consumer = None

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", NEW])
def test_listeners_may_commit_during_close(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"closed-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        await fill(broker, topic)
        settings = config(broker, topic, strategy, enable_auto_commit=False)
        recorder = EventRecorder()
        everything = list(range(PARTITIONS))
        async with consuming(settings, topic, recorder) as one:
            recorder.consumer = one
            await read(COUNT, one)
        assert recorder.events == [("assigned", everything), ("revoked", everything)]
        async with consuming(settings, topic) as again:
            found = await again.committed(partitions(topic, *everything))
            assert [found[tp].offset for tp in sorted(found)] == [10, 10, 10, 10]

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", NEW])
def test_a_restarted_static_member_keeps_its_partitions(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"static-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        await fill(broker, topic)
        ours = config(broker, topic, strategy, group_instance_id="one")
        recorder = EventRecorder()
        async with consuming(config(broker, topic, strategy, group_instance_id="two"), topic, recorder) as other:
            async with consuming(ours, topic) as one:
                seen = await settle(one, other, sizes=[2, 2])
                seen += await read(COUNT - len(seen), one, other)
                await one.poll(0)
                had = one.assignment()
            await fill(broker, topic)
            recorder.events.clear()
            async with consuming(ours, topic) as again:
                seen += await settle(again, other, sizes=[2, 2])
                assert again.assignment() == had
                seen += await read(2 * COUNT - len(seen), again, other)
        assert sorted(seen) == [(index, offset) for index in range(PARTITIONS) for offset in range(20)]
        # There was no event for the other member until it was closed.
        assert [event for event, indexes in recorder.events if indexes] == ["revoked"]

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["cooperative-sticky", NEW])
def test_a_consumer_that_does_not_poll_is_removed(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"silent-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        await fill(broker, topic)
        # session.timeout.ms must not exceed max.poll.interval.ms; the session does not expire here.
        slow = config(broker, topic, strategy, max_poll_interval_ms=400)
        if strategy != NEW:
            slow |= {"session.timeout.ms": 400}
        recorder = EventRecorder()
        async with (
            consuming(slow, topic, recorder) as silent,
            consuming(config(broker, topic, strategy), topic) as awake,
        ):
            await settle(silent, awake, sizes=[2, 2])
            await poll_until(lambda: len(awake.assignment()) == 4, [awake])
            with pytest.raises(CommitFailedError):
                await silent.commit()
            recorder.events.clear()
            await settle(silent, awake, sizes=[2, 2])
            assert recorder.events[0][0] == "lost"

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["cooperative-sticky", NEW])
def test_a_consumer_in_a_long_poll_stays_a_member(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"waits-{strategy}"
    broker.create_topic(topic, partitions=1)

    async def work() -> None:
        settings = config(broker, topic, strategy, max_poll_interval_ms=30_000, metadata_max_age_ms=300_000)
        recorder = EventRecorder()
        async with consuming(settings, topic, recorder) as one:
            await settle(one, sizes=[1])
            one.pause(*one.assignment())
            waiting = asyncio.ensure_future(one.poll(50.0))
            while not waiting.done():
                await let_pass(1)
                # Let the broker answer heartbeats.
                await asyncio.sleep(0.01)
            assert await waiting == []
            assert recorder.events == [("assigned", [0])]

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", NEW])
def test_new_partitions_are_read(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"grown-{strategy}"
    broker.create_topic(topic, partitions=2)

    async def work() -> None:

        settings = config(broker, topic, strategy)
        async with consuming(settings, topic) as first, consuming(settings, topic) as second:
            await settle(first, second, sizes=[1, 1])
            async with Cluster.at(broker.bootstrap_servers) as cluster:
                await Admin.over(cluster).create_partitions({topic: PARTITIONS})
            await settle(first, second, sizes=[2, 2])
            await fill(broker, topic)
            await read(COUNT, first, second)

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", NEW])
def test_unsubscribing_leaves_the_group(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"unsubscribe-{strategy}"
    broker.create_topic(topic, partitions=PARTITIONS)

    async def work() -> None:
        settings = config(broker, topic, strategy)
        async with consuming(settings, topic) as first, consuming(settings, topic) as second:
            await settle(first, second, sizes=[2, 2])
            await first.unsubscribe()
            assert first.assignment() == frozenset()
            await settle(second, sizes=[4])
            first.subscribe([topic])
            await settle(first, second, sizes=[2, 2])

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", NEW])
def test_the_coordinator_restarts(strategy: str) -> None:

    with EmbeddedBroker(settings=SETTINGS) as broker:
        broker.create_topic("t", partitions=PARTITIONS)

        async def work() -> None:
            await fill(broker, "t")
            settings = config(broker, "t", strategy)
            async with consuming(settings, "t") as first, consuming(settings, "t") as second:
                seen = await settle(first, second, sizes=[2, 2])
                seen += await read(COUNT - len(seen), first, second)
                await asyncio.to_thread(broker.restart, clean=False)
                await first.commit()
                await second.commit()
                await fill(broker, "t")
                seen += await read(2 * COUNT - len(seen), first, second)
            assert sorted(seen) == [(index, offset) for index in range(PARTITIONS) for offset in range(20)]

        asyncio.run(work())
