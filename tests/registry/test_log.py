"""Preparing, reading and writing the topic of the schemas."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from rookery.base.codes import ResourceType
from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.client import Producer
from rookery.client.admin import Admin, ConfigResource
from rookery.registry.log import Record, SchemasReader, SchemasWriter, is_fenced, prepare_topic
from rookery.testing import EmbeddedBroker
from tests.registry.services import settings_of, until

TOPIC = "_schemas"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def config_of(broker: EmbeddedBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@asynccontextmanager
async def reading(broker: EmbeddedBroker) -> AsyncIterator[tuple[SchemasReader, list[Record]]]:
    delivered: list[Record] = []
    reader = SchemasReader(
        config_of(broker), TOPIC, lambda *record: delivered.append(record), on_restart=delivered.clear
    )
    reader.start()
    try:
        yield reader, delivered
    finally:
        await reader.stop()


@asynccontextmanager
async def writing(broker: EmbeddedBroker) -> AsyncIterator[SchemasWriter]:
    writer = SchemasWriter(config_of(broker), TOPIC)
    await writer.open()
    try:
        yield writer
    finally:
        await writer.close()


def make_topic(broker: EmbeddedBroker, partitions: int = 1, policy: str = "compact") -> None:
    broker.create_topic(TOPIC, partitions=partitions, config={"cleanup.policy": policy})


def test_the_topic_is_created_once_with_one_compacted_partition(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        settings = settings_of(broker)
        await asyncio.gather(*(prepare_topic(settings) for _ in range(3)))
        await prepare_topic(settings)
        async with Admin(config_of(broker)) as admin:
            (topic,) = await admin.describe_topics([TOPIC])
            assert len(topic.partitions) == 1
            assert len(topic.partitions[0].replicas) == 1
            (configs,) = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)])
            assert configs.values()["cleanup.policy"] == "compact"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("partitions", "policy", "complaint"),
    [
        (2, "compact", "has 2 partitions"),
        (1, "delete", "cleanup.policy=delete"),
        (1, "compact,delete", "would be lost"),
    ],
)
def test_a_topic_that_would_lose_schemas_is_rejected(
    broker: EmbeddedBroker, partitions: int, policy: str, complaint: str
) -> None:
    make_topic(broker, partitions, policy)
    with pytest.raises(StartupError, match=complaint):
        asyncio.run(prepare_topic(settings_of(broker)))
    asyncio.run(prepare_topic(settings_of(broker, kafkastore_topic_skip_validation="true")))


def test_all_records_are_read_from_the_first(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with writing(broker) as writer:
            await writer.append([(b"a", b"1"), (b"b", None)])
            async with reading(broker) as (reader, delivered):
                await reader.catch_up(60)
                assert delivered == [(b"a", b"1"), (b"b", None)]
                end = await writer.append([(b"c", b"3")])
                await reader.reach(end, 60)
                assert delivered[2:] == [(b"c", b"3")]
                await reader.catch_up(60)

    asyncio.run(scenario())


def test_a_topic_may_be_created_later(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker) as (reader, delivered):
            await reader.catch_up(60)
            assert delivered == []
            with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await reader.catch_up(60, must_exist=True)
            await asyncio.to_thread(make_topic, broker)
            async with writing(broker) as writer:
                await writer.append([(b"a", b"1")])
            await reader.catch_up(60)
            assert delivered == [(b"a", b"1")]
        async with Admin(config_of(broker)) as admin:
            (topic,) = await admin.describe_topics([TOPIC])
            assert len(topic.partitions) == 1

    asyncio.run(scenario())


def test_a_reader_creates_no_topic(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker) as (reader, _):
            await reader.catch_up(60)
            await asyncio.sleep(0.7)
        async with Admin(config_of(broker)) as admin:
            assert [topic.name for topic in await admin.list_topics()] == []

    asyncio.run(scenario())


def test_uncommitted_records_are_not_delivered(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, delivered):
            async with Producer[bytes, bytes]({**config_of(broker), "transactional.id": "t"}) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await (await producer.send(TOPIC, b"1", key=b"a"))
                await reader.catch_up(60)
                assert delivered == []
                await producer.abort_transaction()
            await reader.catch_up(60)
            async with writing(broker) as writer:
                await writer.append([(b"b", b"2")])
            await reader.catch_up(60)
            assert delivered == [(b"b", b"2")]

    asyncio.run(scenario())


def test_records_without_a_transaction_are_delivered_too(broker: EmbeddedBroker) -> None:
    """Confluent's registry writes such records."""
    make_topic(broker)

    async def scenario() -> None:
        async with Producer[bytes, bytes](config_of(broker)) as producer:
            await (await producer.send(TOPIC, b"1", key=b"a"))
        async with reading(broker) as (reader, delivered):
            await reader.catch_up(60)
            assert delivered == [(b"a", b"1")]

    asyncio.run(scenario())


def test_a_record_for_which_the_callback_raises_is_skipped(broker: EmbeddedBroker) -> None:
    """Without this, it would stop every reader forever."""
    make_topic(broker)
    delivered: list[bytes] = []

    def on_record(key: bytes, value: bytes | None) -> None:
        if key == b"b":
            raise RecursionError
        delivered.append(key)

    async def scenario() -> None:
        async with writing(broker) as writer:
            await writer.append([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        reader = SchemasReader(config_of(broker), TOPIC, on_record)
        reader.start()
        try:
            await reader.catch_up(60)
            assert delivered == [b"a", b"c"]
        finally:
            await reader.stop()

    asyncio.run(scenario())


def test_a_reader_continues_after_an_error(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with writing(broker) as writer:
            await writer.append([(b"a", b"1")])
        async with reading(broker) as (reader, delivered):
            partitions_for, failures = reader._consumer.partitions_for, iter([True, False])

            async def fail_once(topic: str) -> object:
                if next(failures):
                    raise OSError("for once")
                return await partitions_for(topic)

            monkeypatch.setattr(reader._consumer, "partitions_for", fail_once)
            await reader.catch_up(60)
            assert delivered == [(b"a", b"1")]

    asyncio.run(scenario())


def test_a_recreated_topic_is_read_again(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, delivered):
            async with writing(broker) as writer:
                await writer.append([(b"a", b"1")])
                await writer.append([(b"b", b"2")])
            await reader.catch_up(60)
            async with Admin(config_of(broker)) as admin:
                (outcome,) = await admin.delete_topics([TOPIC])
                outcome.check()
            await asyncio.to_thread(make_topic, broker)
            async with writing(broker) as writer:
                await writer.append([(b"c", b"3")])
            await reader.catch_up(60)
            assert delivered == [(b"c", b"3")]

    asyncio.run(scenario())


def test_a_reader_survives_a_restart_of_its_broker(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, delivered):
            await reader.catch_up(60)
            await asyncio.to_thread(broker.restart, clean=False)
            async with writing(broker) as writer:
                await writer.append([(b"a", b"1")])
            await reader.catch_up(60)
            assert delivered == [(b"a", b"1")]

    asyncio.run(scenario())


def test_a_wait_times_out(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, _):
            with pytest.raises(ApiError, match="was not read to its end"):
                await reader.reach(1, 0.2)
            broker.faults.fail("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
            with pytest.raises(ApiError):
                await reader.catch_up(0.3)
            broker.faults.clear()
            waiting = asyncio.create_task(reader.reach(1, 30))
            await asyncio.sleep(0.05)
            await reader.stop()
            with pytest.raises(ApiError, match="stopped"):
                await waiting

    asyncio.run(scenario())


def test_a_new_writer_fences_the_previous_one(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, delivered), writing(broker) as old:
            await old.append([(b"a", b"1")])
            async with writing(broker) as new:
                with pytest.raises(ApiError) as refused:
                    await old.append([(b"b", b"2")])
                assert is_fenced(refused.value)
                await new.append([(b"c", b"3")])
            await reader.catch_up(60)
            assert delivered == [(b"a", b"1"), (b"c", b"3")]

    asyncio.run(scenario())


def test_a_new_writer_aborts_the_open_transaction_of_the_previous_one(broker: EmbeddedBroker) -> None:
    make_topic(broker)

    async def scenario() -> None:
        async with reading(broker) as (reader, delivered), writing(broker) as old:
            lost = broker.faults.drop_connection("EndTxn", times=None)
            append = asyncio.create_task(old.append([(b"a", b"1")]))
            await until(lambda: lost.hits > 0, "it wants to commit")
            append.cancel()
            await asyncio.wait([append])
            async with writing(broker) as new:
                # Not earlier: the old writer may still try.
                lost.cancel()
                await new.append([(b"b", b"2")])
            await reader.catch_up(60)
            assert delivered == [(b"b", b"2")]

    asyncio.run(scenario())
