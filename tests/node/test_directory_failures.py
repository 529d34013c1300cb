"""Log directories of a cluster's node that fail: other replicas lead at once, or the node ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from rookery.base.types import TopicPartition
from rookery.client.admin import Admin, NewTopic
from rookery.metadata.image import PartitionImage
from rookery.node.directory_failures import DirectoryFailures
from rookery.node.node import Node
from rookery.storage.directory import LogDirectory
from tests.node.test_roles import Plan

# No heartbeat is due in the time of a test, and no lease ends.
RARE_HEARTBEATS = ("broker.heartbeat.interval.ms=3600000", "broker.session.timeout.ms=7200000")
BROKEN = OSError("input/output error")


def partitions(node: Node) -> list[PartitionImage]:
    topic = node._metadata.image.topics.get("t")
    return [] if topic is None else [topic.partitions[index] for index in sorted(topic.partitions)]


def directory_of(node: Node, index: int) -> LogDirectory:
    assert node._broker is not None
    replica = node._broker.replicas.find(TopicPartition("t", index))
    assert not isinstance(replica, int)
    return replica.log.log_directory


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def started(plan: Plan) -> tuple[Node, Node]:
    """Return a controller that is a broker too, and a broker. The second must stop first."""
    for node_id in (1, 2):
        plan.format(node_id)
    controller, broker = plan.node(1), plan.node(2)
    await asyncio.gather(controller.start(), broker.start())
    return controller, broker


def test_other_replicas_lead_the_partitions_of_a_failed_directory_at_once(tmp_path: Path) -> None:
    roles = ("broker,controller", "broker")
    plan = Plan(tmp_path, roles, is_dynamic=False, directories=("a", "b"), settings=RARE_HEARTBEATS)

    async def work() -> None:
        controller, broker = await started(plan)
        async with Admin({"bootstrap.servers": controller.address}) as admin:
            (outcome,) = await admin.create_topics([NewTopic(name="t", assignments={0: (2, 1), 1: (2, 1)})])
            outcome.check()
        await reached(lambda: all(2 in each.isr and each.directory_of(2).int for each in partitions(broker)))
        (lost,) = [index for index in (0, 1) if directory_of(broker, index).path.name == "b"]
        directory_of(broker, lost).fail(BROKEN)
        await reached(lambda: partitions(controller)[lost].leader == 1)
        assert partitions(controller)[1 - lost].leader == 2, "the other directory is well"
        directory_of(broker, 1 - lost).fail(BROKEN)
        assert "the metadata log's directory" in str(await broker.failed())
        await broker.stop()
        await controller.stop()

    asyncio.run(work())


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_node_ends_if_the_controller_could_not_be_informed_in_time(is_reported: bool) -> None:
    ended: list[str] = []
    calls: list[str] = []

    async def work() -> None:
        directories = [LogDirectory(Path(name)) for name in ("metadata", "a", "b")]
        ids = {each.path: uuid4() for each in directories}
        failures = DirectoryFailures(directories[1:], directories[0], ids=ids, timeout_s=0, end=ended.append)
        known = {ids[Path("a")]} if is_reported else set()
        lifecycle: Any = SimpleNamespace(report=lambda: calls.append("report"), reported_directories=known)
        failures.report_with(lifecycle)
        await asyncio.to_thread(directories[1].fail, BROKEN)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(work())
    assert calls == ["report"]
    assert len(ended) == (not is_reported)
    assert is_reported or "could not be informed within 0 s that the log directory a failed" in ended[0]


@pytest.mark.parametrize(("failed", "text"), [(["metadata"], "metadata log's"), (["a", "b"], "the last log directory")])
def test_a_node_ends_if_it_cannot_go_on(failed: list[str], text: str) -> None:
    ended: list[str] = []

    async def work() -> None:
        directories = {name: LogDirectory(Path(name)) for name in ("metadata", "a", "b")}
        logs = [directories["a"], directories["b"]]
        ids = {each.path: uuid4() for each in directories.values()}
        DirectoryFailures(logs, directories["metadata"], ids=ids, timeout_s=3600, end=ended.append)
        for name in failed:
            directories[name].fail(BROKEN)
            await asyncio.sleep(0)

    asyncio.run(work())
    assert len(ended) == 1
    assert text in ended[0]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_controlled_shutdown_can_be_disabled(tmp_path: Path, is_enabled: bool) -> None:
    settings = [f"controlled.shutdown.enable={str(is_enabled).lower()}"]
    plan = Plan(tmp_path, ("broker,controller", "broker"), is_dynamic=False, settings=settings)

    async def work() -> None:
        controller, broker = await started(plan)
        await broker.stop()
        assert controller._metadata.image.brokers[2].in_controlled_shutdown is is_enabled
        await controller.stop()

    asyncio.run(work())
