"""Damaged log files of a real broker: the consumer names the offset, and continues after a seek."""

import asyncio
from pathlib import Path

import pytest

from rookery.base.types import TopicPartition
from rookery.client.errors import CorruptRecordError
from rookery.records.batch import iterate_headers
from rookery.testing import EmbeddedBroker
from tests.client.consume.support import append, consuming, read_values

TP = TopicPartition("damaged", 0)


def damage(directory: Path, number: int) -> None:
    """Flip a bit in the records of one batch, in the broker's log file."""
    (path,) = directory.glob(f"{TP}/*.log")
    data = bytearray(path.read_bytes())
    start, header = list(iterate_headers(data))[number]
    data[start + header.size_bytes - 2] ^= 1
    path.write_bytes(bytes(data))


def test_a_damaged_batch_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    async def work(bootstrap: str) -> None:
        for first in (0, 3, 6):
            await append(bootstrap, TP, [b"%d" % number for number in range(first, first + 3)])
        damage(tmp_path, 1)
        async with asyncio.timeout(30), consuming(bootstrap, TP) as consumer:
            assert await read_values(consumer, 3) == [b"0", b"1", b"2"]
            for _ in range(2):
                with pytest.raises(
                    CorruptRecordError, match="topic damaged, partition 0, offset 5: the batch"
                ) as caught:
                    await consumer.poll(10)
                assert (caught.value.partition, caught.value.offset) == (TP, 5)
                assert await consumer.position(TP) == 3
            consumer.seek(TP, caught.value.offset + 1)
            assert await read_values(consumer, 3) == [b"6", b"7", b"8"]
            consumer.seek(TP, 4)
            with pytest.raises(CorruptRecordError):
                async for _ in consumer:
                    pass
        async with asyncio.timeout(30), consuming(bootstrap, TP, config={"check.crcs": False}) as consumer:
            # The bit is part of a value: only the checksum shows the damage.
            assert len(await read_values(consumer, 9)) == 9

    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.create_topic(TP.topic, partitions=1, config={"retention.ms": "-1"})
        asyncio.run(work(broker.bootstrap_servers))


def test_damage_in_the_middle_of_large_columns(tmp_path: Path) -> None:
    """The data is large enough to be decoded in a thread, while the data after it is being fetched."""

    async def work(bootstrap: str) -> None:
        for first in range(0, 300, 100):
            await append(bootstrap, TP, [b"%d" % number + b"." * 2000 for number in range(first, first + 100)])
        damage(tmp_path, 1)
        async with asyncio.timeout(30), consuming(bootstrap, TP) as consumer:
            assert (await consumer.poll_arrow(10)).column("offset").to_pylist() == list(range(100))
            for _ in range(2):
                with pytest.raises(CorruptRecordError) as caught:
                    await consumer.poll_arrow(10)
                assert await consumer.position(TP) == 100
            consumer.seek(TP, caught.value.offset + 1)
            assert (await consumer.poll_arrow(10)).column("offset").to_pylist() == list(range(200, 300))

    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.create_topic(TP.topic, config={"retention.ms": "-1"})
        asyncio.run(work(broker.bootstrap_servers))
