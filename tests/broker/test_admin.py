"""CreateTopics, DeleteTopics, CreatePartitions, configs and producer ids: error codes as clients see them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.controller.service import Controller
from rookery.metadata.publisher import ImageListener
from rookery.metadata.requests import CreatedTopic, NewTopic
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import Broker, running


def topic(name: str, **more: Any) -> Message:
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **more}
    return Message(name=name, **fields)


async def create(broker: Broker, *topics: Message, **more: Any) -> list[tuple[str, str]]:
    response = await broker.call(ApiKey.CREATE_TOPICS, 7, topics=list(topics), timeout_ms=60_000, **more)
    return [(each.name, ErrorCode(each.error_code).name) for each in response.topics]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("new", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic("new", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", configs=[Message(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (topic("new", configs=[Message(name="no.such.key", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic("new", assignments=[Message(partition_index=0, broker_ids=[1])]), ErrorCode.INVALID_REQUEST),
        (
            topic(
                "new",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Message(partition_index=0, broker_ids=[7])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic(
                "new",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Message(partition_index=0, broker_ids=[1])],
            ),
            ErrorCode.NONE,
        ),
        (topic("new", num_partitions=-1, replication_factor=-1), ErrorCode.NONE),
    ],
)
def test_create_topics(tmp_path: Path, wanted: Message, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert await create(broker, wanted) == [(wanted.name, expected.name)]
            assert ("new" in broker.services.image.topics) == (expected is ErrorCode.NONE)

    asyncio.run(main())


def test_validate_only_and_duplicates(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            assert await create(broker, topic("new"), validate_only=True) == [("new", "NONE")]
            assert await create(broker, topic("new"), topic("new")) == [("new", "INVALID_REQUEST")]
            assert broker.services.image.topics == {}

    asyncio.run(main())


def test_after_a_time_out_the_topic_is_still_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        original = Controller.create_topics

        async def slow(
            self: Controller, topics: Sequence[NewTopic], *, validate_only: bool = False
        ) -> list[CreatedTopic]:
            await gate.wait()
            return await original(self, topics, validate_only=validate_only)

        async with running(tmp_path) as broker:
            monkeypatch.setattr(Controller, "create_topics", slow)
            response = await broker.call(ApiKey.CREATE_TOPICS, 7, topics=[topic("new")], timeout_ms=1)
            assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            created = asyncio.Event()
            broker.services.metadata.add(ImageListener("test", lambda image, delta: created.set()))
            gate.set()
            await created.wait()
            assert "new" in broker.services.image.topics

    asyncio.run(main())


async def delete(broker: Broker, *topics: tuple[str | None, UUID], version: int = 6) -> list[str]:
    wanted = [Message(name=name, topic_id=topic_id) for name, topic_id in topics]
    names = [name for name, _ in topics if name is not None]
    response = await broker.call(ApiKey.DELETE_TOPICS, version, topics=wanted, topic_names=names, timeout_ms=60_000)
    return [ErrorCode(each.error_code).name for each in response.responses]


def test_delete_topics(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            assert await delete(broker, ("missing", NO_TOPIC_ID)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
            assert await delete(broker, (None, UUID(int=4))) == ["UNKNOWN_TOPIC_ID"]
            assert await delete(broker, ("orders", topic_id)) == ["INVALID_REQUEST"]
            assert await delete(broker, (None, NO_TOPIC_ID)) == ["INVALID_REQUEST"]
            assert await delete(broker, ("orders", NO_TOPIC_ID), ("orders", NO_TOPIC_ID)) == ["INVALID_REQUEST"]
            assert await delete(broker, (None, topic_id)) == ["NONE"]

    asyncio.run(main())


@pytest.mark.parametrize(("version", "expected"), [(2, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")])
def test_deletion_can_be_disabled(tmp_path: Path, version: int, expected: str) -> None:
    async def main() -> None:
        async with running(tmp_path, config={"delete.topic.enable": "false"}) as broker:
            await broker.create_topic("orders")
            assert await delete(broker, ("orders", NO_TOPIC_ID), version=version) == [expected]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "count", "assignments", "expected"),
    [
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("missing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 3, [Message(broker_ids=[5])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [Message(broker_ids=[1])], ErrorCode.NONE),
    ],
)
def test_create_partitions(
    tmp_path: Path, name: str, count: int, assignments: list[Message] | None, expected: ErrorCode
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            for validate_only in (True, False):
                response = await broker.call(
                    ApiKey.CREATE_PARTITIONS,
                    3,
                    topics=[Message(name=name, count=count, assignments=assignments)],
                    timeout_ms=60_000,
                    validate_only=validate_only,
                )
                assert response.results[0].error_code == expected
            assert len(broker.services.image.topics["orders"].partitions) == (3 if expected is ErrorCode.NONE else 2)

    asyncio.run(main())


def configs_of(broker: Broker, kind: int, name: str, *keys: str) -> tuple[str, dict[str, tuple[str | None, int]]]:
    resource = Message(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    response = broker.call_now(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    )
    (result,) = response.results
    found = {config.name: (config.value, config.config_source) for config in result.configs}
    assert all(config.documentation is None and config.synonyms == [] for config in result.configs)
    assert result.error_message is not None, "empty if there is no error"
    return ErrorCode(result.error_code).name, found


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (2, "missing", "UNKNOWN_TOPIC_OR_PARTITION"),
        (2, "a b", "INVALID_TOPIC_EXCEPTION"),
        (4, "2", "INVALID_REQUEST"),
        (4, "", "NONE"),
        (8, "1", "INVALID_REQUEST"),
        (16, "subscription", "NONE"),
        (32, "group", "INVALID_REQUEST"),
        (77, "", "INVALID_REQUEST"),
    ],
)
def test_describe_configs_errors(tmp_path: Path, kind: int, name: str, expected: str) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            assert configs_of(broker, kind, name) == (expected, {})

    asyncio.run(main())


async def alter(broker: Broker, kind: int, name: str, *changes: tuple[str, int, str | None]) -> str:
    configs = [Message(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    response = await broker.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[Message(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=False,
    )
    return ErrorCode(response.responses[0].error_code).name


def test_incremental_alter_configs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            log = broker.replica("orders").log
            assert await alter(broker, 2, "orders", ("cleanup.policy", 2, "compact")) == "NONE"
            assert log.config.cleanup_policy == {"delete", "compact"}
            assert broker.replica("orders").policy.compacted
            assert await alter(broker, 2, "orders", ("cleanup.policy", 3, "delete")) == "NONE"
            assert log.config.cleanup_policy == {"compact"}
            assert await alter(broker, 2, "orders", ("cleanup.policy", 1, None)) == "NONE"
            assert log.config.cleanup_policy == {"delete"}
            assert await alter(broker, 2, "orders", ("no.such", 0, "1")) == "INVALID_CONFIG"
            assert await alter(broker, 2, "orders", ("retention.ms", 0, None)) == "INVALID_REQUEST"
            assert await alter(broker, 2, "missing", ("retention.ms", 0, "1")) == "UNKNOWN_TOPIC_OR_PARTITION"
            assert await alter(broker, 4, "1", ("node.id", 0, "3")) == "INVALID_REQUEST"
            assert await alter(broker, 4, "9", ("log.retention.ms", 0, "3")) != "NONE"

    asyncio.run(main())


def test_broker_defaults_reach_logs_and_descriptions(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            await broker.create_topic("own", retention_ms="7")
            assert await alter(broker, 4, "", ("log.retention.ms", 0, "1234")) == "NONE"
            assert broker.replica("orders").log.config.retention_ms == 1234
            assert broker.replica("own").log.config.retention_ms == 7
            assert configs_of(broker, 2, "orders", "retention.ms") == ("NONE", {"retention.ms": ("1234", 3)})
            assert configs_of(broker, 2, "own", "retention.ms") == ("NONE", {"retention.ms": ("7", 1)})
            assert configs_of(broker, 4, "") == ("NONE", {"log.retention.ms": ("1234", 3)})

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": 5}, ErrorCode.NONE),
    ],
)
def test_init_producer_id(tmp_path: Path, fields: dict[str, Any], expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            request = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
            response = await broker.call(ApiKey.INIT_PRODUCER_ID, 4, **request)
            assert response.error_code == expected
            assert (response.producer_id >= 0) == (expected is ErrorCode.NONE)

    asyncio.run(main())


def test_producer_ids_are_never_assigned_twice(tmp_path: Path) -> None:
    async def main() -> None:
        taken: list[int] = []
        for _ in range(2):
            async with running(tmp_path) as broker:
                results = await asyncio.gather(*(broker.services.producer_ids.take() for _ in range(1500)))
                taken += [producer_id for _, producer_id in results]
        assert len(set(taken)) == 3000

    asyncio.run(main())
