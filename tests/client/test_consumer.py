import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consumer import BEGINNING, END, Consumer, StartOffset, StartTimestamp, read_fetched
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import Codec
from rookery.records.record import Record, build_batch
from tests.client.fake_broker import HANG_UP, Answer, FakeBroker

TP = TopicPartition("t", 0)


def batch(first: int, *values: bytes, codec: Codec = Codec.NONE, control: bool = False) -> bytes:
    records = [Record(first + index, 1000 + first + index, None, value, ()) for index, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=first, codec=codec, control=control))


def test_records_before_the_position_are_left_out() -> None:
    records, position = read_fetched(TP, batch(10, b"a", b"b", b"c") + batch(13, b"d"), 11)
    assert [(record.offset, record.value) for record in records] == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert position == 14


@given(st.integers(0, 400))
def test_a_batch_that_is_cut_off_waits_for_the_next_fetch(cut: int) -> None:
    whole = batch(0, b"a" * 50, codec=Codec.NONE) + batch(1, b"b" * 50, codec=Codec.ZSTD)
    first_size = len(batch(0, b"a" * 50))
    records, position = read_fetched(TP, whole[:cut], 0)
    complete = (cut >= first_size) + (cut >= len(whole))
    assert (len(records), position) == (complete, complete)


def test_control_batches_move_the_position_only() -> None:
    records, position = read_fetched(TP, batch(0, b"a") + batch(1, b"marker", control=True), 0)
    assert [record.offset for record in records] == [0]
    assert position == 2


def test_a_damaged_batch_is_never_opened() -> None:
    damaged = bytearray(batch(0, b"abc"))
    damaged[-2] ^= 1
    with pytest.raises(ApiError, match="checksum") as caught:
        read_fetched(TP, damaged, 0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def fetched(data: bytes, error_code: int = 0) -> Answer:
    def answer(version: int, request: Message) -> Message:
        (topic,) = request.topics
        row = Message(
            partition_index=topic.partitions[0].partition,
            error_code=error_code,
            high_watermark=100,
            last_stable_offset=100,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=data,
        )
        found = Message(topic=topic.get("topic"), topic_id=topic.get("topic_id"), partitions=[row])
        return Message(throttle_time_ms=0, error_code=0, session_id=0, responses=[found])

    return answer


def offsets(by_timestamp: dict[int, int]) -> Answer:
    def answer(version: int, request: Message) -> Message:
        rows = [
            Message(
                partition_index=partition.partition_index,
                error_code=0,
                timestamp=partition.timestamp,
                offset=by_timestamp.get(partition.timestamp, -1),
                leader_epoch=0,
            )
            for partition in request.topics[0].partitions
        ]
        return Message(throttle_time_ms=0, topics=[Message(name="t", partitions=rows)])

    return answer


def run_with(
    answers: list[Answer],
    work: Callable[[Cluster], Awaitable[None]],
    timestamps: dict[int, int] | None = None,
    **versions: int,
) -> list[int]:
    """Run `work` against scripted fetches; the offsets that were fetched from."""
    remaining = list(answers)

    def fetch(version: int, request: Message) -> Message | None:
        current = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return current(version, request)

    async def run() -> list[int]:
        script = {ApiKey.FETCH: fetch, ApiKey.LIST_OFFSETS: offsets(timestamps or {-1: 100, -2: 7})}
        async with FakeBroker(script, topics={"t": 1}, versions=versions) as broker:
            async with Cluster([broker.address], timeout_s=10) as cluster:
                await work(cluster)
            requests = broker.requests_of(ApiKey.FETCH)
            return [request.topics[0].partitions[0].fetch_offset for request in requests]

    return asyncio.run(run())


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.FETCH].minimum, DEFINED[ApiKey.FETCH].maximum + 1))
def test_polling_goes_on_where_it_stopped_in_every_version(version: int) -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign({TP: StartOffset(3)})
            assert [record.value for record in await consumer.poll()] == [b"a", b"b"]
            assert [record.value for record in await consumer.poll()] == [b"c"]
            assert consumer.position(TP) == 6

    assert run_with([fetched(batch(3, b"a", b"b")), fetched(batch(5, b"c"))], work, FETCH=version) == [3, 5]


@pytest.mark.parametrize(
    ("start", "position"), [(BEGINNING, 7), (END, 100), (StartTimestamp(5000), 42), (StartTimestamp(9999), 100)]
)
def test_starting_points(start: StartTimestamp, position: int) -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign({TP: start})
            assert consumer.position(TP) == position

    run_with([fetched(b"")], work, {-1: 100, -2: 7, 5000: 42})


@pytest.mark.parametrize(
    "version", range(DEFINED[ApiKey.LIST_OFFSETS].minimum, DEFINED[ApiKey.LIST_OFFSETS].maximum + 1)
)
def test_every_version_of_list_offsets(version: int) -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign({TP: BEGINNING})
            assert consumer.position(TP) == 7

    run_with([fetched(b"")], work, LIST_OFFSETS=version)


def test_a_position_that_is_gone_is_reset() -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign({TP: StartOffset(3)})
            assert await consumer.poll() == []
            assert [record.offset for record in await consumer.poll()] == [7]

    out_of_range = fetched(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
    assert run_with([out_of_range, fetched(batch(7, b"a"))], work) == [3, 7]


def test_a_position_that_is_gone_is_an_error_if_asked_so() -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster, reset=None) as consumer:
            await consumer.assign({TP: StartOffset(3)})
            with pytest.raises(ApiError) as caught:
                await consumer.poll()
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    run_with([fetched(b"", ErrorCode.OFFSET_OUT_OF_RANGE)], work)


def test_a_lost_broker_is_asked_again() -> None:
    async def work(cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign({TP: StartOffset(0)})
            async for record in consumer:
                assert record.value == b"a"
                break

    hang_up: Answer = lambda version, request: HANG_UP  # noqa: E731
    not_leader = fetched(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert run_with([hang_up, not_leader, fetched(batch(0, b"a"))], work) == [0, 0, 0]


def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    async def run() -> None:
        fake = FakeBroker({ApiKey.FETCH: fetched(batch(0, b"a"))}, topics={"t": 2}, leaderless=[1])
        async with fake as broker, Cluster([broker.address], timeout_s=10) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({TopicPartition("t", 1): StartOffset(0), TP: StartOffset(0)})
            assert [record.value for record in await consumer.poll()] == [b"a"]

    asyncio.run(run())


def test_a_failure_beside_records_is_told_on_the_next_poll() -> None:
    def answer(version: int, request: Message) -> Message:
        good = fetched(batch(0, b"a"))(version, request)
        bad = fetched(b"", ErrorCode.TOPIC_AUTHORIZATION_FAILED)(version, request)
        assert good is not None
        assert bad is not None
        (topic,), (other,) = good.responses, bad.responses
        other.partitions[0].partition_index = 1
        topic.partitions = other.partitions + topic.partitions
        return good

    async def run() -> None:
        fake = FakeBroker({ApiKey.FETCH: answer}, topics={"t": 2})
        async with fake as broker, Cluster([broker.address], timeout_s=10) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({TP: StartOffset(0), TopicPartition("t", 1): StartOffset(0)})
            assert [record.value for record in await consumer.poll()] == [b"a"]
            with pytest.raises(ApiError) as caught:
                await consumer.poll()
            assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    asyncio.run(run())
