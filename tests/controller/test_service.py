"""The controller with a real metadata log: decisions run one at a time and are published before their results."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.codes import ResourceType, UpgradeType
from rookery.base.errors import ErrorCode, StorageError
from rookery.base.files import OsFiles
from rookery.base.types import NO_TOPIC_ID
from rookery.controller.service import Controller, MetadataLog
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, ConfigResource, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import BrokerEndpoint
from rookery.metadata.requests import (
    ConfigChange,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    Registration,
    ResourceChange,
)
from rookery.quorum.driver import QuorumDriver
from rookery.storage.directory import LogDirectory


class Node(NamedTuple):
    log: QuorumDriver
    metadata: MetadataPublisher
    controller: Controller

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image


def open_node(directory: LogDirectory, *listeners: ImageListener) -> Node:
    metadata = MetadataPublisher()
    for listener in listeners:
        metadata.add(listener)
    log = QuorumDriver.open(OsFiles(), directory, node_id=1, clock=ManualClock(), on_commit=metadata.commit)
    metadata.start(log.batches())
    return Node(log, metadata, new_controller(log, metadata))


def new_controller(log: MetadataLog, metadata: MetadataPublisher) -> Controller:
    return Controller(log, metadata, node_id=1, static={}, random=Random(7))


def registration(*, clean: bool = True) -> Registration:
    endpoints = (BrokerEndpoint("PLAINTEXT", "localhost", 9092),)
    return Registration(node_id=1, incarnation_id=UUID(int=1), endpoints=endpoints, clean=clean)


async def use_everything(controller: Controller) -> None:
    epoch = await controller.register_broker(registration())
    await controller.create_topics([NewTopic(name="a", partition_count=2), NewTopic(name="b")])
    await controller.create_topics([NewTopic(name="not-really")], validate_only=True)
    await controller.delete_topics([("b", NO_TOPIC_ID)])
    await controller.create_partitions([MorePartitions("a", 3)])
    topic = ConfigResource(ResourceType.TOPIC, "a")
    await controller.alter_configs([ResourceChange(topic, (ConfigChange("retention.ms", "5"),))])
    await controller.incremental_alter_configs([ResourceChange(topic, (ConfigChange("segment.ms", "6"),))])
    outcome = await controller.update_features([FeatureUpdate("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE)])
    assert outcome.code is ErrorCode.NONE
    block = await controller.allocate_producer_ids(1, epoch)
    assert (block.first, block.size) == (0, 1000)


def test_the_image_survives_restarts(tmp_path: Path) -> None:
    node = open_node(LogDirectory(tmp_path))
    asyncio.run(use_everything(node.controller))
    image = node.image
    assert list(image.topics) == ["a"]
    assert len(image.topics["a"].partitions) == 3
    assert image.topic_config("a") == {"retention.ms": "5", "segment.ms": "6"}
    assert image.next_producer_id == 1000
    assert image.brokers[1].broker_epoch == 4
    assert image.features["transaction.version"] == 0
    assert image.offset == node.log.next_offset - 1
    node.log.close()
    again = open_node(LogDirectory(tmp_path))
    assert again.image == image
    asyncio.run(again.controller.register_broker(registration(clean=False)))
    assert [partition.leader_epoch for partition in again.image.topics["a"].partitions.values()] == [1, 1, 1]
    again.log.close()


def test_listeners_see_the_image_before_the_result(tmp_path: Path) -> None:
    node = open_node(LogDirectory(tmp_path))
    seen: list[str] = []

    def apply(image: ClusterImage, delta: Delta) -> None:
        assert image is node.image
        seen.extend(topic.name for topic in delta.created)

    async def scenario() -> None:
        await node.controller.register_broker(registration())
        node.metadata.add(ImageListener("test", apply))
        await node.controller.create_topics([NewTopic(name="a")])
        assert seen == ["a"]

    asyncio.run(scenario())


def test_the_start_is_one_change_of_the_empty_cluster(tmp_path: Path) -> None:
    node = open_node(LogDirectory(tmp_path))
    asyncio.run(use_everything(node.controller))
    node.log.close()
    deltas: list[Delta] = []
    open_node(LogDirectory(tmp_path), ImageListener("test", lambda _, delta: deltas.append(delta))).log.close()
    (delta,) = deltas
    assert [topic.name for topic in delta.created] == ["a"]
    assert delta.brokers == {1}


def test_racing_requests_see_each_other(tmp_path: Path) -> None:
    controller = open_node(LogDirectory(tmp_path)).controller

    async def scenario() -> list[ErrorCode]:
        await controller.register_broker(registration())
        results = await asyncio.gather(*(controller.create_topics([NewTopic(name="a")]) for _ in range(5)))
        return [result.outcome.code for (result,) in results]

    codes = asyncio.run(scenario())
    assert sorted(codes) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4


class SlowLog:
    """A log whose appends finish when `may_finish` is set."""

    def __init__(self, metadata: MetadataPublisher) -> None:
        self.may_finish = asyncio.Event()
        self.is_broken = False
        self.next_offset = 0
        self._metadata = metadata

    async def append(self, values: Sequence[bytes]) -> None:
        if self.is_broken:
            raise StorageError("offline")
        await self.may_finish.wait()
        self.next_offset += len(values)
        await self._metadata.commit(self.next_offset - len(values), values)


def test_a_decision_is_completed_even_if_its_caller_is_cancelled() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        controller = new_controller(log, metadata)
        waiter = asyncio.ensure_future(controller.register_broker(registration()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert metadata.image == EMPTY_IMAGE
        log.may_finish.set()
        await controller.close()
        assert list(metadata.image.brokers) == [1]

    asyncio.run(scenario())


def test_a_failed_log_changes_nothing() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        log.is_broken = True
        with pytest.raises(StorageError):
            await new_controller(log, metadata).register_broker(registration())
        assert metadata.image == EMPTY_IMAGE

    asyncio.run(scenario())


def test_topic_ids_do_not_look_like_options() -> None:
    metadata = MetadataPublisher()
    controller = new_controller(SlowLog(metadata), metadata)
    ids = {controller._new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(topic_id.bytes[0] >> 2 != 62 for topic_id in ids), "62 is '-' in base64"


def test_a_disk_failure_is_reported_for_each_item(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    node = open_node(directory)
    controller = node.controller
    topic = ConfigResource(ResourceType.TOPIC, "a")
    change = ResourceChange(topic, (ConfigChange("retention.ms", "5"),))

    async def scenario() -> None:
        epoch = await controller.register_broker(registration())
        await controller.create_topics([NewTopic(name="a")])
        directory.fail(OSError("disk full"))
        outcomes = [
            *[each.outcome for each in await controller.create_topics([NewTopic(name="b"), NewTopic(name="c")])],
            *[each.outcome for each in await controller.delete_topics([("a", NO_TOPIC_ID)])],
            *[each.outcome for each in await controller.create_partitions([MorePartitions("a", 3)])],
            *[each.outcome for each in await controller.alter_configs([change])],
            *[each.outcome for each in await controller.incremental_alter_configs([change])],
            (await controller.allocate_producer_ids(1, epoch)).outcome,
        ]
        assert [outcome.code for outcome in outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR] * 7
        with pytest.raises(StorageError):
            await controller.register_broker(registration())

    asyncio.run(scenario())
    assert list(node.image.topics) == ["a"]
