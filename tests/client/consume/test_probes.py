"""`wait_for_records` and `measure` against a real broker: records after a position, and their stored size."""

import asyncio

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.consume.ranges import StoredRun
from rookery.client.errors import OffsetOutOfRangeError
from rookery.records.batch import HEADER_SIZE
from rookery.testing import EmbeddedBroker
from tests.client.consume.support import append, consuming, new_topic


def two_partitions(broker: EmbeddedBroker) -> tuple[TopicPartition, TopicPartition]:
    topic = new_topic()
    broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
    return TopicPartition(topic, 0), TopicPartition(topic, 1)


def test_waiting_ends_with_the_first_record_or_the_time_out(broker: EmbeddedBroker) -> None:
    tp, other = two_partitions(broker)

    async def work() -> None:
        bootstrap = broker.bootstrap_servers
        async with asyncio.timeout(60), consuming(bootstrap, tp) as consumer:
            nothing = {tp: 0, other: 0}
            assert not await consumer.wait_for_records(nothing, timeout_s=0.05)
            waiting = asyncio.create_task(consumer.wait_for_records(nothing, timeout_s=50))
            await asyncio.sleep(0)
            await append(bootstrap, other, [b"first"])
            assert await waiting
            assert await consumer.wait_for_records(nothing, timeout_s=50)
            assert not await consumer.wait_for_records({tp: 0, other: 1}, timeout_s=0.05)

    asyncio.run(work())


def test_sizes_are_those_of_whole_batches(broker: EmbeddedBroker) -> None:
    tp, other = two_partitions(broker)

    async def work() -> None:
        bootstrap = broker.bootstrap_servers
        async with asyncio.timeout(60), consuming(bootstrap, tp) as consumer:
            for _ in range(3):
                await append(bootstrap, tp, [bytes(1000)] * 10)
            everything = (await consumer.measure({tp: 0, other: 0}, size_max=1_000_000))[tp]
            assert everything.offset_count == 30
            assert 30 * 1000 < everything.size_bytes < 30 * 1020 + 3 * HEADER_SIZE
            # A position in the middle of a batch counts the whole batch.
            batch = StoredRun(everything.size_bytes // 3, 10)
            assert await consumer.measure({tp: 15}, size_max=batch.size_bytes) == {tp: batch}
            assert await consumer.measure({tp: 30, other: 0}, size_max=1000) == {}

    asyncio.run(work())


def test_positions_and_partitions_that_do_not_exist(broker: EmbeddedBroker) -> None:
    tp, _ = two_partitions(broker)

    async def work() -> None:
        async with asyncio.timeout(60), consuming(broker.bootstrap_servers, tp) as consumer:
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.wait_for_records({tp: 7}, timeout_s=50)
            with pytest.raises(ApiError) as raised:
                await consumer.measure({TopicPartition(tp.topic, 9): 0}, size_max=1)
            assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(work())
