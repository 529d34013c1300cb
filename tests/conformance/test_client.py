"""Rookery's client with Rookery and with Apache Kafka: the same tests, so that neither is tuned to the other."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client import (
    BEGINNING,
    END,
    Consumer,
    OffsetAndMetadata,
    RebalanceListener,
    Timestamp,
)
from rookery.client.admin import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from rookery.client.errors import (
    ClientStateError,
    NoOffsetError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RecordTooLargeError,
)
from tests.conformance import brokers
from tests.conformance.scene import OLD_MS, TIMEOUT_S, Scene, numbers, play, read, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


@pytest.fixture(scope="module", params=brokers.BOTH)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from brokers.start(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def scene(bootstrap: str, topic: str) -> Scene:
    return Scene(bootstrap, topic)


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(scene: Scene, codec: str) -> None:
    async def work() -> None:
        await scene.create(3)
        headers = (("origin", b"here"), ("empty", b""), ("null", None))
        async with scene.producer(compression_type=codec) as producer:
            futures = [
                await producer.send(
                    scene.topic, b"v%d" % n, key=b"k%d" % n, headers=headers, timestamp_ms=OLD_MS + n, partition=n % 3
                )
                for n in range(90)
            ]
            tombstone = await producer.send(scene.topic, None, key=b"gone", partition=0)
        landed = [future.result() for future in futures]
        assert [(place.partition, place.offset) for place in landed] == [(n % 3, n // 3) for n in range(90)]
        assert tombstone.result().offset == 30
        async with scene.consumer() as consumer:
            consumer.assign([scene.partition(index) for index in range(3)])
            found = await read(consumer, 91)
        by_key = {record.key: record for record in found}
        for n in range(90):
            record = by_key[b"k%d" % n]
            assert record.value == b"v%d" % n
            assert (record.partition, record.offset, record.timestamp_ms) == (n % 3, n // 3, OLD_MS + n)
            assert record.headers == headers
        assert by_key[b"gone"].value is None

    play(work())


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(scene: Scene, acks: str) -> None:
    async def work() -> None:
        await scene.create()
        async with scene.producer(acks=acks) as producer:
            futures = [await producer.send(scene.topic, b"%d" % n) for n in range(50)]
            offsets = [(await future).offset for future in futures]
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))
        async with scene.consumer() as consumer:
            consumer.assign([scene.partition()])
            assert numbers(await read(consumer, 50)) == list(range(50))

    play(work())


def test_a_record_too_large_fails_alone(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(max_message_bytes="20000")
        async with scene.producer(max_request_size=100_000, linger_ms=50) as producer:
            small = [await producer.send(scene.topic, b"1")]
            with pytest.raises(RecordTooLargeError):
                await producer.send(scene.topic, b"x" * 200_000)
            large = await producer.send(scene.topic, b"x" * 50_000)
            small.append(await producer.send(scene.topic, b"2"))
            await producer.flush()
            assert [future.result().offset for future in small] == [0, 1]
            with pytest.raises(ApiError) as refused:
                await large
            assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

    play(work())


def test_an_unknown_topic_is_named(scene: Scene) -> None:
    async def work() -> None:
        async with scene.producer(max_block_ms=500) as producer:
            with pytest.raises(ApiError, match=scene.topic):
                await producer.send(scene.topic, b"1")

    play(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_shares_the_partitions_and_continues_at_its_offsets(scene: Scene, protocol: str) -> None:
    async def work() -> None:
        await scene.create(4)
        for index in range(4):
            await scene.fill(10, partition=index, start=10 * index)
        async with scene.member(group_protocol=protocol) as first, scene.member(group_protocol=protocol) as second:
            members = (first, second)
            for member in members:
                member.subscribe([scene.topic])
            seen: list[int] = []

            async def shared() -> bool:
                for member in members:
                    seen.extend(numbers(await member.poll(0.2)))
                return [len(member.assignment()) for member in members] == [2, 2] and len(set(seen)) == 40

            await until(shared)
            for member in members:
                await member.commit()
        async with scene.member(group_protocol=protocol) as third:
            every = [scene.partition(index) for index in range(4)]
            committed = await third.committed(every)
            assert {tp: position.offset for tp, position in committed.items()} == dict.fromkeys(every, 10)
            third.subscribe([scene.topic])
            await scene.fill(1, partition=2, start=99)
            assert numbers(await read(third, 1)) == [99]

    play(work())


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_assignor_reaches_every_partition(scene: Scene, assignor: str) -> None:
    async def work() -> None:
        await scene.create(6)
        settings: dict[str, object] = {"partition_assignment_strategy": assignor, "heartbeat_interval_ms": 200}
        async with scene.member(**settings) as first, scene.member(**settings) as second:
            for member in (first, second):
                member.subscribe([scene.topic])

            async def balanced() -> bool:
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
                both = first.assignment(), second.assignment()
                return sorted(map(len, both)) == [3, 3] and len(both[0] | both[1]) == 6

            await until(balanced)
            await second.close()

            async def alone() -> bool:
                await first.poll(0.1)
                return len(first.assignment()) == 6

            await until(alone)

    play(work())


def test_listeners_are_called_for_every_change_and_commit_before_it(scene: Scene) -> None:
    events: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def __init__(self, consumer: Consumer[Any, Any]) -> None:
            self._consumer = consumer

        async def on_partitions_assigned(self, partitions: Any) -> None:
            events.append(("assigned", len(partitions)))

        async def on_partitions_revoked(self, partitions: Any) -> None:
            await self._consumer.commit()
            events.append(("revoked", len(partitions)))

    async def work() -> None:
        await scene.create(2)
        await scene.fill(5)
        settings: dict[str, object] = {"enable_auto_commit": False, "partition_assignment_strategy": "range"}
        async with scene.member(**settings) as first, scene.member(**settings) as second:
            first.subscribe([scene.topic], Listener(first))
            await read(first, 5)
            second.subscribe([scene.topic])

            async def shared() -> bool:
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
                return len(first.assignment()) == len(second.assignment()) == 1

            await until(shared)
            committed = await first.committed([scene.partition()])
            assert committed[scene.partition()].offset == 5
        assert events[:3] == [("assigned", 2), ("revoked", 2), ("assigned", 1)]

    play(work())


def test_a_static_member_comes_back_without_a_rebalance(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(2)
        settings: dict[str, object] = {"session_timeout_ms": 20_000, "partition_assignment_strategy": "range"}
        async with scene.member(group_instance_id="other", **settings) as other:
            first = scene.member(group_instance_id="one", **settings)
            for member in (other, first):
                member.subscribe([scene.topic])

            async def shared() -> bool:
                await asyncio.gather(first.poll(0.1), other.poll(0.1))
                return len(first.assignment()) == len(other.assignment()) == 1

            await until(shared)
            before, generation = first.assignment(), other.group_metadata().generation_id
            await first.close()
            async with scene.member(group_instance_id="one", **settings) as again:
                again.subscribe([scene.topic])

                async def back() -> bool:
                    await asyncio.gather(again.poll(0.1), other.poll(0.1))
                    return again.assignment() == before

                await until(back)
                assert other.group_metadata().generation_id == generation

    play(work())


def test_a_pattern_matches_topics_that_are_created_later(scene: Scene) -> None:
    async def work() -> None:
        await scene.create()
        later = Scene(scene.bootstrap, f"{scene.topic}-later")
        async with scene.member(metadata_max_age_ms=300) as consumer:
            consumer.subscribe(re.compile(f"{re.escape(scene.topic)}.*"))
            await scene.fill(1)
            await read(consumer, 1)
            await later.create()
            await later.fill(1, start=7)
            assert numbers(await read(consumer, 1)) == [7]

    play(work())


def test_seek_pause_and_positions(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(2)
        for index in range(2):
            await scene.fill(20, partition=index, start=100 * index)
        both = [scene.partition(0), scene.partition(1)]
        async with scene.consumer() as consumer:
            consumer.assign(both)
            consumer.seek(both[0], 15)
            consumer.pause(both[1])
            assert numbers(await read(consumer, 5)) == [15, 16, 17, 18, 19]
            assert consumer.paused() == {both[1]}
            consumer.resume(both[1])
            assert numbers(await read(consumer, 20)) == list(range(100, 120))
            assert [await consumer.position(tp) for tp in both] == [20, 20]
            assert consumer.lag(both[0]) == 0
            consumer.seek_to_beginning(*both)
            assert len(await read(consumer, 40)) == 40
            await consumer.seek_to_timestamp({both[0]: OLD_MS + 18_000})
            assert numbers(await read(consumer, 2)) == [18, 19]
            consumer.seek_to_end(both[0])
            await scene.fill(1, start=20)
            assert numbers(await read(consumer, 1)) == [20]
            assert await consumer.beginning_offsets(both) == {both[0]: 0, both[1]: 0}
            assert await consumer.end_offsets(both) == {both[0]: 21, both[1]: 20}
            found = (await consumer.offsets_for_times({both[1]: OLD_MS + 110_000}))[both[1]]
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (10, OLD_MS + 110_000)

    play(work())


def test_resets(scene: Scene) -> None:
    async def work() -> None:
        await scene.create()
        await scene.fill(10)
        async with scene.consumer(auto_offset_reset="none", group_id=scene.group) as consumer:
            consumer.assign([scene.partition()])
            with pytest.raises(NoOffsetError):
                await read(consumer, 1)
            consumer.seek(scene.partition(), 1000)
            with pytest.raises(OffsetOutOfRangeError):
                await read(consumer, 1)
        async with scene.consumer(auto_offset_reset="latest") as consumer:
            consumer.assign([scene.partition()])
            assert await consumer.position(scene.partition()) == 10
        async with scene.consumer(auto_offset_reset="by_duration:P10000D") as consumer:
            consumer.assign([scene.partition()])
            assert await consumer.position(scene.partition()) == 0

    play(work())


def test_commits(scene: Scene) -> None:
    async def work() -> None:
        await scene.create()
        await scene.fill(10)
        tp = scene.partition()
        async with scene.member(enable_auto_commit=False) as consumer:
            consumer.assign([tp])
            await read(consumer, 10)
            await consumer.commit({tp: OffsetAndMetadata(4, metadata="four")})
            committed = (await consumer.committed([tp]))[tp]
            assert (committed.offset, committed.metadata) == (4, "four")
            done = asyncio.get_running_loop().create_future()
            consumer.commit_async(callback=lambda offsets, error: done.set_result((offsets, error)))
            offsets, error = await done
            assert error is None
            assert offsets[tp].offset == 10

    play(work())


@pytest.mark.parametrize("transactions", ["committed", "aborted"])
def test_transactions(scene: Scene, transactions: str) -> None:
    async def work() -> None:
        await scene.create(2)
        async with scene.producer(transactional_id=scene.topic) as producer:
            await producer.init_transactions()
            for round_number in range(3):
                producer.begin_transaction()
                for index in range(2):
                    await producer.send(scene.topic, b"%d" % round_number, partition=index)
                await producer.flush()
                if transactions == "committed":
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send(scene.topic, b"9", partition=0)
            await producer.commit_transaction()
        async with scene.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([scene.partition(0), scene.partition(1)])
            expected = [0, 0, 1, 1, 2, 2, 9] if transactions == "committed" else [9]
            assert sorted(numbers(await read(consumer, len(expected)))) == expected

    play(work())


def test_offsets_move_with_their_transaction(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(2)
        await scene.fill(5)
        source = scene.partition(0)
        async with scene.member(enable_auto_commit=False) as consumer:
            consumer.subscribe([scene.topic])
            await read(consumer, 5)
            async with scene.producer(transactional_id=scene.topic) as producer:
                await producer.init_transactions()
                for commit, expected in ((False, None), (True, 5)):
                    producer.begin_transaction()
                    await producer.send(scene.topic, b"copy", partition=1)
                    offsets = {source: OffsetAndMetadata(5)}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
                    committed = await consumer.committed([source])
                    assert (committed[source].offset if source in committed else None) == expected

    play(work())


def test_a_newer_producer_fences_the_older(scene: Scene) -> None:
    async def work() -> None:
        await scene.create()
        older, newer = (scene.producer(transactional_id=scene.topic) for _ in range(2))
        with pytest.raises(ClientStateError):
            older.begin_transaction()
        await older.init_transactions()
        older.begin_transaction()
        await older.send(scene.topic, b"old")
        await older.flush()
        await newer.init_transactions()
        with pytest.raises(ProducerFencedError):
            await older.commit_transaction()
        newer.begin_transaction()
        await newer.send(scene.topic, b"1")
        await newer.commit_transaction()
        await newer.close()
        await older.close(0)
        async with scene.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([scene.partition()])
            assert numbers(await read(consumer, 1)) == [1]

    play(work())


@pytest.mark.parametrize("codec", CODECS)
def test_columns_there_and_back(scene: Scene, codec: str) -> None:
    async def work() -> None:
        await scene.create(3)
        rows = 5000
        batch = pa.record_batch(
            {
                "key": pa.array([b"k%d" % n for n in range(rows)], pa.binary()),
                "value": pa.array([None if n % 100 == 7 else b"%d" % n for n in range(rows)], pa.binary()),
                "timestamp": pa.array([OLD_MS + n for n in range(rows)], pa.timestamp("ms", "UTC")),
            }
        )
        async with scene.producer(compression_type=codec) as producer:
            landed = await (await producer.send_arrow(batch, scene.topic))
            assert sum(part.record_count for part in landed) == rows
            keyed = await (await producer.send(scene.topic, b"1", key=b"k42"))
        async with scene.consumer() as consumer:
            found = await consumer.read_arrow(scene.topic)
            assert found.num_rows == rows + 1
            table = pa.Table.from_batches([found]).sort_by([("partition", "ascending"), ("offset", "ascending")])
            by_key = {row["key"]: row for row in table.to_pylist()}
            assert by_key[b"k107"]["value"] is None
            assert by_key[b"k1"]["timestamp"].timestamp() * 1000 == pytest.approx(OLD_MS + 1)
            assert by_key[b"k42"]["partition"] == keyed.partition
            part = await consumer.read_arrow(scene.topic, start={0: 10}, end={0: 20})
            assert part.column("offset").to_pylist() == list(range(10, 20))
            assert (await consumer.read_arrow(scene.topic, start=END)).num_rows == 0
            late = await consumer.read_arrow(scene.topic, start=Timestamp(OLD_MS + 4999), end=END)
            assert sorted(late.column("key").to_pylist()) == [b"k42", b"k4999"]
            early = await consumer.read_arrow(scene.topic, start={1: BEGINNING}, end={1: 3})
            assert early.column("offset").to_pylist() == [0, 1, 2]
            consumer.assign([scene.partition(index) for index in range(3)])
            keys: list[bytes] = []
            async with asyncio.timeout(TIMEOUT_S):
                while len(keys) < rows + 1:
                    keys += (await consumer.poll_arrow(0.5)).column("key").to_pylist()
            assert sorted(keys) == sorted([*batch.column("key").to_pylist(), b"k42"])

    play(work())


def test_admin(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(2, retention_ms="1000000000")
        await scene.fill(4)
        async with scene.admin() as admin:
            assert scene.topic in [topic.name for topic in await admin.list_topics()]
            ports = {broker.port for broker in (await admin.describe_cluster()).brokers}
            assert ports == {int(scene.bootstrap.rsplit(":", 1)[1])}
            for outcome in await admin.create_partitions({scene.topic: 3}):
                outcome.check()
            await until(lambda: scene.has_leaders(admin, 3))
            deleted = await admin.delete_records({scene.partition(): 2})
            assert deleted[scene.partition()].low_watermark == 2
            async with scene.member() as consumer:
                consumer.subscribe([scene.topic])
                await read(consumer, 2)
                await consumer.commit()
                (described,) = await admin.describe_groups([scene.group])
                assert [len(member.assignment) for member in described.check().members] == [3]
                lags = {lag.partition: lag.lag for lag in await admin.lags(scene.group)}
                assert lags[scene.partition()] == 0
            for outcome in await admin.delete_groups([scene.group]):
                outcome.check()
            for outcome in await admin.delete_topics([scene.topic]):
                outcome.check()

    play(work())


def test_admin_of_configs_and_features(scene: Scene) -> None:
    async def work() -> None:
        await scene.create(retention_ms="1000000000")
        topic = ConfigResource(ResourceType.TOPIC, scene.topic)
        async with scene.admin() as admin:

            async def change(operation: ConfigOperation, value: str | None = None, **options: bool) -> ErrorCode:
                changes = {topic: [ConfigChange("retention.ms", operation, value)]}
                (outcome,) = await admin.alter_configs(changes, **options)
                return outcome.error

            async def retention() -> tuple[str | None, bool]:
                (described,) = await admin.describe_configs([topic], names=["retention.ms"])
                (entry,) = described.check().entries
                return entry.value, entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG

            assert await retention() == ("1000000000", True)
            assert await change(ConfigOperation.SET, "5000", validate_only=True) is ErrorCode.NONE
            assert await change(ConfigOperation.SET, "soon") is ErrorCode.INVALID_CONFIG
            assert await retention() == ("1000000000", True)

            async def becomes(value: str, *, is_own: bool) -> None:
                """Wait for a value: Kafka's broker applies a change a moment after its controller has confirmed it."""
                while await retention() != (value, is_own):
                    await asyncio.sleep(0.05)

            assert await change(ConfigOperation.SET, "2000000000") is ErrorCode.NONE
            await becomes("2000000000", is_own=True)
            assert await change(ConfigOperation.DELETE) is ErrorCode.NONE
            await becomes("604800000", is_own=False)
            features = {feature.name: feature for feature in (await admin.describe_features()).features}
            assert features["transaction.version"].level == features["transaction.version"].supported_max == 2
            assert features["group.version"].level == 1

    play(work())


def test_admin_of_transactions(scene: Scene) -> None:
    async def work() -> None:
        await scene.create()
        async with scene.admin() as admin, scene.producer(transactional_id=scene.topic) as producer:

            async def state() -> str | None:
                return next(
                    (t.state for t in await admin.list_transactions() if t.transactional_id == scene.topic), None
                )

            async def is_complete() -> bool:
                return await state() == "CompleteCommit"

            assert await state() is None
            await producer.init_transactions()
            assert await state() == "Empty"
            producer.begin_transaction()
            await (await producer.send(scene.topic, b"1"))
            assert await state() == "Ongoing"
            (described,) = await admin.describe_transactions([scene.topic])
            assert described.check().partitions == (scene.partition(),)
            await producer.commit_transaction()
            await until(is_complete)

    play(work())
