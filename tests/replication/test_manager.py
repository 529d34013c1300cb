"""The hosted partitions follow the image, also over restarts."""

import asyncio
from pathlib import Path

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.protocol.message import Message
from rookery.storage.checkpoints import HIGH_WATERMARK_FILE, decode_offsets
from tests.broker.harness import Broker, running


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


def test_deleted_and_made_anew(tmp_path: Path) -> None:
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


def test_strays_go_at_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
        stray = tmp_path / "disk0" / "stray-0"
        stray.mkdir()
        (stray / "00000000000000000000.log").touch()
        async with running(tmp_path) as broker:
            assert len(broker.services.replicas) == 1
            assert not stray.exists()

    asyncio.run(main())


def test_partition_elsewhere_is_not_ours(tmp_path: Path) -> None:
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
