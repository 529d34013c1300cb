"""Metadata, DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, DescribeProducers, ListConfigResources."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.storage.manifest import MANIFEST_FILE
from tests.broker.harness import Broker, running

ASKS_NOTHING = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}


async def metadata(broker: Broker, *names: str, version: int = 12, create: bool = True) -> dict[str, Message]:
    topics = [Message(name=name, topic_id=NO_TOPIC_ID) for name in names]
    response = await broker.call(
        ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=create, **ASKS_NOTHING
    )
    return {topic.name: topic for topic in response.topics}


def test_missing_topics_are_created_and_described_in_the_response(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config={"num.partitions": "3"}) as broker:
            topics = await metadata(broker, "new", "bad name", "__cluster_metadata", "__consumer_offsets")
            assert (topics["new"].error_code, len(topics["new"].partitions)) == (0, 3)
            assert topics["new"].topic_id != NO_TOPIC_ID
            assert topics["new"].topic_authorized_operations == -(2**31)
            assert topics["bad name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert topics["__cluster_metadata"].error_code == ErrorCode.INVALID_REQUEST
            assert topics["__consumer_offsets"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert topics["__consumer_offsets"].is_internal
            broker.append("new", b"a", partition=2)

    asyncio.run(main())


def test_two_clients_may_request_one_new_topic_concurrently(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            first, second = await asyncio.gather(metadata(broker, "new"), metadata(broker, "new"))
            assert first["new"].error_code == second["new"].error_code == 0
            assert first["new"].topic_id == second["new"].topic_id

    asyncio.run(main())


@pytest.mark.parametrize(("create", "enable"), [(False, "true"), (True, "false")])
def test_not_created_unless_client_and_broker_allow_it(tmp_path: Path, create: bool, enable: str) -> None:
    async def main() -> None:
        async with running(tmp_path, config={"auto.create.topics.enable": enable}) as broker:
            topics = await metadata(broker, "new", "bad/name", create=create)
            assert topics["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert topics["bad/name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert broker.services.image.topics == {}

    asyncio.run(main())


def test_null_and_empty_lists(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("a")
            await broker.create_topic("b")

            async def names(version: int, topics: list[Message] | None) -> list[str]:
                response = await broker.call(
                    ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=True, **ASKS_NOTHING
                )
                return [topic.name for topic in response.topics]

            assert await names(0, []) == ["a", "b"]
            assert await names(1, []) == []
            assert await names(1, None) == ["a", "b"]
            assert await names(13, []) == []
            assert await names(13, None) == ["a", "b"]
            assert await names(8, [Message(name="a"), Message(name="a")]) == ["a"]

    asyncio.run(main())


def test_topics_by_id(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            topics = [Message(name=None, topic_id=each) for each in (topic_id, UUID(int=9))]
            response = await broker.call(ApiKey.METADATA, 12, topics=topics, **ASKS_NOTHING)
            found = [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics]
            unknown = (None, UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID)
            assert sorted(found, key=lambda topic: topic[2]) == [("orders", topic_id, 0), unknown]

    asyncio.run(main())


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_need_v12(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            for topic in (Message(name="orders", topic_id=topic_id), Message(name=None, topic_id=NO_TOPIC_ID)):
                response = await broker.call(ApiKey.METADATA, version, topics=[topic], **ASKS_NOTHING)
                assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]

    asyncio.run(main())


@pytest.mark.parametrize(("version", "expected"), [(5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")])
def test_leader_without_the_clients_listener(tmp_path: Path, version: int, expected: str) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.connection.listener_name = "INTERNAL"
            (partition,) = (await metadata(broker, "orders", version=version))["orders"].partitions
            assert ErrorCode(partition.error_code).name == expected
            assert (partition.leader_id, partition.offline_replicas) == (-1, [1])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "endpoint_type", "expected"),
    [
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (2, 1, ErrorCode.NONE),
    ],
)
def test_describe_cluster_endpoints(tmp_path: Path, version: int, endpoint_type: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            response = broker.call_now(
                ApiKey.DESCRIBE_CLUSTER,
                version,
                include_cluster_authorized_operations=False,
                include_fenced_brokers=True,
                endpoint_type=endpoint_type,
            )
            assert response.error_code == expected
            assert len(response.brokers) == (1 if expected is ErrorCode.NONE else 0)
            assert response.cluster_authorized_operations == -(2**31)

    asyncio.run(main())


def pages(broker: Broker, *names: str, limit: int) -> list[list[tuple[str, list[int]]]]:
    found = []
    cursor: Message | None = None
    while True:
        response = broker.call_now(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[Message(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics])
        cursor = response.next_cursor
        if cursor is None:
            return found


def test_describe_topic_partitions_in_pages(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            for name in ("b", "a", "c"):
                await broker.create_topic(name, partitions=3)
            assert pages(broker, limit=9) == [[("a", [0, 1, 2]), ("b", [0, 1, 2]), ("c", [0, 1, 2])]]
            assert pages(broker, limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1, 2])], [("c", [0, 1, 2])]]
            assert pages(broker, "a", "b", limit=4) == [[("a", [0, 1, 2]), ("b", [0])], [("b", [1, 2])]]
            # A limit below one counts as one.
            assert pages(broker, "a", limit=0) == [[("a", [0])], [("a", [1])], [("a", [2])]]

    asyncio.run(main())


def test_describe_topic_partitions_errors(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("a")

            def codes(*names: str, cursor: Message | None = None) -> list[int]:
                topics = [Message(name=name) for name in names]
                response = broker.call_now(
                    ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=10, cursor=cursor
                )
                return [topic.error_code for topic in response.topics]

            unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
            assert codes("a", "b", "c d") == [0, unknown, invalid]
            outside = Message(topic_name="z", partition_index=0)
            assert codes("a", "b", cursor=outside) == [ErrorCode.INVALID_REQUEST] * 2
            negative = Message(topic_name="a", partition_index=-1)
            assert codes("a", cursor=negative) == [ErrorCode.INVALID_REQUEST]

    asyncio.run(main())


def test_a_disk_that_fails_while_it_is_described_is_listed_as_failed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, directories=2) as broker:
            await broker.create_topic("orders", partitions=2)
            broker.append("orders", b"a")
            broker.replica("orders").log.roll()
        # Without it, the sizes of segments are read from the disk when they are requested.
        (tmp_path / "disk0" / MANIFEST_FILE).unlink()
        async with running(tmp_path, directories=2) as broker:
            log = broker.replica("orders").log
            log.segments[0].path().unlink()
            response = broker.call_now(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
            codes = {result.log_dir: result.error_code for result in response.results}
            failed = str(log.log_directory.path)
            assert codes.pop(failed) == ErrorCode.KAFKA_STORAGE_ERROR
            assert list(codes.values()) == [ErrorCode.NONE]
            assert not log.log_directory.is_online

    asyncio.run(main())


def test_describe_log_dirs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, directories=2) as broker:
            await broker.create_topic("orders", partitions=2)

            def described(topics: list[Message] | None) -> list[tuple[int, int]]:
                response = broker.call_now(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics)
                return [(each.error_code, sum(len(t.partitions) for t in each.topics)) for each in response.results]

            assert described(None) == [(0, 1), (0, 1)]
            assert described([]) == [(0, 0), (0, 0)]
            assert sorted(described([Message(topic="orders", partitions=[0, 9])])) == [(0, 0), (0, 1)]
            broker.replica("orders").log.log_directory.fail(OSError(5, "Input/output error"))
            assert sorted(described(None)) == [(0, 1), (ErrorCode.KAFKA_STORAGE_ERROR, 0)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("topic", "index", "expected"),
    [
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_describe_producers_errors(tmp_path: Path, topic: str, index: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            response = broker.call_now(
                ApiKey.DESCRIBE_PRODUCERS, 0, topics=[Message(name=topic, partition_indexes=[index])]
            )
            assert response.topics[0].partitions[0].error_code == expected

    asyncio.run(main())


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([2], (0, [(2, "orders")])),
        ([4, 4], (0, [(4, "1")])),
        ([16, 32], (0, [])),
        ([2, 99], (ErrorCode.UNSUPPORTED_VERSION, [])),
    ],
)
def test_list_config_resources(tmp_path: Path, types: list[int], expected: Any) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            response = broker.call_now(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=types)
            listed = [(each.resource_type, each.resource_name) for each in response.config_resources]
            assert (response.error_code, listed) == expected

    asyncio.run(main())
