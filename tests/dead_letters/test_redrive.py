"""Redrives against a real broker, interrupted at every step of the transaction."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from rookery.base.clock import SystemClock
from rookery.client import Admin, Consumer, Producer, TopicPartition
from rookery.client.errors import ProducerFencedError
from rookery.dead_letters.letters import Selection
from rookery.dead_letters.plan import RedriveRequest, Skip
from rookery.dead_letters.reader import READER_CONFIG, find_topics, measure, read_progresses
from rookery.dead_letters.redrive import Redrive, RedriveError, Report, redrive_config
from rookery.dead_letters.standard import ATTEMPT, Failure, Origin, headers_of
from rookery.testing.embedded import EmbeddedBroker

_NUMBERS = count(1)
# The retention would delete records that are much older.
NOW_MS = SystemClock().now_ms()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


class World:
    """A topic and its dead-letter topic, with the operations of the tests on them."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.topic = f"orders-{next(_NUMBERS)}"
        self.dead = f"{self.topic}.dlq"
        self.config = {"bootstrap.servers": broker.bootstrap_servers}
        broker.create_topic(self.topic, partitions=2)
        broker.create_topic(self.dead, partitions=2)

    def write_letters(self, offsets: range | list[int], *, partition: int = 0, **changes: Any) -> None:
        """Write dead letters for records of the topic's partition 1."""

        async def work() -> None:
            async with Producer[bytes, bytes](self.config) as producer:
                for offset in offsets:
                    origin = Origin(self.topic, 1, offset, NOW_MS + offset)
                    why = Failure(origin, "E", "bad", "VALUE_CONVERTER")._replace(**changes)
                    headers = (("own", b"%d" % offset), *headers_of(why))
                    await producer.send(self.dead, b"v%d" % offset, key=b"k", headers=headers, partition=partition)

        asyncio.run(work())

    def request(self, **changes: Any) -> RedriveRequest:
        return RedriveRequest(self.dead, Selection())._replace(**changes)

    def redrive(self, request: RedriveRequest | None = None, make: type[Producer[bytes, bytes]] = Producer) -> Report:
        return asyncio.run(self.redrive_async(request, make))

    async def redrive_async(
        self,
        request: RedriveRequest | None = None,
        make: type[Producer[bytes, bytes]] = Producer,
        *,
        poll_records: int = 500,
    ) -> Report:
        async with self.reading(poll_records) as (admin, consumer):
            run = Redrive(request or self.request(), admin=admin, consumer=consumer)
            async with make(self.config | redrive_config(self.dead)) as producer:
                return await run.run(producer)

    def preview(self, request: RedriveRequest | None = None) -> Report:
        async def work() -> Report:
            async with self.reading() as (admin, consumer):
                return await Redrive(request or self.request(), admin=admin, consumer=consumer).preview()

        return asyncio.run(work())

    @asynccontextmanager
    async def reading(self, poll_records: int = 500) -> AsyncIterator[tuple[Admin, Consumer[bytes, bytes]]]:
        config = {**self.config, **READER_CONFIG, "max.poll.records": poll_records}
        async with Admin(self.config) as admin, Consumer[bytes, bytes](config) as consumer:
            yield admin, consumer

    def returned(self, topic: str | None = None) -> list[bytes]:
        return sorted(record.value for record in self.records(topic or self.topic))

    def records(self, topic: str) -> list[Any]:
        async def work() -> list[Any]:
            async with self.reading() as (_, consumer):
                span = await measure(consumer, topic)
                consumer.assign(span.first)
                found: list[Any] = []
                while any([await consumer.position(tp) < span.end[tp] for tp in span.end]):
                    found += await consumer.poll(0.1)
                return found

        return asyncio.run(work())


@pytest.fixture
def world(broker: EmbeddedBroker) -> World:
    return World(broker)


def values(offsets: range | list[int]) -> list[bytes]:
    return sorted(b"v%d" % offset for offset in offsets)


def test_records_return_as_they_were_and_only_once(world: World) -> None:
    world.write_letters(range(3))
    world.write_letters(range(3, 5), partition=1)
    assert world.preview().sent == {world.topic: 5}
    assert world.returned() == []
    assert world.redrive().sent == {world.topic: 5}
    assert world.returned() == values(range(5))
    assert world.redrive().sent == {}
    assert world.returned() == values(range(5))
    record = min(world.records(world.topic), key=lambda record: record.value)
    assert (record.partition, record.key, record.timestamp_ms) == (1, b"k", NOW_MS)
    assert record.headers == (("own", b"0"), (ATTEMPT, b"2"))


def test_later_dead_letters_are_sent_by_the_next_run(world: World) -> None:
    world.write_letters(range(2))
    world.redrive()
    world.write_letters(range(2, 4))
    assert world.redrive().sent == {world.topic: 2}
    assert world.returned() == values(range(4))


def test_a_selection_leaves_the_rest_for_later(world: World) -> None:
    for offset in range(6):
        world.write_letters([offset], error_class="Odd" if offset % 2 else "Even")
    odd = world.request(selection=Selection(error_classes=frozenset({"Odd"})))
    assert world.redrive(odd).sent == {world.topic: 3}
    assert world.redrive(odd).sent == {}
    report = world.redrive()
    assert (report.sent, report.skipped) == ({world.topic: 3}, {Skip.DONE_BEFORE: 3})
    assert world.returned() == values(range(6))


def test_the_same_origin_is_sent_once_over_runs_and_partitions(world: World) -> None:
    world.write_letters([0, 0, 1])
    world.write_letters([1, 2], partition=1)
    first = world.redrive()
    assert (first.sent, first.skipped) == ({world.topic: 3}, {Skip.DUPLICATE: 2})
    # A retried task writes its dead letter late.
    world.write_letters([2])
    assert world.redrive().skipped == {Skip.DUPLICATE: 1}
    assert world.returned() == values(range(3))


def test_a_record_that_never_succeeds_is_sent_twice_and_no_more(world: World) -> None:
    world.write_letters([0], attempt=1)
    assert world.redrive().sent == {world.topic: 1}
    world.write_letters([10], attempt=2)
    assert world.redrive().sent == {world.topic: 1}
    world.write_letters([20], attempt=3)
    assert world.redrive().skipped == {Skip.TOO_OFTEN: 1}
    assert world.redrive(world.request(max_attempts=4)).sent == {world.topic: 1}


def test_to_another_topic(world: World, broker: EmbeddedBroker) -> None:
    world.write_letters(range(2))
    target = f"{world.topic}-repaired"
    assert world.redrive(world.request(to=target)).skipped == {Skip.NO_TOPIC: 2}
    broker.create_topic(target)
    assert world.redrive(world.request(to=target)).sent == {target: 2}
    assert world.returned(target) == values(range(2))
    assert world.redrive().sent == {}


@pytest.mark.parametrize(
    ("config", "is_kept"),
    [
        ({}, False),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"retention.ms": "-1"}, True),
        ({"cleanup.policy": "compact"}, True),
        ({"message.timestamp.type": "LogAppendTime"}, True),
    ],
)
def test_a_record_older_than_the_retention_is_sent_only_with_the_current_time(
    world: World, broker: EmbeddedBroker, config: dict[str, str], is_kept: bool
) -> None:
    broker.create_topic(f"{world.topic}-old", config={"retention.ms": "60000"} | config)
    origin = Origin(f"{world.topic}-old", 0, 0, NOW_MS - 3_600_000)
    world.write_letters([0], origin=origin)
    if is_kept:
        assert world.preview().sent == {origin.topic: 1}
        return
    assert world.preview().skipped == {Skip.TOO_OLD: 1}
    assert not world.redrive().is_complete
    assert world.redrive(world.request(now=True)).is_complete
    (record,) = world.records(origin.topic)
    assert record.timestamp_ms >= NOW_MS


class InterruptedHereError(Exception):
    """Stands for Ctrl-C or a crash."""


class DiesBeforeOffsets(Producer[bytes, bytes]):
    async def send_offsets_to_transaction(self, *arguments: Any) -> None:
        await self.flush()
        raise InterruptedHereError


class DiesBeforeCommit(Producer[bytes, bytes]):
    async def commit_transaction(self) -> None:
        await self.flush()
        raise InterruptedHereError


class CrashesBeforeCommit(DiesBeforeCommit):
    """Leaves the transaction open: there is no abort either."""

    async def abort_transaction(self) -> None:
        pass

    async def _abort_open_transaction(self) -> None:
        pass


class DiesAfterCommit(Producer[bytes, bytes]):
    async def commit_transaction(self) -> None:
        await super().commit_transaction()
        raise InterruptedHereError


@pytest.mark.parametrize("make", [DiesBeforeOffsets, DiesBeforeCommit, CrashesBeforeCommit, DiesAfterCommit])
def test_nothing_is_lost_or_sent_twice_by_an_interruption(world: World, make: type[Producer[bytes, bytes]]) -> None:
    world.write_letters(range(8))

    async def die() -> None:
        with pytest.raises(InterruptedHereError):
            await world.redrive_async(make=make, poll_records=3)

    asyncio.run(die())
    asyncio.run(die())
    world.redrive()
    assert world.returned() == values(range(8))


def test_a_second_run_takes_over(world: World) -> None:
    world.write_letters(range(6))

    async def work() -> None:
        class Slow(Producer[bytes, bytes]):
            async def commit_transaction(self) -> None:
                assert (await world.redrive_async()).sent == {world.topic: 6}
                await super().commit_transaction()

        with pytest.raises(ProducerFencedError):
            await world.redrive_async(make=Slow, poll_records=2)

    asyncio.run(work())
    assert world.returned() == values(range(6))


def test_progress_is_a_group_that_any_tool_can_reset(world: World) -> None:
    world.write_letters(range(4))
    world.redrive()

    async def work() -> None:
        async with Admin(world.config) as admin:
            progress = (await read_progresses(admin, world.dead))[TopicPartition(world.dead, 0)]
            assert (progress.position, progress.metadata()) == (4, "")
            await admin.delete_groups([f"rookery-redrive.{world.dead}"])

    asyncio.run(work())
    assert world.redrive().sent == {world.topic: 4}
    assert world.returned() == sorted(values(range(4)) * 2)


def test_too_many_holes_stop_before_anything_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.dead_letters.progress.METADATA_LENGTH_MAX", 8)
    for offset in range(10):
        world.write_letters([offset], error_class="Odd" if offset % 2 else "Even")
    odd = world.request(selection=Selection(error_classes=frozenset({"Odd"})))
    with pytest.raises(RedriveError, match="wider selection"):
        world.redrive(odd)
    assert world.returned() == []
    assert world.redrive().sent == {world.topic: 10}


def test_topics_are_found_by_their_suffix(world: World) -> None:
    async def work() -> None:
        async with Admin(world.config) as admin:
            found = await find_topics(admin)
            assert world.dead in found
            assert world.topic not in found
            assert await find_topics(admin, [world.topic]) == [world.topic]
            with pytest.raises(Exception, match="nowhere"):
                await find_topics(admin, ["nowhere"])

    asyncio.run(work())
