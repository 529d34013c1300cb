"""A node in the test's process: successful and failing starts, stops and restarts."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom

import pytest

from rookery.base.clock import SystemClock
from rookery.base.codes import ConfigOperation, ResourceType
from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.base.files import File, OsFile, OsFiles
from rookery.base.types import Buffer, TopicPartition
from rookery.client import Consumer, Producer
from rookery.client.admin import (
    EARLIEST,
    LATEST,
    Admin,
    ConfigChange,
    ConfigResource,
    NewTopic,
)
from rookery.client.cluster import Cluster
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.storage.checkpoints import COMMITTED_FILE
from tests.broker.harness import UnsyncedFiles


def make_node(data_dir: Path, *settings: str, files: OsFiles | None = None, boot_id: str | None = None) -> Node:
    loaded = Settings.load(None, [f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0", *settings])
    # Each start has other random numbers, as each process does: its incarnation id tells it from the one before.
    return Node(loaded, files=files or OsFiles(), clock=SystemClock(), random=SystemRandom(), boot_id=boot_id)


@asynccontextmanager
async def running(data_dir: Path, *settings: str, files: OsFiles | None = None) -> AsyncIterator[Cluster]:
    node = make_node(data_dir, *settings, files=files)
    await node.start()
    try:
        async with Cluster.at(node.address, timeout_s=60) as cluster:
            yield cluster
    finally:
        await node.stop()


async def create(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    (outcome,) = await Admin.over(cluster).create_topics([NewTopic(name=name, partitions=partitions, configs=named)])
    outcome.check()


def config(cluster: Cluster, **settings: object) -> dict[str, object]:
    """Return the configuration of a separate client of the same node; `settings` are, for example, `retries=0`."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return {"bootstrap.servers": str(cluster.settings.bootstrap_servers[0]), **named}


async def produce(cluster: Cluster, topic: str, *values: str, partition: int = 0) -> None:
    async with Producer[bytes, bytes](config(cluster)) as producer:
        for value in values:
            await producer.send(topic, value.encode(), partition=partition)


async def offset_at(cluster: Cluster, partition: TopicPartition, timestamp_ms: int) -> int:
    return (await Admin.over(cluster).list_offsets({partition: timestamp_ms}))[partition].offset


async def read_all(cluster: Cluster, topic: str) -> list[str]:
    values: list[str] = []
    partition = TopicPartition(topic, 0)
    end_offset = await offset_at(cluster, partition, LATEST)
    async with Consumer[bytes, bytes](config(cluster, auto_offset_reset="earliest")) as consumer:
        consumer.assign([partition])
        while await consumer.position(partition) < end_offset:
            values += [(record.value or b"").decode() for record in await consumer.poll()]
    return values


def test_records_and_topics_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "kept", partitions=3)
            await produce(cluster, "kept", "a", "b")
        async with running(tmp_path) as cluster:
            (topic,) = await Admin.over(cluster).describe_topics(["kept"])
            assert len(topic.partitions) == 3
            await produce(cluster, "kept", "c")
            assert await read_all(cluster, "kept") == ["a", "b", "c"]

    asyncio.run(scenario())


def test_an_unclean_stop_begins_a_new_leader_epoch_and_a_clean_one_does_not(tmp_path: Path) -> None:
    async def leader_epoch() -> int:
        async with running(tmp_path) as cluster:
            (topic,) = await Admin.over(cluster).describe_topics(["t"])
            return topic.partitions[0].leader_epoch

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "t")
        assert await leader_epoch() == 0
        (tmp_path / ".kafka_cleanshutdown").unlink()
        assert await leader_epoch() == 1
        assert await leader_epoch() == 1

    asyncio.run(scenario())


def test_a_killed_process_begins_a_new_leader_epoch_only_if_the_machine_was_booted(tmp_path: Path) -> None:
    async def leader_epoch_of_a_killed_node(boot_id: str) -> int:
        node = make_node(tmp_path, boot_id=boot_id)
        await node.start()
        async with Cluster.at(node.address, timeout_s=60) as cluster:
            (topic,) = await Admin.over(cluster).describe_topics(["t"])
        await node.stop(clean=False)
        return topic.partitions[0].leader_epoch

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "t")
        assert [await leader_epoch_of_a_killed_node(boot_id) for boot_id in "aaabb"] == [0, 0, 0, 1, 1]

    asyncio.run(scenario())


def test_a_port_in_use_fails_the_start_and_releases_the_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(StartupError, match=rf"cannot listen on 127.0.0.1:{port}.*with --listen"):
                await make_node(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{port}").start()
        async with running(tmp_path):
            pass

    asyncio.run(scenario())


def test_a_locked_directory_fails_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            with pytest.raises(StartupError, match=r"another process holds"):
                await make_node(tmp_path).start()

    asyncio.run(scenario())


def test_a_metadata_log_with_unknown_records_fails_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "t")
        path = tmp_path / "__cluster_metadata-0" / "quorum-state"
        path.write_bytes(b"not json")
        with pytest.raises(StartupError, match=r"the metadata log cannot be read"):
            await make_node(tmp_path).start()

    asyncio.run(scenario())


class SlowFiles(OsFiles):
    """Opening a log waits until the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.opened: list[str] = []

    def list_directory(self, path: Path) -> list[str]:
        if path.name.startswith("slow-"):
            self.opened.append(path.name)
            assert self.gate.wait(60)
        return super().list_directory(path)


def test_a_cancelled_start_ends_after_the_current_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = SlowFiles()
        files.gate.set()
        async with running(tmp_path, files=files) as cluster:
            await create(cluster, "slow", partitions=3)
            await produce(cluster, "slow", "kept")
        files.gate.clear()
        files.opened.clear()
        node = make_node(tmp_path, "num.recovery.threads.per.data.dir=1", files=files)
        starting = asyncio.ensure_future(node.start())
        while not files.opened:
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.sleep(0.05)
        assert not starting.done(), "the directory would be released while a thread works in it"
        files.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert files.opened == ["slow-0"]
        async with running(tmp_path) as cluster:
            assert await read_all(cluster, "slow") == ["kept"]

    asyncio.run(scenario())


def test_connections_leave_descriptors_for_the_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        loaded = Settings.load(None, [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"])
        node = Node(loaded, files=OsFiles(), clock=SystemClock(), random=Random(1), descriptor_limit=11)
        await node.start()
        host, _, port = node.address.rpartition(":")
        writers = []
        for _ in range(2):
            writers.append((await asyncio.open_connection(host, int(port)))[1])
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        for each in (*writers, writer):
            each.close()
        await node.stop()

    asyncio.run(scenario())


def test_partitions_are_spread_over_the_log_directories(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = tmp_path / "a", tmp_path / "b"
        async with running(tmp_path, f"log.dirs={first},{second}") as cluster:
            await create(cluster, "spread", partitions=6)
        counts = [len([name for name in os.listdir(path) if name.startswith("spread-")]) for path in (first, second)]
        assert counts == [3, 3]

    asyncio.run(scenario())


def test_two_thousand_partitions_start_and_serve(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, "many", partitions=2000)
            await produce(cluster, "many", "last", partition=1999)
        async with running(tmp_path) as cluster:
            (topic,) = await Admin.over(cluster).describe_topics(["many"])
            assert len(topic.partitions) == 2000
            assert len(os.listdir("/proc/self/fd")) < 500, "files are opened when they are needed"

    asyncio.run(scenario())


class FullDisk(OsFiles):
    """Writes to one directory fail as on a full disk, once the test has set it."""

    def __init__(self) -> None:
        self.full: Path | None = None

    def open(self, path: Path, *, create: bool = False) -> File:
        return _FileOnFullDisk(path, create=create, disk=self)


class _FileOnFullDisk(OsFile):
    def __init__(self, path: Path, *, create: bool, disk: FullDisk) -> None:
        super().__init__(path, create=create)
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self._disk.full in self.path.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        super().append(data)


def test_a_full_disk_takes_its_directory_offline_and_the_rest_serves(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FullDisk()
        healthy, failing = tmp_path / "healthy", tmp_path / "failing"
        async with running(tmp_path, f"log.dirs={healthy},{failing}", files=disk) as cluster:
            await create(cluster, "t", partitions=2)
            on_failing = 0 if (failing / "t-0").exists() else 1
            await produce(cluster, "t", "before", partition=on_failing)
            disk.full = failing
            async with Producer[bytes, bytes](config(cluster, retries=0, enable_idempotence=False)) as producer:
                refused = await producer.send("t", b"refused", partition=on_failing)
                with pytest.raises(ApiError) as raised:
                    await refused
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            await produce(cluster, "t", "still served", partition=1 - on_failing)
            directories = await Admin.over(cluster).describe_log_dirs([1])
            codes = {Path(item.path): item.error for item in directories}
            assert codes == {healthy: ErrorCode.NONE, failing: ErrorCode.KAFKA_STORAGE_ERROR}
        # With free space again, a restart serves every acknowledged record.
        disk.full = None
        async with running(tmp_path, f"log.dirs={healthy},{failing}", files=disk) as cluster:
            assert await offset_at(cluster, TopicPartition("t", on_failing), LATEST) == 1

    asyncio.run(scenario())


class FailingMetadata(OsFiles):
    """The files next to the metadata log cannot be written, once the test has switched that on."""

    def __init__(self) -> None:
        self.fails = False

    def write_file(self, path: Path, data: Buffer) -> None:
        if self.fails and path.parent.name.startswith("__cluster_metadata"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        super().write_file(path, data)


class FailingCommits(UnsyncedFiles):
    """Fails when the synced end of the metadata log is written for the n-th time."""

    def __init__(self, number: int) -> None:
        self._left = number

    def rename(self, source: Path, target: Path) -> None:
        self._left -= target.name == COMMITTED_FILE
        if self._left <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
        super().rename(source, target)


def test_a_metadata_disk_that_fails_before_the_registration_fails_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        # The end at the opening, the end of the election, and that of the first records.
        node = make_node(tmp_path, "broker.session.timeout.ms=3000", files=FailingCommits(3))
        with pytest.raises(StartupError, match=r"Input/output error.*repair the disk, then start again"):
            await node.start()
        async with running(tmp_path) as cluster:
            await create(cluster, "orders")

    asyncio.run(scenario())


def test_a_metadata_disk_that_fails_during_the_stop_does_not_hinder_other_components(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingMetadata()
        settings = (f"log.dirs={tmp_path / 'data'}", f"metadata.log.dir={tmp_path / 'metadata'}")
        async with running(tmp_path, *settings, files=disk) as cluster:
            await create(cluster, "t")
            await produce(cluster, "t", "kept")
            disk.fails = True
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        disk.fails = False
        async with running(tmp_path, *settings, files=disk) as cluster:
            assert await read_all(cluster, "t") == ["kept"]

    asyncio.run(scenario())


def test_retention_runs_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "log.retention.check.interval.ms=20") as cluster:
            await create(cluster, "short", retention_ms="1", internal_segment_bytes="200", file_delete_delay_ms="0")
            await produce(cluster, "short", *("x" * 150 for _ in range(5)))
            partition = TopicPartition("short", 0)
            while await offset_at(cluster, partition, EARLIEST) < 5:
                await asyncio.sleep(0.02)
            while len([name for name in os.listdir(tmp_path / "short-0") if name.endswith(".log")]) > 1:
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


class WatchedFiles(OsFiles):
    """Records which threads removed segments: a gigabyte takes long, and the event loop must not wait for it."""

    def __init__(self) -> None:
        self.removers: set[bool] = set()

    def remove(self, path: Path) -> None:
        if ".log" in path.suffixes and path.exists():
            self.removers.add(threading.current_thread() is threading.main_thread())
        super().remove(path)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_segments_are_removed_outside_of_the_event_loop(tmp_path: Path, policy: str) -> None:
    async def scenario() -> None:
        files = WatchedFiles()
        settings = ("log.retention.check.interval.ms=20", "log.cleaner.backoff.ms=20")
        async with running(tmp_path, *settings, files=files) as cluster:
            await create(
                cluster,
                "t",
                cleanup_policy=policy,
                internal_segment_bytes="200",
                retention_ms="1",
                min_cleanable_dirty_ratio="0.01",
            )
            async with Producer[bytes, bytes](config(cluster)) as producer:
                for _ in range(5):
                    await (await producer.send("t", b"x" * 150, key=b"k", partition=0))
            while not files.removers:
                await asyncio.sleep(0.02)
            assert files.removers == {False}

    asyncio.run(scenario())


def test_the_cleaner_runs_by_itself_and_its_settings_can_be_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "log.cleaner.backoff.ms=20") as cluster:
            await create(
                cluster, "latest", cleanup_policy="compact", internal_segment_bytes="300", min_cleanable_dirty_ratio="1"
            )
            async with Producer[bytes, bytes](config(cluster)) as producer:
                for number in range(20):
                    await (await producer.send("latest", f"{number:0100}".encode(), key=b"k", partition=0))
            topic = ConfigResource(ResourceType.TOPIC, "latest")
            change = ConfigChange("min.cleanable.dirty.ratio", ConfigOperation.SET, "0.01")
            (outcome,) = await Admin.over(cluster).alter_configs({topic: [change]})
            outcome.check()
            while len(await read_all(cluster, "latest")) > 3:
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_flush_ms_takes_effect(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ("log.flush.scheduler.interval.ms=10", "log.flush.offset.checkpoint.interval.ms=10")
        async with running(tmp_path, *settings) as cluster:
            await create(cluster, "synced", flush_ms="1")
            await produce(cluster, "synced", "a", "b")
            checkpoint = tmp_path / "recovery-point-offset-checkpoint"
            while not checkpoint.exists() or "synced 0 2" not in checkpoint.read_text():
                await asyncio.sleep(0.02)

    asyncio.run(scenario())
