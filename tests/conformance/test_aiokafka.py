"""aiokafka: producing, fetching, offsets, and its admin client, which uses older versions than the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.conformance.clients import TIMEOUT_S, AioKafka
from tests.conformance.samples import FIRST_TIMESTAMP_MS, TIMESTAMP_STEP_MS, make_samples

CLIENT = AioKafka()


@asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            await producer.send_and_wait(topic, b"value", partition=0)

    asyncio.run(produce())
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 1)] == [b"value"]


def test_idempotent_producer_in_small_batches(bootstrap: str, topic: str) -> None:
    async def produce() -> list[int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=300
        ) as producer:
            futures = [await producer.send(topic, b"%d" % index, partition=0) for index in range(300)]
            return [(await future).offset for future in futures]

    assert asyncio.run(produce()) == list(range(300))
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 300)] == [b"%d" % index for index in range(300)]


def test_rejected_records(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        config = {"max.message.bytes": "2000", "cleanup.policy": "compact"}
        async with admin_client(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=config)])
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(5000), key=b"k")
            with pytest.raises(aiokafka.errors.KafkaError):
                await producer.send_and_wait(topic, b"keyless")
            await producer.send_and_wait(topic, b"fits", key=b"k")

    asyncio.run(run())
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 1)] == [b"fits"]


def test_fetch_sizes(bootstrap: str, topic: str) -> None:
    samples = make_samples(60, value_size=2_000)
    for start in range(0, 60, 10):
        CLIENT.produce(bootstrap, topic, samples[start : start + 10])

    async def consume(fetch_bytes: int) -> list[bytes]:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, max_partition_fetch_bytes=fetch_bytes, fetch_max_bytes=30_000
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(60)]

    for fetch_bytes in (25_000, 100_000, 1_000_000):
        assert asyncio.run(consume(fetch_bytes)) == [sample.value for sample in samples]


def test_a_long_poll_ends_with_the_record(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with admin_client(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1)])
        async with (
            aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, fetch_max_wait_ms=20_000) as consumer,
            aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        ):
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            reading = asyncio.create_task(consumer.getone())
            await asyncio.wait([reading], timeout=0.3)
            await producer.send_and_wait(topic, b"wake up", partition=0)
            assert (await asyncio.wait_for(reading, 15)).value == b"wake up"

    asyncio.run(run())


def test_positions_and_times(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(50), codec="gzip")
    partition = TopicPartition(topic, 0)
    wanted_ms = FIRST_TIMESTAMP_MS + 17 * TIMESTAMP_STEP_MS

    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none"
        ) as consumer:
            assert topic in await consumer.topics()
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 50}
            found = (await consumer.offsets_for_times({partition: wanted_ms - 1}))[partition]
            assert (found.offset, found.timestamp) == (17, wanted_ms)
            late_ms = FIRST_TIMESTAMP_MS + 50 * TIMESTAMP_STEP_MS
            assert (await consumer.offsets_for_times({partition: late_ms}))[partition] is None
            consumer.assign([partition])
            for offset in (49, 0, 20):
                consumer.seek(partition, offset)
                assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).offset == offset
            assert consumer.highwater(partition) == 50
            consumer.seek(partition, 1_000)
            with pytest.raises(aiokafka.errors.OffsetOutOfRangeError):
                await asyncio.wait_for(consumer.getone(), TIMEOUT_S)

    asyncio.run(run())


def test_topics(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with admin_client(bootstrap) as admin:
            wanted = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "60000"})
            assert codes(await admin.create_topics([wanted], validate_only=True)) == [0]
            assert topic not in await admin.list_topics()
            assert codes(await admin.create_topics([wanted])) == [0]
            assert codes(await admin.create_topics([wanted])) == [aiokafka.errors.TopicAlreadyExistsError.errno]
            assert topic in await admin.list_topics()
            growing = await admin.create_partitions({topic: NewPartitions(5)})
            assert codes(growing) == [0]
            described = (await admin.describe_topics([topic]))[0]
            assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
            assert [code for _, code in (await admin.delete_topics([topic])).topic_error_codes] == [0]
            assert topic not in await admin.list_topics()

    asyncio.run(run())


def codes(response: Any) -> list[int]:
    return [error[1] for error in response.topic_errors]


def test_configs(bootstrap: str, topic: str) -> None:
    async def value(admin: Any) -> tuple[str, int]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        entries = (await admin.describe_configs([wanted], include_synonyms=True))[0].resources[0][4]
        assert [entry[0] for entry in entries] == ["retention.ms"]
        return entries[0][1], entries[0][3]

    async def run() -> None:
        dynamic_topic, default = 1, 5
        async with admin_client(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "60000"})])
            assert await value(admin) == ("60000", dynamic_topic)
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "70000"})])
            assert await value(admin) == ("70000", dynamic_topic)
            # The old AlterConfigs replaces all configs: those that it does not name are reset to their defaults.
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "90000"})])
            assert await value(admin) == ("604800000", default)

    asyncio.run(run())


def test_delete_records_and_the_cluster(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(10))
    partition = TopicPartition(topic, 0)

    async def run() -> None:
        async with admin_client(bootstrap) as admin:
            deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=4)})
            assert deleted == {partition: 4}
            brokers = (await admin.describe_cluster())["brokers"]
            assert [f"{broker['host']}:{broker['port']}" for broker in brokers] == [bootstrap]

    asyncio.run(run())
    assert CLIENT.consume(bootstrap, topic, 6) == make_samples(10)[4:]
