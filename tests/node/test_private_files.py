"""Other users of the machine have no access to a node's files, whatever the umask."""

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rookery.base.types import TopicPartition
from rookery.client import Consumer, Producer
from rookery.client.admin import Admin
from tests.node.test_node import config, create, make_node, running


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(path: Path) -> list[str]:
    """Return the files and directories that other users may read, write or enter."""
    found = []
    for directory, _, names in os.walk(path):
        for child in [Path(directory), *(Path(directory, name) for name in names)]:
            # The running node replaces and removes files during the walk.
            with suppress(FileNotFoundError):
                if child.stat().st_mode & 0o077:
                    found.append(f"{child} {child.stat().st_mode:o}")
    return found


async def produce_generations(bootstrap: dict[str, object]) -> None:
    """Write aborted and committed transactions over several segments, with new values for the same keys."""
    async with Producer[bytes, bytes](bootstrap | {"transactional.id": "writer"}) as producer:
        await producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            for topic in ("latest", "kept"):
                await (await producer.send(topic, b"%0100d" % number, key=b"k", partition=0))
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


async def consume_one(bootstrap: dict[str, object]) -> None:
    """Consume with a group, whose commit writes to the offsets topic."""
    settings = bootstrap | {"group.id": "readers", "auto.offset.reset": "earliest"}
    async with Consumer[bytes, bytes](settings) as consumer:
        consumer.assign([TopicPartition("kept", 0)])
        while not await consumer.poll():
            pass
        await consumer.commit()


def test_files_and_directories_are_closed_to_other_users(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    settings = (
        "log.cleaner.backoff.ms=20",
        "log.flush.offset.checkpoint.interval.ms=20",
        "log.flush.interval.messages=1",
    )

    async def scenario() -> None:
        async with running(data_dir, *settings) as cluster:
            await create(
                cluster,
                "latest",
                cleanup_policy="compact",
                min_cleanable_dirty_ratio="0.01",
                internal_segment_bytes="400",
            )
            await create(cluster, "kept", internal_segment_bytes="400")
            await create(cluster, "gone")
            first_segment = data_dir / "latest-0" / "00000000000000000000.log"
            # Kept open: a file that replaces the one after it could otherwise get the same inode again.
            original = first_segment.open("rb")
            await produce_generations(config(cluster))
            await consume_one(config(cluster))
            await Admin.over(cluster).delete_topics(["gone"])
            with original:
                inode = os.fstat(original.fileno()).st_ino
                while first_segment.exists() and first_segment.stat().st_ino == inode:
                    await asyncio.sleep(0.02)
            assert open_to_others(tmp_path / "new") == []
        assert open_to_others(tmp_path / "new") == []
        (data_dir / ".kafka_cleanshutdown").unlink()
        node = make_node(data_dir)
        await node.start()
        await node.stop(clean=False)

    asyncio.run(scenario())
    assert open_to_others(tmp_path / "new") == []
    kinds = {child.suffix or child.name for child in data_dir.rglob("*") if child.is_file()}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ".properties"} <= kinds
    assert {"leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "quorum-state", ".lock"} <= kinds


def test_existing_files_keep_their_mode(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"

    async def start_and_stop() -> None:
        async with running(data_dir):
            pass

    asyncio.run(start_and_stop())
    segment = data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    segment.chmod(0o640)
    data_dir.chmod(0o750)
    asyncio.run(start_and_stop())
    assert stat.S_IMODE(segment.stat().st_mode) == 0o640
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o750
