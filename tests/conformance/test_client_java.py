"""Rookery's client together with Apache Kafka's Java clients: the same partitions for keys, every codec."""

import asyncio
import random
from typing import Any

import pytest

from rookery.client import Consumer, Producer, TopicPartition
from rookery.client.produce.partitioners import partition_for_key
from tests.conformance.java_tools import run_tool
from tests.conformance.members import fill
from tests.conformance.samples import CODECS

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

KEYS = 20_000
PARTITIONS = 17
TIMEOUT_S = 60


def keys() -> list[str]:
    """Return keys of every length up to 40, and keys with non-ASCII characters."""
    generator = random.Random(6)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-äß€😀"
    return ["".join(generator.choices(letters, k=number % 40 + 1)) + str(number) for number in range(KEYS)]


async def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    async with Consumer(settings) as consumer, asyncio.timeout(TIMEOUT_S):
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        found: list[Any] = []
        while len(found) < count:
            found += await consumer.poll(1.0)
        return found


def test_java_sends_the_same_keys_to_the_same_partitions(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=PARTITIONS, count=0)
    run_tool(
        "console-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--reader-property", "parse.key=true"),
        text="".join(f"{key}\tv\n" for key in keys()),
    )
    found = asyncio.run(read_all(bootstrap, topic, PARTITIONS, KEYS))
    assert len({record.key for record in found}) == KEYS
    wrong = [r for r in found if partition_for_key(r.key, PARTITIONS) != r.partition]
    assert wrong == []


@pytest.mark.parametrize("codec", CODECS)
def test_java_and_rookery_read_each_others_compressed_records(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"key-{number}\tvalue-{number}-{'x' * 50}" for number in range(500)]

    async def send() -> None:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
        async with Producer(settings) as producer:
            for line in lines:
                key, value = line.encode().split(b"\t")
                await producer.send(topic, value, key=key, partition=0)

    fill(bootstrap, topic, partitions=1, count=0)
    asyncio.run(send())
    consumed = run_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "500"),
        *("--timeout-ms", "30000", "--formatter-property", "print.key=true"),
    )
    assert consumed.splitlines()[:500] == lines
    run_tool(
        "console-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true"),
        text="\n".join(lines) + "\n",
    )
    found = asyncio.run(read_all(bootstrap, topic, 1, 1000))
    assert [f"{r.key.decode()}\t{r.value.decode()}" for r in found] == lines * 2
