"""Rookery's client on a failing network: connections are cut at any byte, and brokers stop reading.

No acknowledged record is lost, stored twice or reordered. The seed of random choices is in the name of the test.
"""

import asyncio
from contextlib import suppress
from math import inf
from random import Random

import pytest

from rookery.base.errors import ApiError
from rookery.client import Consumer, Producer
from rookery.client.errors import BufferExhaustedError
from tests.faults.numbered import DEADLINE_S, HASTY, Numbered, create_topic, partitions_of
from tests.faults.proxy import Direction, Proxy, proxied_broker

PARTITIONS = 3
# The time-out of requests that should expire: shorter than the pauses of a slow network.
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.03, 2.0
# The longest time for the cuts: on a busy machine the remaining ones are left out.
FAULTS_S_MAX = 15.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEEDS = [*range(1, 4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 40))]


def config(proxy: Proxy, **changes: object) -> dict[str, object]:
    """Return the settings of a client. `changes` have underscores instead of dots."""
    own = {name.replace("_", "."): value for name, value in changes.items()}
    return {"bootstrap.servers": proxy.address, **HASTY, **own}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_producer_recovers_from_cut_connections(seed: int) -> None:
    """Requests and responses are lost: no record is written twice, and the order is kept."""
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            await create_topic(proxy.address, "t", PARTITIONS)
            settings = config(
                proxy,
                linger_ms=randomness.choice((0, 1, 5)),
                batch_size=randomness.choice((200, 1_000, 16_384)),
                compression_type=randomness.choice(CODECS),
                max_in_flight_requests_per_connection=5,
            )
            proxy.cut_at_random(randomness, cuts=25)
            records = Numbered("t", PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(settings, randomness=randomness)
            async with asyncio.timeout(DEADLINE_S), producer:
                await _send_until_cut(records, producer, proxy, randomness)
                await records.settle()
            await records.check(proxy.address)

    asyncio.run(run())


async def _send_until_cut(
    records: Numbered, producer: Producer[bytes, bytes], proxy: Proxy, randomness: Random, *, limit_s: float = inf
) -> None:
    """Send records until all cuts are made, or the time has expired."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while proxy.cuts_left > 0 and loop.time() < deadline_s:
        await records.send(producer, size_bytes=randomness.choice((10, 100, 1_000)))
        if randomness.random() < 0.2:
            await asyncio.sleep(randomness.random() / 100)


@pytest.mark.parametrize("seed", SEEDS)
def test_expired_records_leave_the_others_in_order(seed: int) -> None:
    """An expired record may be stored or not; each acknowledged one is stored once, at the acknowledged offset."""
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            patience_s = await _create_and_measure(proxy, "t")
            settings = config(
                proxy,
                linger_ms=0,
                batch_size=randomness.choice((200, 1_000)),
                request_timeout_ms=int(patience_s * 1000),
                delivery_timeout_ms=int(patience_s * 1333),
                max_block_ms=int(DEADLINE_S * 1000),
            )
            records = Numbered("t", PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(settings, randomness=randomness)
            async with asyncio.timeout(2 * DEADLINE_S), producer:
                # Fetch the metadata before the faults: its time-out is as short, and it is not tested here.
                await _send_until_acknowledged(records, producer)
                proxy.cut_at_random(randomness, cuts=8)
                slowness = asyncio.ensure_future(_be_slow(proxy, randomness, pause_s=2 * patience_s))
                await _send_until_cut(records, producer, proxy, randomness, limit_s=FAULTS_S_MAX)
                slowness.cancel()
                if proxy.cuts_left > 0:
                    proxy.cut_at_random(randomness, cuts=0)
                proxy.release(Direction.TO_BROKER)
                # These records are written, but their responses are lost.
                proxy.hold(Direction.TO_CLIENT)
                before = set(records.futures)
                for _ in range(2 * PARTITIONS):
                    await records.send(producer)
                assert await records.failed() - before
                proxy.release(Direction.TO_CLIENT)
                # The network works again, and the producer must recover.
                await _send_until_acknowledged(records, producer)
            await records.check(proxy.address)

    asyncio.run(run())


async def _create_and_measure(proxy: Proxy, topic: str) -> float:
    """Create a topic, and return a time-out for requests in seconds, which is longer on a busy machine.

    The creation of a topic takes several requests, so that a single one is answered within this time.
    """
    started_s = asyncio.get_running_loop().time()
    await create_topic(proxy.address, topic, PARTITIONS)
    return min(max(asyncio.get_running_loop().time() - started_s, PATIENCE_S_MIN), PATIENCE_S_MAX)


async def _send_until_acknowledged(records: Numbered, producer: Producer[bytes, bytes]) -> None:
    """Send one record to each partition, and again if they have expired."""
    is_acknowledged = False
    while not is_acknowledged:
        before = set(records.futures)
        for _ in range(PARTITIONS):
            await records.send(producer)
        is_acknowledged = await records.failed() <= before


@pytest.mark.parametrize("seed", SEEDS)
def test_one_request_at_a_time_keeps_the_order_without_idempotence(seed: int) -> None:
    """A retry may write a batch twice, but no record is lost or reordered."""
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            await create_topic(proxy.address, "t", PARTITIONS)
            settings = config(
                proxy,
                enable_idempotence=False,
                max_in_flight_requests_per_connection=1,
                batch_size=randomness.choice((200, 1_000)),
            )
            proxy.cut_at_random(randomness, cuts=12)
            records = Numbered("t", PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(settings, randomness=randomness)
            async with asyncio.timeout(DEADLINE_S), producer:
                await _send_until_cut(records, producer, proxy, randomness)
                await records.settle()
            for partition, sent in records.sent.items():
                found = [value for _, value in await records.read(proxy.address, partition)]
                assert list(dict.fromkeys(found)) == sent, "the first of each"

    asyncio.run(run())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_recovers_from_cut_connections(seed: int) -> None:
    """Every record is returned once, in order: only the data that a cut discarded is fetched again."""
    randomness = Random(seed)
    count = 600

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            await create_topic(proxy.address, "t", PARTITIONS)
            records = Numbered("t", PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(config(proxy, batch_size=2_000))
            async with producer:
                for _ in range(count):
                    await records.send(producer, size_bytes=randomness.choice((10, 100, 1_000)))
            settings = config(
                proxy,
                auto_offset_reset="earliest",
                fetch_max_bytes=randomness.choice((2_000, 10_000, 50_000)),
                max_partition_fetch_bytes=randomness.choice((2_000, 10_000)),
                max_poll_records=randomness.choice((1, 7, 500)),
            )
            proxy.cut_at_random(randomness, cuts=30, after_bytes_max=5_000)
            consumer: Consumer[bytes, bytes] = Consumer(settings, randomness=randomness)
            async with asyncio.timeout(DEADLINE_S), consumer:
                consumer.assign(partitions_of("t", PARTITIONS))
                while proxy.cuts_left > 0:
                    consumer.seek_to_beginning()
                    assert await _read(consumer, count) == records.sent
                assert not await consumer.poll(0.05)

    asyncio.run(run())


async def _read(consumer: Consumer[bytes, bytes], count: int) -> dict[int, list[bytes]]:
    """Read `count` records from the beginning; returns them by partition."""
    found: dict[int, list[bytes]] = {}
    while sum(map(len, found.values())) < count:
        for record in await consumer.poll(1.0):
            values = found.setdefault(record.partition, [])
            assert record.offset == len(values)
            values.append(record.value or b"")
    return found


async def _send_with_retries(records: Numbered, producer: Producer[bytes, bytes]) -> None:
    """Send a record, with retries: the metadata may take longer than max.block.ms."""
    while not records.futures:
        with suppress(ApiError):
            await records.send(producer)


def test_a_full_buffer_blocks_senders_and_loses_nothing() -> None:
    """The broker does not read: `send` waits, then raises; accepted records are delivered when the broker reads."""
    buffer_bytes = 8_000

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            await create_topic(proxy.address, "t", PARTITIONS)
            settings = config(proxy, buffer_memory=buffer_bytes, batch_size=1_000, linger_ms=0, max_block_ms=50)
            records = Numbered("t", PARTITIONS)
            producer: Producer[bytes, bytes] = Producer(settings)
            async with asyncio.timeout(DEADLINE_S), producer:
                await _send_with_retries(records, producer)
                await records.settle()
                proxy.hold(Direction.TO_BROKER)
                with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms"):
                    await _send_without_end(records, producer)
                accepted = len(records.futures)
                assert sum(len(value) for values in records.sent.values() for value in values) <= buffer_bytes
                # Later calls must raise as well, and their records must not be accepted.
                with pytest.raises(BufferExhaustedError):
                    await records.send(producer, size_bytes=400)
                assert len(records.futures) == accepted
                proxy.release(Direction.TO_BROKER)
                await records.settle()
                await records.send(producer, size_bytes=400)
                await records.settle()
            await records.check(proxy.address)

    asyncio.run(run())


async def _send_without_end(records: Numbered, producer: Producer[bytes, bytes]) -> None:
    while True:
        await records.send(producer, size_bytes=400)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_senders_share_a_tiny_buffer_at_a_slow_broker(seed: int) -> None:
    """The broker reads little data at a time, and connections break: senders wait for buffer space."""
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy):
            topics = [Numbered(f"t{index}", 2) for index in range(3)]
            for records in topics:
                await create_topic(proxy.address, records.topic, records.partitions)
            producer: Producer[bytes, bytes] = Producer(config(proxy, buffer_memory=3_000, batch_size=1_000))

            async def send_all(records: Numbered, sizes: list[int]) -> None:
                for size_bytes in sizes:
                    await records.send(producer, size_bytes=size_bytes)

            async with asyncio.timeout(DEADLINE_S), producer:
                slowness = asyncio.ensure_future(_be_slow(proxy, randomness))
                sizes = [[randomness.randrange(10, 900) for _ in range(60)] for _ in topics]
                await asyncio.gather(*map(send_all, topics, sizes))
                slowness.cancel()
                for way in Direction:
                    proxy.release(way)
                for records in topics:
                    await records.settle()
            for records in topics:
                await records.check(proxy.address)

    asyncio.run(run())


async def _be_slow(proxy: Proxy, randomness: Random, *, pause_s: float = 0.02) -> None:
    while True:
        way = randomness.choice(list(Direction))
        proxy.hold(way)
        await asyncio.sleep(randomness.random() * pause_s)
        if randomness.random() < 0.2:
            proxy.cut_all()
        proxy.release(way)
        await asyncio.sleep(0)
