"""read_committed against a real broker: open, committed and aborted transactions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rookery.base.clock import SystemClock
from rookery.base.types import TopicPartition
from rookery.testing import EmbeddedBroker
from tests.client.consume.support import consuming, new_topic, read_values
from tests.support.transactions import Protocol, TransactionalProducer, TransactionCluster

COMMITTED: dict[str, object] = {"isolation.level": "read_committed"}


def run(
    broker: EmbeddedBroker,
    work: Callable[[str, TopicPartition, TransactionalProducer], Coroutine[Any, Any, None]],
    protocol: Protocol = Protocol.V2,
) -> None:
    tp = TopicPartition(new_topic(), 0)
    broker.create_topic(tp.topic, partitions=1)

    async def bounded() -> None:
        async with asyncio.timeout(30), TransactionCluster.at(broker.bootstrap_servers) as cluster:
            producer = TransactionalProducer(cluster, tp.topic, protocol=protocol, clock=SystemClock())
            await producer.init()
            await work(broker.bootstrap_servers, tp, producer)

    asyncio.run(bounded())


@pytest.mark.parametrize("protocol", list(Protocol))
def test_aborted_records_are_never_seen(broker: EmbeddedBroker, protocol: Protocol) -> None:
    async def work(bootstrap: str, tp: TopicPartition, producer: TransactionalProducer) -> None:
        for number, commit in enumerate([True, False, False, True, False]):
            await producer.produce({tp: [b"%d a" % number, b"%d b" % number]})
            await producer.end(commit=commit)
        async with consuming(bootstrap, tp, config=COMMITTED) as consumer:
            assert await read_values(consumer, 4) == [b"0 a", b"0 b", b"3 a", b"3 b"]
            # The position moves past skipped records and markers: 5 transactions of 2 records and a marker each.
            while await consumer.position(tp) < 15:
                await consumer.poll(0.05)
            assert consumer.lag(tp) == 0
        async with consuming(bootstrap, tp) as consumer:
            assert len(await read_values(consumer, 10)) == 10

    run(broker, work, protocol)


def test_open_transactions_hold_back_later_records(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, producer: TransactionalProducer) -> None:
        await producer.produce({tp: [b"first"]})
        await producer.end(commit=True)
        await producer.produce({tp: [b"open"]})
        async with consuming(bootstrap, tp, config=COMMITTED) as consumer, consuming(bootstrap, tp) as other:
            assert await read_values(consumer, 1) == [b"first"]
            assert await consumer.poll(0.05) == []
            assert await consumer.end_offsets([tp]) == {tp: 2}
            assert await other.end_offsets([tp]) == {tp: 3}
            assert await read_values(other, 2) == [b"first", b"open"]
            assert consumer.lag(tp) == 0
            await producer.end(commit=True)
            assert await read_values(consumer, 1) == [b"open"]

    run(broker, work)


def test_starting_inside_an_aborted_transaction(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, producer: TransactionalProducer) -> None:
        for _ in range(3):
            await producer.produce({tp: [b"x", b"y"]})
        await producer.end(commit=False)
        await producer.produce({tp: [b"kept"]})
        await producer.end(commit=True)
        async with consuming(bootstrap, tp, config=COMMITTED | {"max.poll.records": 1}) as consumer:
            consumer.seek(tp, 3)
            assert await read_values(consumer, 1) == [b"kept"]
            async with asyncio.timeout(10):
                consumer.seek(tp, 1)
                async for record in consumer:
                    assert (record.value, record.offset) == (b"kept", 7)
                    break

    run(broker, work)
