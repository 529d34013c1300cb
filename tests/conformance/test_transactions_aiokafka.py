"""Transactions with aiokafka: its context manager, and the last stable offset of its consumer."""

import asyncio
from functools import partial
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition

from tests.conformance.clients import TIMEOUT_S
from tests.conformance.interfaces import READ_COMMITTED
from tests.conformance.players import create_topic
from tests.conformance.transactors import read_with_aiokafka
from tests.support.waiting import expect


def test_a_context_commits_or_aborts(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    async def write(producer: Any, value: bytes) -> None:
        async with producer.transaction():
            await producer.send_and_wait(topic, value, partition=0)
            if value == b"given up":
                raise ZeroDivisionError

    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            await write(producer, b"kept")
            with pytest.raises(ZeroDivisionError):
                await write(producer, b"given up")
            await write(producer, b"kept too")

    asyncio.run(run())
    expect(partial(read_with_aiokafka, bootstrap, topic), [b"kept", b"kept too"])


def test_a_transaction_may_cover_many_batches(bootstrap: str, topic: str) -> None:
    """Small batches in flight to several partitions, while the transaction's partitions are still being added."""
    create_topic(bootstrap, topic, 5)

    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=topic, max_batch_size=300
        ) as producer:
            for _ in range(3):
                async with producer.transaction():
                    for number in range(200):
                        await producer.send(topic, b"%d" % number, partition=number % 5)

    asyncio.run(run())
    for partition in range(5):
        values = [b"%d" % number for number in range(partition, 200, 5)]
        expect(partial(read_with_aiokafka, bootstrap, topic, partition), values * 3)


def test_the_consumer_knows_the_last_stable_offset(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    place = TopicPartition(topic, 0)

    async def run() -> None:
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
            aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=None, isolation_level=READ_COMMITTED
            ) as consumer,
        ):
            consumer.assign([place])
            consumer.seek(place, 0)
            async with producer.transaction():
                await producer.send_and_wait(topic, b"1", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"2", partition=0)
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"1"
            assert consumer.last_stable_offset(place) == 2
            await producer.commit_transaction()
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"2"
            assert consumer.last_stable_offset(place) == 4

    asyncio.run(run())
