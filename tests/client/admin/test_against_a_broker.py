"""The operations of the `Admin`, against a running broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar
from uuid import UUID

import confluent_kafka
import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    ResourceType,
)
from rookery.testing import EmbeddedBroker

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def run_admin(broker: EmbeddedBroker, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            return await work(admin)

    return asyncio.run(run())


def produce(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(10) == 0


def test_topics_by_name_and_by_id(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        created = await admin.create_topics([NewTopic(name="by-name", partitions=2), NewTopic(name="by-id")])
        ids = [topic.check().topic_id for topic in created]
        assert [(topic.partitions, topic.replication_factor) for topic in created] == [(2, 1), (1, 1)]
        assert ids[1] is not None
        unknown = UUID(int=77)
        named, by_id, missing = await admin.describe_topics(["by-name", ids[1], unknown])
        assert (named.topic_id, named.name, by_id.name) == (ids[0], "by-name", "by-id")
        assert missing.error is ErrorCode.UNKNOWN_TOPIC_ID
        outcomes = await admin.delete_topics(["by-name", ids[1], unknown])
        assert [outcome.error for outcome in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        assert [outcome.name for outcome in outcomes] == ["by-name", "by-id", str(unknown)]

    run_admin(broker, work)


def test_partitions_are_added_with_assignments(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name="grows", partitions=1)])
        (node,) = [member.node_id for member in (await admin.describe_cluster(include_fenced=True)).brokers]
        (nowhere,) = await admin.create_partitions({"grows": NewPartitions(2, [[node + 1]])})
        assert nowhere.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        (outcome,) = await admin.create_partitions({"grows": NewPartitions(3, [[node], [node]])})
        outcome.check()
        (topic,) = await admin.describe_topic_partitions(["grows"])
        assert [(part.index, part.leader, part.replicas) for part in topic.partitions] == [
            (index, node, (node,)) for index in range(3)
        ]

    run_admin(broker, work)


def test_topics_are_described_page_by_page(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name=name, partitions=3) for name in ("page-a", "page-b")])
        found = await admin.describe_topic_partitions(["page-b", "page-a", "page-none"], partitions_per_page=2)
        assert [(topic.name, len(topic.partitions), topic.error) for topic in found] == [
            ("page-a", 3, ErrorCode.NONE),
            ("page-b", 3, ErrorCode.NONE),
            ("page-none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        everything = await admin.describe_topic_partitions(partitions_per_page=1)
        assert {"page-a", "page-b"} <= {topic.name for topic in everything}

    run_admin(broker, work)


def test_configs_of_several_resources(broker: EmbeddedBroker) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name="configured")])
        topic = ConfigResource(ResourceType.TOPIC, "configured")
        missing = ConfigResource(ResourceType.TOPIC, "not-there")
        broker_1 = ConfigResource(ResourceType.BROKER, "1")
        change = ConfigChange("retention.ms", ConfigOperation.SET, "5000")
        outcomes = await admin.alter_configs({missing: [change], topic: [change]})
        assert {outcome.name: outcome.error for outcome in outcomes} == {
            "topic not-there": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "topic configured": ErrorCode.NONE,
        }
        described = await admin.describe_configs([broker_1, topic, missing], names=["retention.ms", "log.dirs"])
        assert [row.resource for row in described] == [broker_1, topic, missing]
        assert described[1].check().values() == {"retention.ms": "5000"}
        assert [entry.name for entry in described[0].check().entries] == ["log.dirs"]
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            described[2].check()
        listed = await admin.list_config_resources([ResourceType.TOPIC, ResourceType.BROKER])
        assert {topic, broker_1} <= set(listed)
        assert set(listed) <= set(await admin.list_config_resources())

    run_admin(broker, work)


def test_records_are_found_and_deleted(broker: EmbeddedBroker) -> None:
    broker.create_topic("records")
    produce(broker, "records", 10)
    tp = TopicPartition("records", 0)

    async def work(admin: Admin) -> None:
        assert await admin.end_offsets([tp, TopicPartition("nothing", 0)]) == {tp: 10}
        (end,) = (await admin.epoch_ends({tp: 1000})).values()
        assert (end.error, end.end_offset) in ((ErrorCode.NONE, 10), (ErrorCode.NONE, -1))
        (current,) = (await admin.epoch_ends({tp: 0})).values()
        assert (current.error, current.leader_epoch, current.end_offset) == (ErrorCode.NONE, 0, 10)
        deleted = await admin.delete_records({tp: 4})
        assert deleted[tp].low_watermark == 4

    run_admin(broker, work)


def test_the_cluster_describes_itself(broker: EmbeddedBroker) -> None:
    broker.create_topic("sized")
    produce(broker, "sized", 3)
    tp = TopicPartition("sized", 0)

    async def work(admin: Admin) -> None:
        (everything,) = await admin.describe_log_dirs()
        (some,) = await admin.describe_log_dirs([everything.node_id], partitions=[tp])
        assert set(some.partition_sizes) == {tp} < set(everything.partition_sizes)
        versions = await admin.api_versions()
        assert versions["FETCH"].maximum >= 17
        assert await admin.api_versions(everything.node_id) == versions

    run_admin(broker, work)


def test_members_are_removed(broker: EmbeddedBroker) -> None:
    broker.create_topic("watched")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "removed", "auto.offset.reset": "earliest"}
    produce(broker, "watched", 1)
    static = confluent_kafka.Consumer({**settings, "group.instance.id": "one", "log_level": 0})
    try:
        static.subscribe(["watched"])
        assert static.consume(1, 10)

        async def work(admin: Admin) -> None:
            (missing,) = await admin.remove_members("removed", member_ids=["unknown"])
            assert (missing.name, missing.error) == ("unknown", ErrorCode.UNKNOWN_MEMBER_ID)
            (gone,) = await admin.remove_members("removed", instance_ids=["one"])
            assert gone.check().instance_id == "one"
            assert await admin.remove_members("removed") == []

        run_admin(broker, work)
    finally:
        static.close()


def test_offsets_of_some_partitions(broker: EmbeddedBroker) -> None:
    first, second = TopicPartition("half", 0), TopicPartition("half", 1)
    broker.create_topic("half", partitions=2)

    async def work(admin: Admin) -> None:
        await admin.commit_offsets("half", {first: OffsetAndMetadata(1), second: OffsetAndMetadata(2, "note")})
        found = await admin.committed_offsets("half", [second], require_stable=True)
        assert found == {second: OffsetAndMetadata(2, "note")}
        assert await admin.committed_offsets("half", []) == {}

    run_admin(broker, work)
