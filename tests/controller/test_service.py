"""The controller with a real metadata log: decisions run one at a time and are published before their results."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.codes import ResourceType, UpgradeType
from rookery.base.errors import ApiError, ErrorCode, NotControllerError, StorageError
from rookery.base.files import OsFiles
from rookery.base.types import NO_TOPIC_ID, Offset
from rookery.controller.service import Controller, MetadataLog
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, ConfigResource, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import BrokerEndpoint
from rookery.metadata.requests import (
    OK,
    BrokerHeartbeat,
    ConfigChange,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    Registration,
    ResourceChange,
)
from rookery.quorum.driver import QuorumDriver
from rookery.storage.directory import LogDirectory
from tests.controller.cluster import StaticVoters
from tests.controller.manual_log import ManualLog
from tests.quorum.sole import close, open_sole_voter


class Node(NamedTuple):
    log: QuorumDriver
    metadata: MetadataPublisher
    controller: Controller

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image


def registration() -> Registration:
    return Registration(
        node_id=1,
        cluster_id="cluster",
        incarnation_id=UUID(int=1),
        endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092),),
        features=SUPPORTED_FEATURES,
        log_directories=(UUID(int=1000),),
    )


async def serve(controller: Controller, new: Registration | None = None) -> int:
    """Register broker 1 and unfence it; returns its epoch."""
    registered = await controller.register_broker(registration() if new is None else new)
    assert registered.outcome.code is ErrorCode.NONE
    epoch = registered.broker_epoch
    reply = await controller.heartbeat(BrokerHeartbeat(node_id=1, broker_epoch=epoch, metadata_offset=epoch))
    assert not reply.is_fenced
    return epoch


def open_node(directory: LogDirectory, *listeners: ImageListener) -> Node:
    metadata = MetadataPublisher()
    for listener in listeners:
        metadata.add(listener)
    log = open_sole_voter(OsFiles(), directory, on_commit=metadata.commit)
    asyncio.run(metadata.start(log.batches()))
    return Node(log, metadata, new_controller(log, metadata))


def new_controller(log: MetadataLog, metadata: MetadataPublisher) -> Controller:
    return Controller(log, metadata, node_id=1, cluster_id="cluster", static={}, random=Random(7), clock=ManualClock())


def run(node: Node, scenario: Callable[[Controller], Awaitable[None]]) -> None:
    """Run a scenario while the node is the active controller."""

    async def active() -> None:
        node.controller.activate(node.log.leader_epoch)
        await scenario(node.controller)
        await node.controller.close()

    asyncio.run(active())


async def use_everything(controller: Controller) -> None:
    epoch = await serve(controller)
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
    run(node, use_everything)
    image = node.image
    assert list(image.topics) == ["a"]
    assert len(image.topics["a"].partitions) == 3
    assert image.topic_config("a") == {"retention.ms": "5", "segment.ms": "6"}
    assert image.next_producer_id == 1000
    assert image.brokers[1].broker_epoch == 5
    assert image.features["transaction.version"] == 0
    assert image.offset == node.log.next_offset - 1
    close(node.log)
    again = open_node(LogDirectory(tmp_path))
    assert again.image == image

    async def restart(controller: Controller) -> None:
        await serve(controller, replace(registration(), incarnation_id=UUID(int=2)))

    run(again, restart)
    assert [partition.leader_epoch for partition in again.image.topics["a"].partitions.values()] == [1, 1, 1]
    close(again.log)


def test_listeners_see_the_image_before_the_result(tmp_path: Path) -> None:
    node = open_node(LogDirectory(tmp_path))
    seen: list[str] = []

    def apply(image: ClusterImage, delta: Delta) -> None:
        assert image is node.image
        seen.extend(topic.name for topic in delta.created)

    async def scenario(controller: Controller) -> None:
        await serve(controller)
        node.metadata.add(ImageListener("test", apply))
        await controller.create_topics([NewTopic(name="a")])
        assert seen == ["a"]

    run(node, scenario)


def test_the_start_is_one_change_of_the_empty_cluster(tmp_path: Path) -> None:
    node = open_node(LogDirectory(tmp_path))
    run(node, use_everything)
    close(node.log)
    deltas: list[Delta] = []
    close(open_node(LogDirectory(tmp_path), ImageListener("test", lambda _, delta: deltas.append(delta))).log)
    (delta,) = deltas
    assert [topic.name for topic in delta.created] == ["a"]
    assert delta.brokers == {1}


def test_racing_requests_see_each_other(tmp_path: Path) -> None:
    codes: list[ErrorCode] = []

    async def scenario(controller: Controller) -> None:
        await serve(controller)
        results = await asyncio.gather(*(controller.create_topics([NewTopic(name="a")]) for _ in range(5)))
        codes.extend(result.outcome.code for (result,) in results)

    run(open_node(LogDirectory(tmp_path)), scenario)
    assert sorted(codes) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4


class SlowLog(StaticVoters):
    """A log whose appends are committed when `may_finish` is set."""

    def __init__(self, metadata: MetadataPublisher) -> None:
        self.may_finish = asyncio.Event()
        self.is_broken = False
        self.epoch = 1
        self.next_offset = 0
        self._metadata = metadata
        self._turn = asyncio.Lock()

    async def propose(self, values: Sequence[bytes], *, epoch: int) -> "tuple[Offset, asyncio.Future[None]]":
        if self.is_broken:
            raise StorageError("offline")
        if epoch != self.epoch:
            raise NotControllerError
        published = asyncio.ensure_future(self._publish(self.next_offset, values))
        self.next_offset += len(values)
        return self.next_offset - 1, published

    async def _publish(self, base_offset: Offset, values: Sequence[bytes]) -> None:
        async with self._turn:
            await self.may_finish.wait()
            await self._metadata.commit(base_offset, values)


def test_a_decision_is_completed_even_if_its_caller_is_cancelled() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        controller = new_controller(log, metadata)
        controller.activate(1)
        waiter = asyncio.ensure_future(controller.register_broker(registration()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert metadata.image == EMPTY_IMAGE
        log.may_finish.set()
        await asyncio.sleep(0.01)
        assert list(metadata.image.brokers) == [1]
        await controller.close()

    asyncio.run(scenario())


def test_a_failure_after_the_caller_was_cancelled_is_no_surprise() -> None:
    surprises: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: surprises.append(context["message"]))
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        controller = new_controller(log, metadata)
        controller.activate(1)
        waiter = asyncio.ensure_future(controller.register_broker(registration()))
        await asyncio.sleep(0.01)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        controller.deactivate()
        log.may_finish.set()
        await controller.close()

    asyncio.run(scenario())
    gc.collect()
    assert not surprises


def test_a_failed_log_changes_nothing() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        log.is_broken = True
        controller = new_controller(log, metadata)
        controller.activate(1)
        with pytest.raises(StorageError):
            await controller.register_broker(registration())
        assert metadata.image == EMPTY_IMAGE
        await controller.close()

    asyncio.run(scenario())


def test_only_the_active_controller_decides() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = ManualLog(metadata)
        controller = new_controller(log, metadata)
        assert not controller.is_active
        for request in (
            controller.register_broker(registration()),
            controller.heartbeat(BrokerHeartbeat(node_id=1, broker_epoch=1, metadata_offset=1)),
            controller.list_reassignments(None),
            controller.create_topics([NewTopic(name="a")]),
        ):
            with pytest.raises(NotControllerError):
                await request
        controller.activate(1)
        waiting = [asyncio.ensure_future(controller.register_broker(registration())) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert controller.is_active
        assert log.pending_count == 2, "the second registration is the first one's"
        await log.commit()
        controller.deactivate()
        log.lose()
        for each in waiting:
            with pytest.raises(NotControllerError):
                await each
        assert list(metadata.image.brokers) == []
        assert metadata.image.features, "the first append was committed"
        await controller.close()

    asyncio.run(scenario())


def test_a_new_epoch_fails_what_was_decided_in_the_old_one() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        log.may_finish.set()
        controller = new_controller(log, metadata)
        controller.activate(1)
        epoch = await serve(controller)
        log.epoch = 2
        with pytest.raises(NotControllerError):
            await controller.create_topics([NewTopic(name="a")])
        controller.activate(2)
        assert (await controller.allocate_producer_ids(1, epoch)).size == 1000
        await controller.close()

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
    topic = ConfigResource(ResourceType.TOPIC, "a")
    change = ResourceChange(topic, (ConfigChange("retention.ms", "5"),))

    async def scenario(controller: Controller) -> None:
        epoch = await serve(controller)
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
            await controller.register_broker(replace(registration(), rack="new"))

    run(node, scenario)
    assert list(node.image.topics) == ["a"]


def test_the_level_of_the_voters_is_raised_before_other_levels_and_has_no_record() -> None:
    async def scenario() -> None:
        metadata = MetadataPublisher()
        log = SlowLog(metadata)
        log.may_finish.set()
        controller = new_controller(log, metadata)
        controller.activate(1)
        both = [FeatureUpdate("kraft.version", 1), FeatureUpdate("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE)]
        log.problem = ApiError(ErrorCode.INVALID_UPDATE_VERSION, "voter 2 is too old")
        refused = await controller.update_features(both)
        assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
        assert "voter 2 is too old" in str(refused.message)
        assert metadata.image.features["transaction.version"] == 2, "all or none"
        log.problem = None
        assert await controller.update_features(both, validate_only=True) == OK
        assert (log.kraft_version, metadata.image.features["transaction.version"]) == (0, 2)
        assert await controller.update_features(both) == OK
        assert (log.kraft_version, metadata.image.features["transaction.version"]) == (1, 0)
        assert "kraft.version" not in metadata.image.features
        lowered = await controller.update_features([FeatureUpdate("kraft.version", 0, UpgradeType.UNSAFE_DOWNGRADE)])
        assert "cannot be moved back to the configuration" in str(lowered.message)
        await controller.close()

    asyncio.run(scenario())
