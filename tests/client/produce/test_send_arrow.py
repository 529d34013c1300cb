"""Whole tables through the same accumulator as single records."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client import arrow
from rookery.client.errors import BufferExhaustedError, ClientStateError, SerializationError
from rookery.client.produce.records import BatchMetadata
from rookery.testing import EmbeddedBroker
from tests.client.fake_broker import FakeBroker
from tests.client.produce.support import BytesProducer, configured, read_batches, read_values, run_with, silence

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numba")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    arrow.load()
    with EmbeddedBroker(settings={"num.partitions": "3"}) as broker:
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
            landed = await (await producer.send_arrow(table, topic))
            after = await (await producer.send(topic, b"after", partition=0))
            assert (await before).offset == 0
            assert after.offset == 101
        assert sum(each.record_count for each in landed) == 300
        assert landed == sorted(landed)
        for partition in range(3):
            expected: list[bytes | None] = list(values(300)[partition::3])
            if partition == 0:
                expected = [b"before", *expected, b"after"]
            assert await read_values(broker.bootstrap_servers, topic, partition) == expected
            for header, _ in await read_batches(broker.bootstrap_servers, topic, partition):
                assert header.producer_id >= 0
                assert header.base_sequence == header.base_offset

    asyncio.run(run())


def test_a_lost_answer_doubles_no_row(broker: EmbeddedBroker) -> None:
    broker.faults.drop_connection("Produce", times=2, carry_out=True)

    async def run() -> None:
        async with BytesProducer(
            configured(broker.bootstrap_servers, batch_size=500), randomness=Random(1)
        ) as producer:
            landed = await (await producer.send_arrow(pa.table({"value": values(200)}), "arrow-lost"))
        assert {each.partition for each in landed} == {0, 1, 2}
        stored = [await read_values(broker.bootstrap_servers, "arrow-lost", partition) for partition in range(3)]
        assert sorted(value for some in stored for value in some if value) == sorted(values(200))

    asyncio.run(run())


def test_a_batch_of_rows_above_the_topics_limit_is_split(broker: EmbeddedBroker) -> None:
    broker.create_topic("arrow-small", partitions=1, config={"max.message.bytes": "1000"})

    async def run() -> None:
        async with BytesProducer(configured(broker.bootstrap_servers)) as producer:
            landed = await (await producer.send_arrow(pa.table({"value": values(50, 90)}), "arrow-small"))
        assert len(landed) > 4
        assert [each.base_offset for each in landed] == [0, *list(_ends(landed))[:-1]]
        assert await read_values(broker.bootstrap_servers, "arrow-small") == values(50, 90)

    asyncio.run(run())


def _ends(landed: list[BatchMetadata]) -> Iterator[int]:
    for each in landed:
        yield each.base_offset + each.record_count


def test_a_table_larger_than_the_buffer_waits_for_room(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        config = configured(broker.bootstrap_servers, buffer_memory=3000, batch_size=1000)
        async with BytesProducer(config) as producer:
            await (await producer.send_arrow(pa.table({"value": values(500, 50)}), "arrow-long"))
            assert producer._accumulator.free_bytes == 3000

    asyncio.run(run())


def test_errors_are_told_to_the_caller_or_by_the_future(broker: EmbeddedBroker) -> None:
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


def test_no_room_within_the_time_is_told() -> None:
    async def work(broker: FakeBroker) -> None:
        producer = BytesProducer(configured(broker, buffer_memory=500, batch_size=400, max_block_ms=50))
        with pytest.raises(BufferExhaustedError):
            await producer.send_arrow(pa.table({"value": values(20, 50)}), "t")
        await producer.close(0)

    run_with(silence, work)
