"""Rookery's consumers in groups, with slow members and with brokers that are killed.

Every committed record was processed by a member: none is skipped. Slow readers buffer little, and lose their partitions
when they do not poll; their later commits are rejected.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random

import pytest

from rookery.client import ApiError, Consumer, ErrorCode, Producer, RebalanceListener, TopicPartition
from rookery.client.errors import CommitFailedError
from tests.faults.numbered import DEADLINE_S, HASTY, Numbered, create_topic, partitions_of
from tests.faults.proxy import Direction, Proxy, proxied_broker
from tests.support.broker import BrokerProcess, start_broker

PARTITIONS = 4
CLASSIC = ("range", "cooperative-sticky")
NEW = "KIP-848"
PROTOCOLS = pytest.mark.parametrize("protocol", [*CLASSIC, NEW])
BROKER_SETTINGS = (
    "group.min.session.timeout.ms=500",
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.heartbeat.interval.ms=200",
    "offsets.topic.num.partitions=2",
)
SHORT_AND_LONG = pytest.mark.parametrize(
    "kills", [2, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(1_200)])], ids=["short", "long"]
)


def config(bootstrap: str, protocol: str, **changes: object) -> dict[str, object]:
    """Return the settings of a consumer. `changes` have underscores instead of dots."""
    own: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        **HASTY,
    }
    if protocol == NEW:
        own["group.protocol"] = "consumer"
    else:
        own |= {"partition.assignment.strategy": protocol, "session.timeout.ms": 5_000, "heartbeat.interval.ms": 100}
    return own | {name.replace("_", "."): value for name, value in changes.items()}


class Reading:
    """The records that a group has read: each partition from the beginning, without gaps; some may be read twice."""

    def __init__(self) -> None:
        self.next_offsets: dict[int, int] = defaultdict(int)
        self.count = 0

    def note(self, partition: int, offset: int) -> None:
        assert offset <= self.next_offsets[partition], f"{partition} was never read from {self.next_offsets[partition]}"
        self.next_offsets[partition] = max(self.next_offsets[partition], offset + 1)
        self.count += 1

    def has_all(self, records: Numbered) -> bool:
        return self.next_offsets == {partition: len(values) for partition, values in records.sent.items()}


class Reader:
    """A member that records what it reads, and then commits from time to time, for at-least-once processing."""

    def __init__(self, reading: Reading, settings: dict[str, object], randomness: Random) -> None:
        self._reading = reading
        self._settings = settings
        self._randomness = randomness
        self._must_stop = False

    def stop(self) -> None:
        self._must_stop = True

    async def run(self) -> None:
        async with Consumer[bytes, bytes](self._settings, randomness=self._randomness) as consumer:
            consumer.subscribe(["t"])
            while not self._must_stop:
                for record in await consumer.poll(0.2, max_records=self._randomness.choice((1, 10, 100))):
                    self._reading.note(record.partition, record.offset)
                if not self._settings.get("enable.auto.commit") and self._randomness.random() < 0.3:
                    await self._commit(consumer)

    async def _commit(self, consumer: Consumer[bytes, bytes]) -> None:
        try:
            await consumer.commit(timeout_s=5.0)
        except CommitFailedError:
            return  # The group has rebalanced: other members read these records again.
        except ApiError as error:
            if not error.code.retriable and error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise


@SHORT_AND_LONG
@PROTOCOLS
@pytest.mark.parametrize("auto_commit", [True, False], ids=["auto-commit", "commit"])
@pytest.mark.timeout(300)
def test_a_group_skips_nothing_while_its_broker_is_killed(
    tmp_path: Path, auto_commit: bool, protocol: str, kills: int
) -> None:
    randomness = Random(f"{protocol}/{auto_commit}")

    async def run() -> None:
        brokers = [await asyncio.to_thread(start_broker, tmp_path / "data", *BROKER_SETTINGS)]
        bootstrap = brokers[0].address
        try:
            await create_topic(bootstrap, "t", PARTITIONS)
            settings = config(bootstrap, protocol, enable_auto_commit=auto_commit, auto_commit_interval_ms=50)
            reading = Reading()
            readers = [Reader(reading, settings, randomness) for _ in range(2)]
            records = Numbered("t", PARTITIONS)
            async with asyncio.timeout(DEADLINE_S * kills), asyncio.TaskGroup() as tasks:
                for reader in readers:
                    tasks.create_task(reader.run())
                writing = tasks.create_task(_write_until_stopped(records, bootstrap))
                for _ in range(kills):
                    await _progress(reading, 100)
                    await asyncio.sleep(randomness.random() / 10)
                    await asyncio.to_thread(_restart, brokers, tmp_path / "data")
                await _progress(reading, 100)
                records.is_finished = True
                await writing
                await _until(lambda: reading.has_all(records))
                for reader in readers:
                    reader.stop()
            await records.check(bootstrap)
            await _check_committed(settings, records)
        finally:
            if brokers[-1].process.poll() is None:
                await asyncio.to_thread(brokers[-1].stop)

    asyncio.run(run())


@PROTOCOLS
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_a_group_skips_nothing_while_its_connections_are_cut(seed: int, protocol: str) -> None:
    """Joins, heartbeats, commits and their responses are lost."""
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy, **_underscored(BROKER_SETTINGS)):
            await create_topic(proxy.address, "t", PARTITIONS)
            auto_commit = randomness.random() < 0.5
            settings = config(proxy.address, protocol, enable_auto_commit=auto_commit, auto_commit_interval_ms=20)
            reading, records = Reading(), Numbered("t", PARTITIONS)
            readers = [Reader(reading, settings, randomness) for _ in range(3)]
            proxy.cut_at_random(randomness, cuts=40, after_bytes_max=3_000)
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
                for reader in readers:
                    tasks.create_task(reader.run())
                writing = tasks.create_task(_write_until_stopped(records, proxy.address))
                await _until(lambda: proxy.cuts_left <= 0)
                records.is_finished = True
                await writing
                await _until(lambda: reading.has_all(records))
                for reader in readers:
                    reader.stop()
            await records.check(proxy.address)
            await _check_committed(settings, records)

    asyncio.run(run())


def _restart(brokers: list[BrokerProcess], data_dir: Path) -> None:
    brokers[-1].kill()
    brokers.append(start_broker(data_dir, *BROKER_SETTINGS, port=brokers[0].port))


async def _write_until_stopped(records: Numbered, bootstrap: str) -> None:
    async with Producer[bytes, bytes]({"bootstrap.servers": bootstrap, **HASTY}) as producer:
        while not records.is_finished:
            await records.send(producer)
            await asyncio.sleep(0.001)
    await records.settle()


async def _progress(reading: Reading, more: int) -> None:
    goal = reading.count + more
    await _until(lambda: reading.count >= goal)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _check_committed(settings: dict[str, object], records: Numbered) -> None:
    """Check the committed offsets: with automatic commits they are at the ends, and never beyond."""
    async with Consumer[bytes, bytes](settings) as consumer:
        committed = await consumer.committed(partitions_of("t", PARTITIONS))
    for tp, offset in committed.items():
        assert offset.offset <= len(records.sent[tp.partition])
        if settings["enable.auto.commit"]:
            assert offset.offset == len(records.sent[tp.partition])


def test_a_slow_reader_buffers_one_fetch_of_each_partition() -> None:
    """However many records there are, no more are fetched until polls have taken the buffered ones."""
    fetch_bytes, record_bytes, count = 4_000, 1_000, 800

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy, **_underscored(BROKER_SETTINGS)):
            await create_topic(proxy.address, "t", PARTITIONS)
            records = Numbered("t", PARTITIONS)
            async with Producer[bytes, bytes]({"bootstrap.servers": proxy.address, "batch.size": 1}) as producer:
                for _ in range(count):
                    await records.send(producer, size_bytes=record_bytes)
            settings = config(proxy.address, "range", max_partition_fetch_bytes=fetch_bytes, max_poll_records=1)
            async with asyncio.timeout(DEADLINE_S), Consumer[bytes, bytes](settings) as consumer:
                consumer.subscribe(["t"])
                before = proxy.carried_bytes[Direction.TO_CLIENT]
                for taken in range(1, 30):
                    while not await consumer.poll():
                        pass
                    # Give the background fetches time, in case they continue.
                    await asyncio.sleep(0.01)
                    fetched = proxy.carried_bytes[Direction.TO_CLIENT] - before
                    assert fetched <= taken * record_bytes * 1.2 + PARTITIONS * fetch_bytes * 1.2 + 20_000
                    assert len(consumer._fetcher._buffers) <= PARTITIONS

    asyncio.run(run())


class RecordingListener(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("revoked", len(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))


@PROTOCOLS
def test_a_member_that_exceeds_the_poll_interval_loses_its_partitions_and_rejoins(protocol: str) -> None:
    """The other member takes over; the slow one cannot commit, and its records are processed again."""

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy, **_underscored(BROKER_SETTINGS)):
            await create_topic(proxy.address, "t", PARTITIONS)
            records = Numbered("t", PARTITIONS)
            async with Producer[bytes, bytes]({"bootstrap.servers": proxy.address}) as producer:
                for _ in range(40):
                    await records.send(producer)
            settings = config(proxy.address, protocol, enable_auto_commit=False)
            listener = RecordingListener()
            slow = Consumer[bytes, bytes](settings | {"max.poll.interval.ms": 300})
            reading = Reading()
            quick = Reader(reading, settings, Random(1))
            async with asyncio.timeout(DEADLINE_S), slow, asyncio.TaskGroup() as tasks:
                slow.subscribe(["t"], listener)
                while not await slow.poll():
                    pass
                tasks.create_task(quick.run())
                await _until(lambda: reading.has_all(records))
                with pytest.raises(CommitFailedError):
                    await slow.commit()
                assert listener.events[-1][0] == "assigned", "only polls call listeners"
                while not slow.assignment() or listener.events[-1][0] != "assigned" or len(listener.events) < 3:
                    await slow.poll(0.1)
                assert ("lost", PARTITIONS) in listener.events
                quick.stop()

    asyncio.run(run())


def _underscored(settings: Collection[str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, _, value in (each.partition("=") for each in settings)}
