"""Sends a table through a topic as Arrow columns, with Rookery's own client."""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc

from rookery.client import Consumer, Producer, TopicPartition

_POLL_S = 1.0
_TIMEOUT_S = 60.0
_SHOPS = 1000


def table_of_sales(rows: int) -> pa.RecordBatch:
    """Return sales with the shop's name as key and the amount as value."""
    shops = [b"shop-%d" % (number % _SHOPS) for number in range(rows)]
    amounts = [b"%d" % (number % 977) for number in range(rows)]
    return pa.record_batch({"key": pa.array(shops, pa.binary()), "value": pa.array(amounts, pa.binary())})


def send(address: str, topic: str, sales: pa.RecordBatch) -> None:
    async def run() -> None:
        async with Producer({"bootstrap.servers": address, "compression.type": "lz4"}) as producer:
            await (await producer.send_arrow(sales, topic))

    asyncio.run(run())


def read(address: str, topic: str, partitions: int, rows: int) -> pa.Table:
    """Read all records of the topic, poll by poll."""

    async def run() -> pa.Table:
        settings = {"bootstrap.servers": address, "auto.offset.reset": "earliest"}
        async with Consumer(settings) as consumer, asyncio.timeout(_TIMEOUT_S):
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            batches: list[pa.RecordBatch] = []
            while sum(batch.num_rows for batch in batches) < rows:
                batches.append(await consumer.poll_arrow(_POLL_S))
            return pa.Table.from_batches(batches)

    return asyncio.run(run())


def turnover(sales: pa.Table | pa.RecordBatch) -> dict[bytes, int]:
    """Return the sum of the amounts by shop."""
    amounts = pc.cast(pc.cast(sales.column("value"), pa.string()), pa.int64())
    table = pa.table({"shop": sales.column("key"), "amount": amounts})
    sums = table.group_by("shop").aggregate([("amount", "sum")])
    return dict(zip(sums.column("shop").to_pylist(), sums.column("amount_sum").to_pylist(), strict=True))
