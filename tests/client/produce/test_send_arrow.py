"""Arrow tables, which go through the same accumulator as single records."""

import asyncio
import gc
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import arrow
from rookery.client.errors import (
    BufferExhaustedError,
    ClientStateError,
    SerializationError,
    TransactionAbortableError,
)
from rookery.client.produce.records import BatchMetadata
from rookery.protocol.api import ApiKey
from rookery.testing import EmbeddedBroker
from tests.client.fake_broker import FakeBroker, produced
from tests.client.produce.support import (
    BytesProducer,
    configured,
    producer_ids,
    read_batches,
    read_values,
    run_with,
    silence,
    until_a_sender_waits,
)
from tests.client.produce.transaction_stage import until_done
from tests.client.skipping import skip_time


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    arrow.load()
    with EmbeddedBroker(settings={"num.partitions": "3", "transaction.state.log.num.partitions": "1"}) as broker:
        yield broker


def values(count: int, size: int = 10) -> list[bytes]:
    return [b"%d" % number + bytes(size) for number in range(count)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_arrive_in_the_order_of_their_partitions(broker: EmbeddedBroker, codec: str) -> None:
    topic = f"arrow-{codec}"

    async def run() -> None:
        config = configured(broker.bootstrap_servers, compression_type=codec, batch_size=1000)
        async with BytesProducer(config) as producer:
            before = await producer.send(topic, b"before", partition=0)
            partitions = [number % 3 for number in range(300)]
            table = pa.table({"value": values(300), "partition": pa.array(partitions, pa.int32())})
            delivered = await (await producer.send_arrow(table, topic))
            after = await (await producer.send(topic, b"after", partition=0))
            assert (await before).offset == 0
            assert after.offset == 101
        assert sum(each.record_count for each in delivered) == 300
        assert delivered == sorted(delivered)
        for partition in range(3):
            expected: list[bytes | None] = list(values(300)[partition::3])
            if partition == 0:
                expected = [b"before", *expected, b"after"]
            assert await read_values(broker.bootstrap_servers, topic, partition) == expected
            for header, _ in await read_batches(broker.bootstrap_servers, topic, partition):
                assert header.producer_id >= 0
                assert header.base_sequence == header.base_offset

    asyncio.run(run())


def test_a_lost_response_duplicates_no_row(broker: EmbeddedBroker) -> None:
    broker.faults.drop_connection("Produce", times=2, carry_out=True)

    async def run() -> None:
        async with BytesProducer(
            configured(broker.bootstrap_servers, batch_size=500), randomness=Random(1)
        ) as producer:
            delivered = await (await producer.send_arrow(pa.table({"value": values(200)}), "arrow-lost"))
        assert {each.partition for each in delivered} == {0, 1, 2}
        stored = [await read_values(broker.bootstrap_servers, "arrow-lost", partition) for partition in range(3)]
        assert sorted(value for some in stored for value in some if value) == sorted(values(200))

    asyncio.run(run())


def test_a_batch_of_rows_above_the_topics_limit_is_split(broker: EmbeddedBroker) -> None:
    broker.create_topic("arrow-small", partitions=1, config={"max.message.bytes": "1000"})

    async def run() -> None:
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            delivered = await (await producer.send_arrow(pa.table({"value": values(50, 90)}), "arrow-small"))
        assert len(delivered) > 4
        assert [each.base_offset for each in delivered] == [0, *list(_ends(delivered))[:-1]]
        assert await read_values(broker.bootstrap_servers, "arrow-small") == values(50, 90)

    asyncio.run(run())


def _ends(delivered: list[BatchMetadata]) -> Iterator[int]:
    for each in delivered:
        yield each.base_offset + each.record_count


def test_a_table_larger_than_the_buffer_waits_for_memory(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        config = configured(broker.bootstrap_servers, buffer_memory=3000, batch_size=1000)
        async with BytesProducer(config) as producer:
            await (await producer.send_arrow(pa.table({"value": values(500, 50)}), "arrow-long"))
            assert producer._accumulator.free_bytes == 3000

    asyncio.run(run())


def test_errors_are_raised_by_the_call_or_by_the_future(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            with pytest.raises(SerializationError, match="value"):
                await producer.send_arrow(pa.table({"key": [b"a"]}), "arrow-errors")
            broker.faults.fail("Produce", "INVALID_RECORD")
            with pytest.raises(ApiError) as caught:
                await (await producer.send_arrow(pa.table({"value": [b"a"]}), "arrow-errors"))
            assert caught.value.code == ErrorCode.INVALID_RECORD
        config = configured(broker.bootstrap_servers, partitioner_class="round-robin")
        async with BytesProducer(config) as producer:
            with pytest.raises(ClientStateError, match="column partition"):
                await producer.send_arrow(pa.table({"value": [b"a"]}), "arrow-errors")

    asyncio.run(run())


def test_a_full_buffer_is_reported_once() -> None:
    complaints: list[str] = []

    async def work(broker: FakeBroker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        producer = BytesProducer(configured(broker, buffer_memory=500, batch_size=400, max_block_ms=20_000))
        sending = asyncio.create_task(producer.send_arrow(pa.table({"value": values(20, 50)}), "t"))
        await until_a_sender_waits(producer)
        skip_time(20)
        with pytest.raises(BufferExhaustedError):
            await sending
        await producer.close(0)

    run_with(silence, work)
    gc.collect()
    # The future of the queued rows was not returned.
    assert [line for line in complaints if "never retrieved" in line] == []


def test_rows_go_to_the_topic_argument(broker: EmbeddedBroker) -> None:
    """A job that copies a topic does not write the records back to it."""

    async def run() -> None:
        table = pa.table({"value": [b"a", b"b"], "topic": ["arrow-source"] * 2})
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            delivered = await (await producer.send_arrow(table, "arrow-target"))
        assert {each.topic for each in delivered} == {"arrow-target"}

    asyncio.run(run())


def test_batches_of_rows_fit_a_small_buffer() -> None:
    async def work(broker: FakeBroker) -> None:
        async with BytesProducer(configured(broker, buffer_memory=20_000)) as producer:
            delivered = await (await producer.send_arrow(pa.table({"value": values(1000, 100)}), "t"))
        assert sum(each.record_count for each in delivered) == 1000

    run_with(produced(), work)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_partly_queued_table_prevents_the_commit(broker: EmbeddedBroker, is_cancelled: bool) -> None:
    async def run() -> None:
        config = configured(broker.bootstrap_servers, transactional_id="arrow", buffer_memory=3000, batch_size=1000)
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        # The limit is below request.timeout.ms: requests in flight do not time out when time is skipped.
        async with BytesProducer(config | {"max.block.ms": 20_000}) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("arrow-half", b"first"))
            delay = broker.faults.delay("Produce", 0.5, times=None)
            sending = asyncio.create_task(producer.send_arrow(pa.table({"value": values(500, 50)}), "arrow-half"))
            while not (delay.hits and producer._memory_waiters) and not sending.done():
                await asyncio.sleep(0)
            if is_cancelled:
                sending.cancel()
            else:
                skip_time(20)
            with pytest.raises(asyncio.CancelledError if is_cancelled else BufferExhaustedError):
                await sending
            broker.faults.clear()
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await until_done(producer.abort_transaction)
        gc.collect()
        assert [line for line in complaints if "never retrieved" in line] == []

    asyncio.run(run())


def test_a_waiting_batch_does_not_keep_the_memory_of_settled_ones() -> None:
    async def run() -> None:
        answers = {ApiKey.PRODUCE: produced(), ApiKey.INIT_PRODUCER_ID: producer_ids()}
        async with FakeBroker(answers, topics={"t": 16}, leaderless=[0]) as broker:
            producer = BytesProducer(configured(broker, batch_size=4096))
            partitions = pa.array([number % 16 for number in range(800)], pa.int32())
            sent = await producer.send_arrow(pa.table({"value": values(800, 200), "partition": partitions}), "t")
            stuck = producer._accumulator.queue(TopicPartition("t", 0)).waiting
            while producer._accumulator.unsettled_count > len(stuck):
                await asyncio.sleep(0)
            assert len(stuck) > 1
            assert all(type(batch.payload) is bytes for batch in stuck)
            await producer.close(0)
            with pytest.raises(ApiError):
                await sent

    asyncio.run(run())
