"""The client against a running broker that is killed under its hands."""

import asyncio
from pathlib import Path

from rookery.base.types import TopicPartition
from rookery.client.admin import Admin, NewTopic
from rookery.client.cluster import Cluster
from rookery.client.consumer import BEGINNING, Consumer
from rookery.client.producer import Producer
from tests.support.broker import start_broker

RECORDS = 3000


def test_no_acknowledged_record_is_lost_or_doubled_by_a_crash(tmp_path: Path) -> None:
    """The broker dies while records are on their way; the producer goes on by itself when it is back."""
    first = start_broker(tmp_path / "data")
    sent = asyncio.Event()

    async def produce(cluster: Cluster) -> None:
        async with Producer(cluster, batch_size_bytes=2000) as producer:
            for number in range(RECORDS):
                token = await producer.send("t", b"%d" % number, partition=0)
                if number == RECORDS // 3:
                    await token
                    sent.set()
            await token

    async def run() -> list[int]:
        async with Cluster.at(first.address, timeout_s=60) as cluster:
            await Admin(cluster).create_topics([NewTopic(name="t", partitions=1)])
            production = asyncio.create_task(produce(cluster))
            await sent.wait()
            await asyncio.to_thread(first.kill)
            second = await asyncio.to_thread(start_broker, tmp_path / "data", port=first.port)
            with second:
                await production
                return await read_all(cluster)

    async def read_all(cluster: Cluster) -> list[int]:
        values: list[int] = []
        async with Consumer(cluster) as consumer:
            await consumer.assign({TopicPartition("t", 0): BEGINNING})
            while len(values) < RECORDS:
                values += [int(record.value or b"") for record in await consumer.poll()]
        return values

    with first:
        assert asyncio.run(run()) == list(range(RECORDS))
