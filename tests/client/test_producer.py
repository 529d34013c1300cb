import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.producer import Acks, Landed, Producer
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import BatchHeader, Codec, read_header
from rookery.records.record import decode_records
from tests.client.fake_broker import HANG_UP, Answer, FakeBroker, produced


def in_turn(*answers: Answer) -> Answer:
    """Each answer once, the last one from then on."""
    remaining = list(answers)

    def answer(version: int, request: Message) -> Message | None:
        current = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return current(version, request)

    return answer


def producer_ids() -> Answer:
    numbers = iter(range(100, 200))
    return lambda version, request: Message(
        throttle_time_ms=0,
        error_code=0,
        producer_id=next(numbers),
        producer_epoch=0,
        ongoing_txn_producer_id=-1,
        ongoing_txn_producer_epoch=-1,
    )


def hang_up(version: int, request: Message) -> Message:
    return HANG_UP


def run_with(
    produce: Answer, work: Callable[[Cluster], Awaitable[None]], **versions: int
) -> tuple[list[bytes], FakeBroker]:
    """Run `work` against a broker with the topic t of two partitions; the batches that it received."""

    async def run() -> tuple[list[bytes], FakeBroker]:
        answers = {ApiKey.PRODUCE: produce, ApiKey.INIT_PRODUCER_ID: producer_ids()}
        async with FakeBroker(answers, topics={"t": 2}, versions=versions) as broker:
            async with Cluster([broker.address], timeout_s=10) as cluster:
                await work(cluster)
            return batches_of(broker), broker

    return asyncio.run(run())


def batches_of(broker: FakeBroker) -> list[bytes]:
    return [
        bytes(partition.records)
        for request in broker.requests_of(ApiKey.PRODUCE)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def sequence_of(header: BatchHeader) -> tuple[int, int, int]:
    return header.producer_id, header.base_sequence, header.record_count


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1))
def test_a_record_arrives_as_it_was_sent_in_every_version(version: int) -> None:
    landed: list[Landed] = []

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, codec=Codec.GZIP, clock=ManualClock(5)) as producer:
            sent = await producer.send("t", b"v", key=b"k", partition=1, headers=(("h", None),), timestamp_ms=77)
            landed.append(await sent)

    (batch,), _ = run_with(produced(base_offset=40), work, PRODUCE=version)
    assert landed == [Landed("t", 1, 40, 77)]
    (record,) = decode_records(batch)
    assert record == (0, 77, b"k", b"v", (("h", None),))


def test_records_sent_together_share_a_batch_and_take_the_clocks_time() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, clock=ManualClock(5)) as producer:
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
            assert [landed.offset for landed in await asyncio.gather(*sent)] == list(range(10))

    (batch,), _ = run_with(produced(), work)
    assert [record.value for record in decode_records(batch)] == [b"%d" % number for number in range(10)]
    assert {record.timestamp_ms for record in decode_records(batch)} == {5}


@pytest.mark.parametrize("failure", [hang_up, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_retry_repeats_the_sequence_number(failure: Answer) -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            first = await producer.send("t", b"a", partition=0)
            await first
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(failure, produced()), work)
    headers = [sequence_of(read_header(batch)) for batch in batches]
    assert headers == [(100, 0, 1), (100, 0, 1), (100, 1, 1)]
    assert batches[0] == batches[1]


def test_a_duplicate_counts_as_written() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            landed = await (await producer.send("t", b"a", partition=0))
            assert landed.offset == -1

    run_with(produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1), work)


def test_a_refused_batch_fails_its_records_and_the_next_has_a_new_identity() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            refused = [await producer.send("t", b"a", partition=0) for _ in range(3)]
            errors = await asyncio.gather(*refused, return_exceptions=True)
            assert [error.code for error in errors if isinstance(error, ApiError)] == [ErrorCode.MESSAGE_TOO_LARGE] * 3
            await (await producer.send("t", b"b", partition=0))

    batches, _ = run_with(in_turn(produced(ErrorCode.MESSAGE_TOO_LARGE), produced()), work)
    assert [sequence_of(read_header(batch)) for batch in batches] == [(100, 0, 3), (101, 0, 1)]


def test_a_batch_is_given_up_after_the_delivery_timeout() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, delivery_timeout_s=0.1) as producer:
            with pytest.raises(ApiError) as caught:
                await (await producer.send("t", b"a", partition=0))
            assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS

    run_with(produced(ErrorCode.NOT_ENOUGH_REPLICAS), work)


def test_acks_none_waits_for_no_answer() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, acks=Acks.NONE) as producer:
            landed = await (await producer.send("t", b"a", partition=0))
            assert landed.offset == -1
        # The answer to this request proves that the broker has read the one before it.
        await cluster.refresh()

    batches, broker = run_with(lambda version, request: None, work)
    assert len(batches) == 1
    assert read_header(batches[0]).producer_id == -1
    assert broker.requests_of(ApiKey.INIT_PRODUCER_ID) == []


def test_a_full_buffer_makes_send_wait() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, buffer_size_bytes=1000, batch_size_bytes=1000) as producer:
            sent = [await producer.send("t", bytes(400), partition=0) for _ in range(20)]
            assert producer._accumulator.size_bytes <= 1500
            await producer.flush()
            assert all(token.done() for token in sent)

    batches, _ = run_with(produced(), work)
    assert sum(read_header(batch).record_count for batch in batches) == 20


def test_a_partition_that_does_not_exist_is_refused_by_send() -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            with pytest.raises(ApiError, match="only 2 partitions"):
                await producer.send("t", b"", partition=2)

    run_with(produced(), work)


def test_a_failed_block_drops_what_waits() -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(ApiError, match="only 2 partitions"):
            await fail(cluster)

    async def fail(cluster: Cluster) -> None:
        async with Producer(cluster) as producer:
            await producer.send("t", b"a")
            await producer.send("t", b"b", partition=2)

    run_with(lambda version, request: None, work)


def test_what_was_dropped_is_cancelled() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Producer(cluster)
        under_way = await producer.send("t", b"a", partition=0)
        await cluster.refresh()
        waiting = await producer.send("t", b"b", partition=0)
        await producer.abort()
        assert under_way.cancelled()
        assert waiting.cancelled()

    run_with(lambda version, request: None, work)


def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    async def run() -> None:
        answers = {ApiKey.PRODUCE: produced(), ApiKey.INIT_PRODUCER_ID: producer_ids()}
        fake = FakeBroker(answers, topics={"t": 2}, leaderless=[0])
        async with fake as broker, Cluster([broker.address], timeout_s=10) as cluster:
            producer = Producer(cluster)
            stuck = await producer.send("t", b"a", partition=0)
            for _ in range(3):
                await (await producer.send("t", b"b", partition=1))
            assert not stuck.done()
            await producer.abort()

    asyncio.run(run())
