"""Every method of the consumer, against a real broker."""

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.consume.consumer import Consumer
from rookery.client.consume.records import (
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RebalanceListener,
)
from rookery.client.errors import ClientStateError, NoOffsetError, SerializationError, WakeupError
from rookery.records.batch import Codec
from rookery.testing import EmbeddedBroker
from tests.client.consume.support import START_MS, append, consuming, new_topic, read_values

KEEP = {"retention.ms": "-1"}
Test = Callable[[str, TopicPartition], Coroutine[Any, Any, None]]


def run(broker: EmbeddedBroker, work: Test, *, partitions: int = 1) -> None:
    """Call `work(bootstrap, partition 0 of a new topic)`. Retention is off: the tests' timestamps are old."""
    topic = new_topic()
    broker.create_topic(topic, partitions=partitions, config=KEEP)

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work(broker.bootstrap_servers, TopicPartition(topic, 0))

    asyncio.run(bounded())


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_arrive_whole_and_in_order(broker: EmbeddedBroker, codec: Codec) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        headers = (("trace", b"1"), ("none", None))
        await append(bootstrap, tp, [b"a", None], keys=[b"k", None], headers=headers, codec=codec)
        async with consuming(bootstrap, tp) as consumer:
            first, second = await consumer.poll(10)
            assert astuple(first) == (tp.topic, 0, 0, START_MS, 0, b"k", b"a", headers, 0)
            assert (second.offset, second.key, second.value, second.timestamp_ms) == (1, None, None, START_MS + 1000)

    run(broker, work)


def test_a_poll_returns_at_most_max_poll_records(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(7))
        async with consuming(bootstrap, tp, config={"max.poll.records": 3}) as consumer:
            assert [len(await consumer.poll(10)) for _ in range(3)] == [3, 3, 1]
            consumer.seek_to_beginning()
            assert len(await consumer.poll(10, max_records=5)) == 5
            with pytest.raises(ValueError, match="must be positive"):
                await consumer.poll(1, max_records=0)

    run(broker, work)


def test_records_by_partition(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        other = TopicPartition(tp.topic, 1)
        await append(bootstrap, tp, numbers(3))
        await append(bootstrap, other, numbers(2))
        async with consuming(bootstrap, tp, other) as consumer:
            records: ConsumerRecords[Any, Any] = ConsumerRecords()
            while len(records) < 5:
                records += await consumer.poll(10)
            by_partition = ConsumerRecords(records).by_partition()
            assert {tp: [r.offset for r in some] for tp, some in by_partition.items()} == {tp: [0, 1, 2], other: [0, 1]}
            assert ConsumerRecords(records).partitions() == {tp, other}

    run(broker, work, partitions=2)


def test_async_for_moves_the_position_record_by_record(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(10))
        async with consuming(bootstrap, tp, config={"group.id": tp.topic, "max.poll.records": 4}) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.value)
                assert await consumer.position(tp) == record.offset + 1
                if len(seen) == 6:
                    await consumer.commit()
                    break
            assert await consumer.committed([tp]) == {tp: OffsetAndMetadata(6, "", 0)}
            # Records that were not returned are not lost.
            assert seen + await read_values(consumer, 4) == numbers(10)

    run(broker, work)


def test_async_for_waits_for_more(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        async with consuming(bootstrap, tp) as consumer:
            await consumer.position(tp)
            writing = asyncio.ensure_future(append(bootstrap, tp, [b"late"]))
            async for record in consumer:
                assert record.value == b"late"
                break
            await writing

    run(broker, work)


def test_a_poll_waits_for_the_first_record_only(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        async with consuming(bootstrap, tp) as consumer:
            assert await consumer.poll(0.01) == []
            polling = asyncio.ensure_future(consumer.poll(10))
            await append(bootstrap, tp, [b"late"])
            assert [record.value for record in await polling] == [b"late"]

    run(broker, work)


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"0"), ("latest", b"new"), ("by_duration:PT1H", b"3")])
def test_auto_offset_reset(broker: EmbeddedBroker, reset: str, first: bytes) -> None:
    """A record per second; an hour before the consumer's clock is the time of the fourth."""

    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(5))
        clock = ManualClock(START_MS + 3000 + 3_600_000)
        async with consuming(bootstrap, tp, config={"auto.offset.reset": reset}, clock=clock) as consumer:
            await consumer.position(tp)
            await append(bootstrap, tp, [b"new"])
            assert (await consumer.poll(10))[0].value == first

    run(broker, work)


def test_a_duration_shorter_than_the_youngest_record_begins_at_the_end(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(5))
        config: dict[str, object] = {"auto.offset.reset": "by_duration:PT1S"}
        async with consuming(bootstrap, tp, config=config) as consumer:
            assert await consumer.position(tp) == 5

    run(broker, work)


def test_without_a_reset_a_position_is_needed(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        other = TopicPartition(tp.topic, 1)
        await append(bootstrap, tp, numbers(2))
        async with consuming(bootstrap, tp, other, config={"auto.offset.reset": "none"}) as consumer:
            for _ in range(2):
                with pytest.raises(NoOffsetError, match="nothing committed") as caught:
                    await consumer.poll(10)
                assert caught.value.partitions == {tp, other}
            with pytest.raises(NoOffsetError):
                await consumer.position(tp)
            consumer.seek(tp, 1)
            consumer.pause(other)
            assert await read_values(consumer, 1) == [b"1"]

    run(broker, work, partitions=2)


def test_a_position_that_retention_deleted_is_reset(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(3))
        async with consuming(bootstrap, tp) as consumer:
            consumer.seek(tp, 1000)
            assert await read_values(consumer, 3) == numbers(3)

    run(broker, work)


def test_seeking(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(10))
        async with consuming(bootstrap, tp) as consumer:
            assert len(await consumer.poll(10)) == 10
            consumer.seek(tp, 7)
            assert await read_values(consumer, 3) == [b"7", b"8", b"9"]
            consumer.seek(tp, OffsetAndMetadata(8, "", 0))
            assert await read_values(consumer, 2) == [b"8", b"9"]
            consumer.seek_to_beginning(tp)
            assert await consumer.position(tp) == 0
            consumer.seek_to_end()
            assert await consumer.position(tp) == 10
            await consumer.seek_to_timestamp({tp: START_MS + 3500})
            assert (await consumer.poll(10))[0].value == b"4"
            await consumer.seek_to_timestamp(START_MS + 3600_000)
            assert await consumer.position(tp) == 10

    run(broker, work)


def test_pausing(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        other = TopicPartition(tp.topic, 1)
        await append(bootstrap, tp, [b"a"])
        await append(bootstrap, other, [b"b"])
        async with consuming(bootstrap, tp, other) as consumer:
            consumer.pause(tp)
            assert await read_values(consumer, 1) == [b"b"]
            assert await consumer.poll(0.05) == []
            assert consumer.paused() == {tp}
            consumer.resume(tp)
            assert await read_values(consumer, 1) == [b"a"]
            assert consumer.paused() == set()

    run(broker, work, partitions=2)


def test_lookups(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(5))
        async with consuming(bootstrap) as consumer:
            assert await consumer.beginning_offsets([tp]) == {tp: 0}
            assert await consumer.end_offsets([tp]) == {tp: 5}
            other = TopicPartition(tp.topic, 1)
            found = await consumer.offsets_for_times({tp: START_MS + 1500, other: START_MS})
            assert found == {tp: OffsetAndTimestamp(2, START_MS + 2000, 0), other: None}
            with pytest.raises(ValueError, match="not a timestamp"):
                await consumer.offsets_for_times({tp: -1})
            assert [partition.index for partition in await consumer.partitions_for(tp.topic)] == [0, 1]
            topics = await consumer.list_topics()
            assert len(topics[tp.topic]) == 2
            assert "__consumer_offsets" not in topics
            missing = TopicPartition(tp.topic, 9)
            for call in (consumer.end_offsets([missing]), consumer.partitions_for("no-such-topic")):
                with pytest.raises(ApiError) as caught:
                    await call
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(broker, work, partitions=2)


def test_lag(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(5))
        async with consuming(bootstrap, tp) as consumer:
            assert consumer.lag(tp) is None
            await consumer.poll(10, max_records=2)
            assert consumer.lag(tp) == 3
            await consumer.poll(10)
            assert consumer.lag(tp) == 0
            names = {name.name for name in consumer.metrics()}
            assert {"records-lag-max", "records-consumed-rate", "fetch-latency-avg", "time-between-poll-avg"} <= names

    run(broker, work)


def test_large_records_make_progress_through_small_fetches(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        other = TopicPartition(tp.topic, 1)
        for partition in (tp, other):
            for size in (10, 5000, 20, 30_000):
                await append(bootstrap, partition, [b"x" * size])
        config: dict[str, object] = {"max.partition.fetch.bytes": 100, "fetch.max.bytes": 200}
        async with consuming(bootstrap, tp, other, config=config) as consumer:
            assert sorted(map(len, await read_values(consumer, 8))) == [10, 10, 20, 20, 5000, 5000, 30_000, 30_000]

    run(broker, work, partitions=2)


def test_deserializers(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, [b"1", b"2", b"three", b"4"])
        async with consuming(bootstrap, tp, value_deserializer=lambda topic, data: int(data)) as consumer:
            assert await read_values(consumer, 2) == [1, 2]
            for _ in range(2):
                with pytest.raises(SerializationError, match=f"topic {tp.topic}, partition 0, offset 2: the value"):
                    await consumer.poll(10)
                assert await consumer.position(tp) == 2
            consumer.seek(tp, 3)
            assert await read_values(consumer, 1) == [4]
            consumer.seek(tp, 2)
            with pytest.raises(SerializationError):
                async for _ in consumer:
                    pass

    run(broker, work)


def test_interceptors(broker: EmbeddedBroker) -> None:
    class Spy:
        def __init__(self) -> None:
            self.committed: list[Any] = []

        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            return ConsumerRecords(replace(record, value=b"seen " + (record.value or b"")) for record in records)

        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            self.committed.append(offsets)

    class Broken:
        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            raise RuntimeError

        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            raise RuntimeError

    async def work(bootstrap: str, tp: TopicPartition) -> None:
        spy = Spy()
        await append(bootstrap, tp, numbers(3))
        async with consuming(bootstrap, tp, config={"group.id": tp.topic}, interceptors=[Broken(), spy]) as consumer:
            assert [record.value for record in await consumer.poll(10, max_records=2)] == [b"seen 0", b"seen 1"]
            await consumer.commit()
            async for record in consumer:
                assert record.value == b"seen 2"
                break
            consumer.commit_async()
            await consumer.commit()
            assert [offsets[tp].offset for offsets in spy.committed] == [2, 3, 3]

    run(broker, work)


def test_interceptors_are_called_after_automatic_commits(broker: EmbeddedBroker) -> None:
    class Spy:
        def __init__(self) -> None:
            self.committed: list[Any] = []

        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            return records

        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            self.committed.append(offsets)

    async def work(bootstrap: str, tp: TopicPartition) -> None:
        spy = Spy()
        await append(bootstrap, tp, numbers(3))
        config = {"group.id": tp.topic, "enable.auto.commit": True}
        async with consuming(bootstrap, tp, config=config, interceptors=[spy]) as consumer:
            await consumer.poll(10)
        assert spy.committed[-1][tp].offset == 3

    run(broker, work)


def test_commits_of_assigned_partitions(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(10))
        config: dict[str, object] = {"group.id": tp.topic, "enable.auto.commit": False}
        async with consuming(bootstrap, tp, config=config) as consumer:
            assert await consumer.committed([tp]) == {}
            await consumer.poll(10, max_records=4)
            await consumer.commit()
            assert await consumer.committed([tp]) == {tp: OffsetAndMetadata(4, "", 0)}
            await consumer.commit({tp: 2})
            await consumer.commit({tp: OffsetAndMetadata(3, "note")})
            assert (await consumer.committed([tp]))[tp] == OffsetAndMetadata(3, "note")
            results: list[Any] = []
            consumer.commit_async({tp: 5}, lambda offsets, error: results.append((offsets[tp].offset, error)))
            consumer.commit_async({tp: 6}, lambda offsets, error: results.append((offsets[tp].offset, error)))
            await consumer.commit({tp: 7})
            assert results == [(5, None), (6, None)]
            assert consumer.group_metadata().group_id == tp.topic
        async with consuming(bootstrap, tp, config=config) as consumer:
            assert await consumer.position(tp) == 7
            assert (await consumer.poll(10))[0].value == b"7"

    run(broker, work)


def test_auto_commit_at_the_end(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(10))
        async with consuming(bootstrap, tp, config={"group.id": tp.topic}) as consumer:
            await consumer.poll(10, max_records=4)
        async with consuming(bootstrap, config={"group.id": tp.topic}) as consumer:
            assert (await consumer.committed([tp]))[tp].offset == 4

    run(broker, work)


class Events(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", set(partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("revoked", set(partitions)))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_one(broker: EmbeddedBroker, protocol: str) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        await append(bootstrap, tp, numbers(3))
        listener = Events()
        config: dict[str, object] = {"group.id": tp.topic, "group.protocol": protocol}
        async with consuming(bootstrap, config=config) as consumer:
            consumer.subscribe(tp.topic, listener)
            assert consumer.subscription() == {tp.topic}
            assert await read_values(consumer, 3) == numbers(3)
            assert consumer.assignment() == {tp}
            assert consumer.group_metadata().member_id
            consumer.enforce_rebalance()
            with pytest.raises(ClientStateError, match="unsubscribe"):
                consumer.assign([tp])
            await consumer.unsubscribe()
            assert consumer.assignment() == set()
            assert listener.events[0] == ("assigned", {tp})
            assert listener.events[-1] == ("revoked", {tp})
            consumer.assign([tp])
            assert await consumer.position(tp) == 3

    run(broker, work)


def test_a_pattern_finds_new_topics(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        config: dict[str, object] = {"group.id": tp.topic, "metadata.max.age.ms": 50}
        async with consuming(bootstrap, config=config) as consumer:
            consumer.subscribe(re.compile(re.escape(tp.topic) + "(-new)?"))
            await consumer.poll(0.05)
            later = TopicPartition(f"{tp.topic}-new", 0)
            await asyncio.to_thread(broker.create_topic, later.topic, partitions=1, config=KEEP)
            await append(bootstrap, later, [b"found"])
            assert await read_values(consumer, 1) == [b"found"]
            assert consumer.subscription() == {tp.topic, later.topic}

    run(broker, work)


def test_new_partitions_are_found(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions

        config: dict[str, object] = {"group.id": tp.topic, "metadata.max.age.ms": 50}
        async with consuming(bootstrap, config=config) as consumer:
            consumer.subscribe([tp.topic])
            while consumer.assignment() != {tp}:
                await consumer.poll(0.05)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            (future,) = admin.create_partitions([NewPartitions(tp.topic, 2)]).values()
            await asyncio.to_thread(future.result)
            later = TopicPartition(tp.topic, 1)
            await append(bootstrap, later, [b"found"])
            assert await read_values(consumer, 1) == [b"found"]
            assert consumer.assignment() == {tp, later}

    run(broker, work)


def test_a_topic_that_is_deleted_and_created_again(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        from confluent_kafka.admin import AdminClient

        await append(bootstrap, tp, numbers(5))
        config: dict[str, object] = {"allow.auto.create.topics": False, "retry.backoff.ms": 5}
        async with consuming(bootstrap, tp, config=config) as consumer:
            assert len(await read_values(consumer, 5)) == 5
            admin = AdminClient({"bootstrap.servers": bootstrap})
            (future,) = admin.delete_topics([tp.topic]).values()
            await asyncio.to_thread(future.result)
            assert await consumer.poll(0.05) == []
            await asyncio.to_thread(broker.create_topic, tp.topic, partitions=1, config=KEEP)
            await append(bootstrap, tp, [b"again"])
            # The old position, 5, does not exist any more.
            assert await read_values(consumer, 1) == [b"again"]

    run(broker, work)


def test_a_topic_that_does_not_exist_yet(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        later = TopicPartition(f"{tp.topic}-later", 0)
        config: dict[str, object] = {"allow.auto.create.topics": False, "retry.backoff.ms": 5}
        async with consuming(bootstrap, later, config=config) as consumer:
            assert await consumer.poll(0.05) == []
            await asyncio.to_thread(broker.create_topic, later.topic, partitions=1, config=KEEP)
            await append(bootstrap, later, [b"a"])
            assert await read_values(consumer, 1) == [b"a"]

    run(broker, work)


@pytest.mark.parametrize("how", ["assign", "subscribe"])
def test_topics_are_created_by_requesting_them(broker: EmbeddedBroker, how: str) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        later = TopicPartition(f"{tp.topic}-auto", 0)
        async with consuming(bootstrap, config={"group.id": tp.topic, "retry.backoff.ms": 5}) as consumer:
            if how == "assign":
                consumer.assign([later])
            else:
                consumer.subscribe([later.topic])
            while later.topic not in await consumer.list_topics():
                await consumer.poll(0.02)
            await append(bootstrap, later, [b"a"])
            assert await read_values(consumer, 1) == [b"a"]

    run(broker, work)


def test_an_invalid_topic_is_an_error(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        async with consuming(bootstrap, config={"group.id": tp.topic}) as consumer:
            consumer.subscribe(["not valid"])
            with pytest.raises(ApiError, match="not valid") as caught:
                await consumer.poll(10)
            assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(broker, work)


def test_calls_that_do_not_fit_the_state(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        async with consuming(bootstrap) as consumer:
            with pytest.raises(ClientStateError, match="subscribe or assign"):
                await consumer.poll(0)
            with pytest.raises(ClientStateError, match=r"needs a group\.id"):
                consumer.subscribe(["t"])
            with pytest.raises(ClientStateError, match=r"no group\.id"):
                await consumer.commit()
            with pytest.raises(ClientStateError, match=r"no group\.id"):
                consumer.group_metadata()
            with pytest.raises(ClientStateError, match="no group to rebalance"):
                consumer.enforce_rebalance()
            consumer.assign([tp])
            polling = asyncio.ensure_future(consumer.poll(5))
            await asyncio.sleep(0)
            with pytest.raises(ClientStateError, match="another task is polling"):
                await consumer.poll(0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await polling
            with pytest.raises(ClientStateError, match="not assigned"):
                consumer.seek(TopicPartition(tp.topic, 5), 0)
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.poll(0)
        await consumer.close()
        async with consuming(bootstrap, config={"group.id": tp.topic}) as consumer:
            with pytest.raises(ClientStateError, match="unsubscribe"):
                consumer.subscribe([])

    run(broker, work)


def test_unknown_settings_are_an_error() -> None:
    with pytest.raises(ConfigError, match="group"):
        Consumer({"bootstrap.servers": "localhost:1", "group.idd": "g"})


def test_assigning_again_keeps_positions(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition) -> None:
        other = TopicPartition(tp.topic, 1)
        await append(bootstrap, tp, numbers(4))
        await append(bootstrap, other, [b"other"])
        async with consuming(bootstrap, tp) as consumer:
            assert len(await consumer.poll(10, max_records=2)) == 2
            consumer.assign([tp, other])
            assert sorted(await read_values(consumer, 3)) == [b"2", b"3", b"other"]
            consumer.assign([other])
            assert consumer.assignment() == {other}
            with pytest.raises(ClientStateError):
                consumer.lag(tp)

    run(broker, work, partitions=2)
