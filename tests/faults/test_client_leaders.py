"""Rookery's client while leaders move: producers keep their order, consumers their position.

Metadata is sometimes old, errors name the new leader or do not, and responses get lost. The seed is in the test's name.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from rookery.client import Consumer, Producer, TopicPartition
from rookery.client.errors import OffsetOutOfRangeError
from tests.faults.moving_leaders import TOPIC, MovingCluster
from tests.faults.numbered import DEADLINE_S, HASTY, Numbered, partitions_of

PARTITIONS = 3
SEEDS = [*range(1, 4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 100))]
TP = TopicPartition(TOPIC, 0)


def config(cluster: MovingCluster, **changes: object) -> dict[str, object]:
    """Return the settings of a client. `changes` have underscores instead of dots."""
    own = {name.replace("_", "."): value for name, value in changes.items()}
    return {"bootstrap.servers": cluster.bootstrap, **HASTY, "retry.backoff.ms": 1, **own}


@asynccontextmanager
async def moving(cluster: MovingCluster, pause_s: float) -> AsyncIterator[None]:
    task = asyncio.ensure_future(cluster.keep_moving(pause_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        cluster.update_views()


@pytest.mark.parametrize("has_hints", [True, False], ids=["hints", "no-hints"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_producer_follows_its_leaders(seed: int, has_hints: bool) -> None:
    randomness = Random(seed)

    async def run() -> None:
        cluster = MovingCluster(randomness, nodes=randomness.choice((2, 3)), has_hints=has_hints)
        async with cluster:
            settings = config(
                cluster,
                linger_ms=randomness.choice((0, 2)),
                batch_size=randomness.choice((150, 500)),
                max_in_flight_requests_per_connection=randomness.choice((1, 5)),
            )
            records = Numbered(TOPIC, PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(settings, randomness=randomness)
            async with asyncio.timeout(DEADLINE_S), producer:
                async with moving(cluster, 0.02):
                    for _ in range(400):
                        await records.send(producer, size_bytes=50)
                        if randomness.random() < 0.2:
                            await asyncio.sleep(randomness.random() / 200)
                cluster.trouble = 0.0
                await records.settle()
            assert cluster.rejected_count > 0
            for partition, log in enumerate(cluster.logs):
                assert log.values == records.sent[partition]
                acknowledged = [records.futures[value].result().offset for value in log.values]
                assert acknowledged == list(range(len(acknowledged)))

    asyncio.run(run())


@pytest.mark.parametrize("has_hints", [True, False], ids=["hints", "no-hints"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_follows_its_leaders(seed: int, has_hints: bool) -> None:
    """No record is returned twice or left out when leaders move; records are written meanwhile."""
    randomness = Random(seed)
    count = 300

    async def write(cluster: MovingCluster) -> None:
        for number in range(count):
            partition = number % PARTITIONS
            cluster.logs[partition].write(cluster.leaders[partition].epoch, [b"%d" % number])
            if number % 10 == 0:
                await asyncio.sleep(randomness.random() / 50)

    async def run() -> None:
        cluster = MovingCluster(randomness, nodes=randomness.choice((2, 3)), has_hints=has_hints)
        settings = {"auto_offset_reset": "earliest", "max_poll_records": randomness.choice((1, 10, 500))}
        async with (
            asyncio.timeout(DEADLINE_S),
            cluster,
            Consumer[bytes, bytes](config(cluster, **settings)) as consumer,
        ):
            consumer.assign(partitions_of(TOPIC, PARTITIONS))
            writing = asyncio.ensure_future(write(cluster))
            found = 0
            async with moving(cluster, 0.03):
                while found < count:
                    for record in await consumer.poll(0.5):
                        expected = found_in(cluster, record.partition, record.offset)
                        assert (record.offset, record.value) == (positions[record.partition], expected)
                        positions[record.partition] += 1
                        found += 1
            await writing
            assert cluster.rejected_count > 0

    positions = [0] * PARTITIONS
    asyncio.run(run())


def found_in(cluster: MovingCluster, partition: int, offset: int) -> bytes:
    return cluster.logs[partition].values[offset]


@pytest.mark.parametrize("has_hints", [True, False], ids=["hints", "no-hints"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_truncated_log_is_read_from_where_it_was_cut(reset: str, has_hints: bool) -> None:
    """After an unclean election other records are at the offsets that were already read. They are not skipped."""

    async def run() -> None:
        cluster = MovingCluster(Random(1), partitions=1, has_hints=has_hints, trouble=0.0)
        settings = {"auto_offset_reset": reset}
        async with (
            asyncio.timeout(DEADLINE_S),
            cluster,
            Consumer[bytes, bytes](config(cluster, **settings)) as consumer,
        ):
            consumer.assign([TP])
            consumer.seek(TP, 0)
            cluster.logs[0].write(0, [b"old %d" % number for number in range(10)])
            assert await values(consumer, 10) == [b"old %d" % number for number in range(10)]
            cluster.move(0, keep=6)
            cluster.logs[0].write(1, [b"new %d" % number for number in range(6, 16)])
            cluster.update_views()
            assert await values(consumer, 10) == [b"new %d" % number for number in range(6, 16)]
            assert await consumer.position(TP) == 16

    asyncio.run(run())


def test_a_truncated_log_is_an_error_without_a_reset() -> None:
    async def run() -> None:
        cluster = MovingCluster(Random(1), partitions=1, trouble=0.0)
        settings = {"auto_offset_reset": "none"}
        async with (
            asyncio.timeout(DEADLINE_S),
            cluster,
            Consumer[bytes, bytes](config(cluster, **settings)) as consumer,
        ):
            consumer.assign([TP])
            consumer.seek(TP, 0)
            cluster.logs[0].write(0, [b"old"] * 10)
            await values(consumer, 10)
            cluster.move(0, keep=6)
            cluster.logs[0].write(1, [b"new"] * 10)
            cluster.update_views()
            with pytest.raises(OffsetOutOfRangeError):
                await values(consumer, 1)
            consumer.seek(TP, 6)
            assert await values(consumer, 10) == [b"new"] * 10

    asyncio.run(run())


async def values(consumer: Consumer[bytes, bytes], count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(0.5)]
    return found
