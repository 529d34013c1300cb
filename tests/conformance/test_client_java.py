"""Rookery's client beside Apache Kafka's Java clients: the same partitions for keys, every codec, one group."""

import asyncio
import random
from typing import Any

import pytest

from rookery.client import Consumer, Producer, TopicPartition
from rookery.client.produce.partitioners import partition_for_key
from tests.conformance.java_tools import run_tool
from tests.conformance.members import ConfluentMember, fill, running
from tests.conformance.samples import CODECS
from tests.conformance.test_java_groups import tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

KEYS = 20_000
PARTITIONS = 17
TIMEOUT_S = 60


def keys() -> list[str]:
    """Of every length up to 40, and outside of ASCII."""
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
def test_java_reads_what_we_compress_and_we_what_java_does(bootstrap: str, topic: str, codec: str) -> None:
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


@pytest.mark.parametrize(
    ("strategy", "java_class"),
    [
        ("range", "org.apache.kafka.clients.consumer.RangeAssignor"),
        ("cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
    ],
)
def test_one_group_of_librdkafka_java_and_ours(bootstrap: str, topic: str, strategy: str, java_class: str) -> None:
    """Whoever leads, all three get their share; when one leaves, the others take over."""
    everything = fill(bootstrap, topic, partitions=6, count=20)
    server = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic, "--session-timeout", "6000")
    java = ("--assignment-strategy", java_class, "--reset-policy", "earliest")

    async def play() -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
        async with Consumer(settings) as ours:
            ours.subscribe([topic])
            with tool("verifiable-consumer", *server, *java) as theirs:
                await asyncio.to_thread(theirs.until, "startup_complete")
                member = ConfluentMember(bootstrap, topic, [topic], strategy=strategy, commits=False)
                with running(member):
                    async with asyncio.timeout(TIMEOUT_S):
                        while not len(ours.assignment()) == len(member.partitions) == 2:
                            await ours.poll(0.1)
                    assert set(ours.assignment()).isdisjoint(member.partitions)
                    rest = everything - set(ours.assignment()) - member.partitions
                    assert len(rest) == 2
                async with asyncio.timeout(TIMEOUT_S):
                    while len(ours.assignment()) != 3:
                        await ours.poll(0.1)
            async with asyncio.timeout(TIMEOUT_S):
                while len(ours.assignment()) != 6:
                    await ours.poll(0.1)

    asyncio.run(play())
