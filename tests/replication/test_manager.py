"""The hosted partitions follow the cluster image, also after restarts."""

import asyncio
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.files import OsFiles
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.metadata.records import PartitionChangeRecord
from rookery.protocol.message import Message
from rookery.replication.partition import Partition
from rookery.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    decode_offsets,
    encode_partition_metadata,
    write_offsets,
)
from rookery.storage.manifest import MANIFEST_FILE, decode_manifest
from tests.broker.harness import NODE_ID, Broker, running
from tests.support.logs import captured_logs


async def delete(broker: Broker, name: str) -> None:
    topics = [Message(name=name, topic_id=NO_TOPIC_ID)]
    response = await broker.call(20, 6, topics=topics, timeout_ms=60_000)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_partitions_and_high_watermarks_survive_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders", partitions=2, retention_ms="77")
            broker.append("orders", b"a", b"b", partition=1)
        written = decode_offsets((tmp_path / "disk0" / HIGH_WATERMARK_FILE).read_bytes())
        assert written == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 2}
        async with running(tmp_path) as broker:
            replica = broker.replica("orders", 1)
            assert (replica.state.high_watermark, replica.log.end_offset) == (2, 2)
            assert replica.log.config.retention_ms == 77
            assert replica.state.topic_id == topic_id
            assert replica.state.leader_epoch == 0
            assert broker.append("orders", b"c", partition=1) == 2

    asyncio.run(main())


def test_a_topic_that_is_deleted_and_created_again_starts_empty(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            broker.append("orders", b"a", b"b")
            await delete(broker, "orders")
            missing = broker.services.replicas.find(TopicPartition("orders", 0))
            assert missing is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len(broker.services.replicas) == 0
            topic_id = await broker.create_topic("orders")
            assert broker.replica("orders").log.end_offset == 0
            assert broker.replica("orders").log.topic_id == topic_id

    asyncio.run(main())


def test_a_topic_that_is_created_again_does_not_inherit_a_high_watermark(tmp_path: Path) -> None:
    """A crash before the next checkpoint would let consumers read records that were never committed."""

    def checkpointed() -> dict[TopicPartition, int]:
        return decode_offsets((tmp_path / "disk0" / HIGH_WATERMARK_FILE).read_bytes())

    async def main() -> None:
        async with running(tmp_path) as broker:
            replicas, kept = broker.services.replicas, TopicPartition("kept", 0)
            await broker.create_topic("orders", partitions=2)
            await broker.create_topic("kept")
            for topic in ("orders", "kept"):
                broker.append(topic, b"a", b"b")
            await replicas.checkpoint_high_watermarks()
            assert checkpointed() == {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 0, kept: 2}
            old = list(replicas)
            await delete(broker, "orders")
            await broker.create_topic("orders", partitions=2)
            assert checkpointed() == {kept: 2}
            # A thread that was started before the deletion.
            replicas._checkpoints.write(old)
            assert checkpointed() == {kept: 2}

    asyncio.run(main())


def test_a_start_without_the_log_does_not_keep_its_high_watermark(tmp_path: Path) -> None:
    """The topic was deleted and created again while the node was down, or right before it was killed."""
    partition, disk = TopicPartition("orders", 0), tmp_path / "disk0"

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
        write_offsets(OsFiles(), disk / HIGH_WATERMARK_FILE, {partition: 7})
        shutil.rmtree(disk / str(partition))
        (disk / MANIFEST_FILE).unlink()
        async with running(tmp_path) as broker:
            assert broker.replica("orders").state.high_watermark == 0
            assert decode_offsets((disk / HIGH_WATERMARK_FILE).read_bytes()) == {}

    asyncio.run(main())


def names_of(path: Path, topic: str) -> list[str]:
    """Return the directories of a topic's partitions, including renamed ones."""
    return sorted(child.name for child in path.iterdir() if child.name.startswith(f"{topic}-"))


def test_the_log_of_a_topic_that_was_removed_is_set_aside_at_start(tmp_path: Path) -> None:
    async def main() -> None:
        data, copy = tmp_path / "disk0" / "orders-0", tmp_path / "copy"
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
        listed = (tmp_path / "disk0" / MANIFEST_FILE).read_bytes()
        assert TopicPartition("orders", 0) in decode_manifest(listed)
        async with running(tmp_path) as broker:
            shutil.copytree(data, copy)
            await delete(broker, "orders")
        # The state after a crash during the deletion: the metadata log has the removal, the disk still has the log.
        copy.rename(data)
        (tmp_path / "disk0" / MANIFEST_FILE).write_bytes(listed)
        async with running(tmp_path) as broker:
            assert len(broker.services.replicas) == 0
            # If it were listed, and the replica were to return, the next start would report its directory as missing.
            assert decode_manifest((tmp_path / "disk0" / MANIFEST_FILE).read_bytes()) == {}
        assert not data.exists()
        assert any(name.endswith("-stray") for name in names_of(tmp_path / "disk0", "orders"))

    asyncio.run(main())


def test_a_log_whose_topic_is_not_in_the_metadata_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
        foreign = tmp_path / "disk0" / "foreign-0"
        foreign.mkdir()
        (foreign / "00000000000000000000.log").touch()
        for _ in range(2):
            with captured_logs() as lines:
                async with running(tmp_path) as broker:
                    assert len(broker.services.replicas) == 1
            (error,) = [line for line in lines if line["log_level"] == "error"]
            assert error["partition"] == "foreign-0"
            assert names_of(tmp_path / "disk0", "foreign") == ["foreign-0"]

    asyncio.run(main())


def test_a_directory_with_an_unknown_topic_id_is_not_served_under_its_name(tmp_path: Path) -> None:
    async def main() -> None:
        partition = TopicPartition("orders", 0)
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
        id_file = tmp_path / "disk0" / "orders-0" / "partition.metadata"
        id_file.write_bytes(encode_partition_metadata(UUID(int=99)))
        async with running(tmp_path) as broker:
            assert broker.services.replicas.find(partition) is ErrorCode.KAFKA_STORAGE_ERROR
            assert names_of(tmp_path / "disk0", "orders") == ["orders-0"]
            await delete(broker, "orders")
            assert names_of(tmp_path / "disk0", "orders")[0].endswith("-delete")

    asyncio.run(main())


def test_a_partition_on_another_node_is_not_hosted(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.services.replicas._replicas.clear()
            assert broker.services.replicas.find(TopicPartition("orders", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.services.replicas.exists(TopicPartition("orders", 0))
            assert not broker.services.replicas.exists(TopicPartition("orders", 1))

    asyncio.run(main())


def test_unreadable_checkpoint_is_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
        (tmp_path / "disk0" / HIGH_WATERMARK_FILE).write_bytes(b"garbage")
        async with running(tmp_path) as broker:
            assert broker.replica("orders").state.high_watermark == 1

    asyncio.run(main())


def test_new_partitions_and_leaders_of_known_topics(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            topics = [Message(name="orders", count=3, assignments=None)]
            await broker.call(37, 3, topics=topics, timeout_ms=60_000, validate_only=False)
            assert broker.append("orders", b"a", partition=2) == 0

    asyncio.run(main())


def test_publishing_an_image_sets_the_state_of_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`prepare` has done it in slices: in `apply`, ten thousand partitions would take too long for one turn."""

    async def main() -> list[str]:
        async with running(tmp_path) as broker:
            replicas, calls = broker.services.replicas, list[str]()
            set_leader = Partition.set_leader

            def counted(state: Partition, *arguments: Any, **options: Any) -> None:
                calls.append("set")
                set_leader(state, *arguments, **options)

            monkeypatch.setattr(Partition, "set_leader", counted)
            await broker.create_topic("orders", partitions=40)
            image = broker.services.image
            topic = image.topics["orders"]
            records = [
                PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NODE_ID)
                for index in range(40)
            ]
            after, delta = image.apply(records)
            await replicas.prepare(after, delta)
            calls.append("apply")
            replicas.apply(after, delta)
            assert broker.replica("orders", 39).state.leader_epoch == 1
            return calls

    assert asyncio.run(main()) == ["set"] * 80 + ["apply"]


def test_failed_directory_takes_new_partitions_elsewhere(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, directories=2) as broker:
            broker.logs.directories[0].fail(OSError(28, "No space left on device"))
            await broker.create_topic("orders", partitions=2)
            for index in range(2):
                assert broker.replica("orders", index).log.log_directory is broker.logs.directories[1]
            await broker.services.replicas.checkpoint_high_watermarks()
            assert not (tmp_path / "disk0" / HIGH_WATERMARK_FILE).exists()

    asyncio.run(main())


def test_no_directory_at_all_is_a_storage_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.logs.directories[0].fail(OSError(28, "No space left on device"))
            await broker.create_topic("orders")
            assert broker.services.replicas.find(TopicPartition("orders", 0)) is ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(main())
