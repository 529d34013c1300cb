"""Scenarios with records of a known schedule: lag in seconds is checked exactly, against any broker.

Record `n` has the timestamp `SCHEDULE_MS + n * STEP_MS`, and the sampler's clock shows `NOW_MS`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from uuid import uuid4

from rookery.base.clock import ManualClock
from rookery.base.types import TopicPartition
from rookery.client import Consumer, Producer
from rookery.client.admin import Admin, NewTopic, OffsetAndMetadata
from rookery.lag import GroupLag, LagMonitor, ObservedLag

SCHEDULE_MS = 1_700_000_000_000
STEP_MS = 10_000
NOW_MS = SCHEDULE_MS + 1_000_000
# Nothing is deleted by age: the records are years old.
KEPT = {"retention.ms": "-1"}

Scenario = Callable[[str], Coroutine[None, None, None]]


def config(bootstrap: str, **settings: object) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap} | {key.replace("_", "."): value for key, value in settings.items()}


def age_s(number: int) -> float:
    """The age of record `number`."""
    return (NOW_MS - SCHEDULE_MS - number * STEP_MS) / 1000


async def created(admin: Admin, configs: Mapping[str, str | None] | None = None) -> TopicPartition:
    name = f"t-{uuid4().hex[:8]}"
    (outcome,) = await admin.create_topics([NewTopic(name, 1, 1, configs=KEPT | dict(configs or {}))])
    outcome.check()
    return TopicPartition(name, 0)


async def send(producer: Producer[bytes, bytes], tp: TopicPartition, *numbers: int, key: bytes | None = None) -> None:
    """Send each record alone, so that each is a batch."""
    for number in numbers:
        timestamp_ms = SCHEDULE_MS + number * STEP_MS
        await (
            await producer.send(tp.topic, b"%d" % number, key=key, partition=tp.partition, timestamp_ms=timestamp_ms)
        )


async def commit(admin: Admin, tp: TopicPartition, offset: int) -> str:
    """Commit an offset as Spark does, for a new group without members; return its id."""
    group_id = f"g-{uuid4().hex[:8]}"
    assert not any((await admin.commit_offsets(group_id, {tp: OffsetAndMetadata(offset)})).values())
    return group_id


async def observe(admin: Admin, group_id: str, *, read_committed: bool = False) -> GroupLag:
    clock = ManualClock(NOW_MS)
    monitor = LagMonitor(admin, group_ids=[group_id], read_committed=read_committed, clock=clock)
    (group,) = (await monitor.observe()).groups
    return group


async def lag_at(
    admin: Admin, tp: TopicPartition, offset: int, *, read_committed: bool = False
) -> tuple[int | None, float | None]:
    """Return the lag in records and in seconds of a group that has committed `offset`."""
    group = await observe(admin, await commit(admin, tp, offset), read_committed=read_committed)
    return group.lag, group.lag_s


async def each_offset(bootstrap: str) -> None:
    """Batches of one record, and of several: the first unread record may be in the middle of a batch."""
    async with Admin(config(bootstrap)) as admin:
        tp = await created(admin)
        async with Producer[bytes, bytes](config(bootstrap)) as producer:
            await send(producer, tp, 0, 1, 2)
            for number in range(3, 8):
                await producer.send(
                    tp.topic, b"x", partition=0, timestamp_ms=SCHEDULE_MS + number * STEP_MS, key=b"together"
                )
        for offset in range(8):
            assert await lag_at(admin, tp, offset) == (8 - offset, age_s(offset))
        assert await lag_at(admin, tp, 8) == (0, 0.0)


async def large_batches(bootstrap: str) -> None:
    """Batches that are larger than what is fetched first, in several partitions of one leader."""
    async with Admin(config(bootstrap)) as admin:
        partitions = [await created(admin) for _ in range(3)]
        async with Producer[bytes, bytes](config(bootstrap, compression_type="none")) as producer:
            for tp in partitions:
                for number in range(3):
                    timestamp_ms = SCHEDULE_MS + number * STEP_MS
                    await (await producer.send(tp.topic, bytes(200_000), partition=0, timestamp_ms=timestamp_ms))
        group_id = f"g-{uuid4().hex[:8]}"
        await admin.commit_offsets(group_id, {tp: OffsetAndMetadata(1) for tp in partitions})
        group = await observe(admin, group_id)
        assert [each.lag_s for each in group.partitions] == [age_s(1)] * 3


async def deleted_records(bootstrap: str) -> None:
    """The start of the log moves beyond the committed offset, then to the end of the log."""
    async with Admin(config(bootstrap)) as admin:
        tp = await created(admin)
        async with Producer[bytes, bytes](config(bootstrap)) as producer:
            await send(producer, tp, *range(6))
        group_id = await commit(admin, tp, 1)
        await admin.delete_records({tp: 4})
        (found,) = (await observe(admin, group_id)).partitions
        assert (found.lag, found.lost, found.lag_s) == (5, 3, age_s(4))
        await admin.delete_records({tp: 6})
        (found,) = (await observe(admin, group_id)).partitions
        assert (found.lag, found.lost, found.lag_s) == (5, 5, 0.0)


async def transactions(bootstrap: str) -> None:
    """Offsets: 0 committed, 1 its marker, 2 and 3 aborted, 4 the marker, 5 plain, 6 in an open transaction."""
    async with Admin(config(bootstrap)) as admin:
        tp = await created(admin)
        transactional = config(bootstrap, transactional_id=f"x-{uuid4().hex[:8]}")
        async with (
            Producer[bytes, bytes](transactional) as producer,
            Producer[bytes, bytes](config(bootstrap)) as plain,
        ):
            await producer.init_transactions()
            async with producer.transaction():
                await send(producer, tp, 0)
            producer.begin_transaction()
            await send(producer, tp, 2, 3)
            await producer.abort_transaction()
            # At the end of the log, aborted records and markers count as lag, though there is nothing to read.
            assert await lag_at(admin, tp, 1, read_committed=True) == (4, 0.0)
            assert await lag_at(admin, tp, 4) == (1, 0.0)
            await send(plain, tp, 5)
            producer.begin_transaction()
            await send(producer, tp, 6)
            committed = [await lag_at(admin, tp, offset, read_committed=True) for offset in range(7)]
            everything = [await lag_at(admin, tp, offset) for offset in range(7)]
            await producer.abort_transaction()
        assert committed == [(6 - n, age_s(0 if n == 0 else 5) if n < 6 else 0.0) for n in range(7)]
        first = [0, 2, 2, 3, 5, 5, 6]
        assert everything == [(7 - n, age_s(first[n])) for n in range(7)]


async def compaction(bootstrap: str) -> None:
    """The cleaner leaves gaps: the first unread record is after them."""
    async with Admin(config(bootstrap)) as admin:
        settings = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
        tp = await created(admin, settings)
        async with Producer[bytes, bytes](config(bootstrap)) as producer:
            await send(producer, tp, *range(8), key=b"same")
            await send(producer, tp, 8, key=b"other")
        while await first_offset(bootstrap, tp) < 7:
            await asyncio.sleep(0.05)
        for offset in (0, 3, 7):
            assert await lag_at(admin, tp, offset) == (9 - offset, age_s(7))
        assert await lag_at(admin, tp, 8) == (1, age_s(8))


async def first_offset(bootstrap: str, tp: TopicPartition) -> int:
    async with Consumer[bytes, bytes](config(bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([tp])
        while not (records := await consumer.poll(1.0)):
            pass
        return records[0].offset


async def no_commits(bootstrap: str) -> None:
    """A member without a commit has no lag: neither zero nor everything."""
    async with Admin(config(bootstrap)) as admin:
        tp = await created(admin)
        async with Producer[bytes, bytes](config(bootstrap)) as producer:
            await send(producer, tp, 0)
        for protocol in ("classic", "consumer"):
            group_id = f"g-{protocol}-{uuid4().hex[:8]}"
            settings = config(
                bootstrap,
                group_id=group_id,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit="false",
            )
            async with Consumer[bytes, bytes](settings) as consumer:
                consumer.subscribe([tp.topic])
                while not await consumer.poll(1.0):
                    pass
                group = await observe(admin, group_id)
                assert (group.group.group_type, group.group.member_count) == (protocol, 1)
                (found,) = group.partitions
                assert no_lag(found)
                await consumer.commit({tp: OffsetAndMetadata(1)})
                (found,) = (await observe(admin, group_id)).partitions
                assert (found.lag, found.lag_s) == (0, 0.0)
                assert found.sample.owner is not None


def no_lag(found: ObservedLag) -> bool:
    return (found.committed, found.lag, found.lag_s, found.status, found.end) == (None, None, None, None, 1)


SCENARIOS: tuple[Scenario, ...] = (
    each_offset,
    large_batches,
    deleted_records,
    transactions,
    compaction,
    no_commits,
)
