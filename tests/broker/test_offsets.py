"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch: errors, high watermarks and epochs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import Broker, running


def list_offset(broker: Broker, timestamp: int, *, version: int = 11, topic: str = "orders", **more: Any) -> Message:
    wanted = Message(partition_index=more.pop("index", 0), timestamp=timestamp, current_leader_epoch=-1)
    wanted.__dict__.update(more.pop("wanted", {}))
    fields = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 60_000, **more}
    response = broker.call_now(
        ApiKey.LIST_OFFSETS, version, topics=[Message(name=topic, partitions=[wanted])], **fields
    )
    (result,) = response.topics[0].partitions
    assert isinstance(result, Message)
    return result


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"timestamp": -3, "version": 6}, ErrorCode.UNSUPPORTED_VERSION),
        ({"timestamp": -4, "version": 7}, ErrorCode.UNSUPPORTED_VERSION),
        ({"timestamp": -5, "version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        ({"timestamp": -6, "version": 10}, ErrorCode.UNSUPPORTED_VERSION),
        ({"timestamp": -7}, ErrorCode.UNSUPPORTED_VERSION),
        ({"timestamp": -1, "topic": "missing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"timestamp": -1, "index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"timestamp": -1, "wanted": {"current_leader_epoch": 9}}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"timestamp": -1, "wanted": {"current_leader_epoch": 1}}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"timestamp": -1, "wanted": {"current_leader_epoch": 2}}, ErrorCode.NONE),
    ],
)
def test_list_offsets_errors(tmp_path: Path, arguments: dict[str, Any], expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.replica("orders").state.set_leader(1, leader_epoch=2, partition_epoch=1, replicas=(1,), isr=(1,))
            result = list_offset(broker, **arguments)
            assert result.error_code == expected
            if expected is not ErrorCode.NONE:
                assert (result.offset, result.timestamp) == (-1, -1)

    asyncio.run(main())


def test_a_partition_requested_twice_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            wanted = [Message(partition_index=index, timestamp=-1) for index in (0, 0, 1)]
            response = broker.call_now(
                ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[Message(name="orders", partitions=wanted)]
            )
            codes = [result.error_code for result in response.topics[0].partitions]
            assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]

    asyncio.run(main())


def test_latest_is_the_high_watermark_for_consumers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a", timestamp_ms=1_699_999_999_000)
            state = broker.replica("orders").state
            state.set_leader(1, leader_epoch=0, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
            broker.append("orders", b"b", timestamp_ms=1_700_000_000_000)
            assert list_offset(broker, -1).offset == 1
            assert list_offset(broker, -1, isolation_level=1).offset == 1
            assert list_offset(broker, -1, replica_id=2).offset == 2
            assert list_offset(broker, -3).offset == 0
            assert list_offset(broker, 1_700_000_000_000).offset == -1

    asyncio.run(main())


@pytest.mark.parametrize(("version", "expected"), [(4, "LEADER_NOT_AVAILABLE"), (5, "OFFSET_NOT_AVAILABLE")])
def test_new_leader_that_catches_up(tmp_path: Path, version: int, expected: str) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            state = broker.replica("orders").state
            state.set_leader(1, leader_epoch=0, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
            broker.append("orders", b"a")
            state.set_leader(1, leader_epoch=1, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
            assert ErrorCode(list_offset(broker, -1, version=version).error_code).name == expected
            assert list_offset(broker, -2, version=version).error_code == ErrorCode.NONE

    asyncio.run(main())


def delete_records(broker: Broker, offset: int, *, topic: str = "orders", index: int = 0) -> tuple[int, int]:
    partitions = [Message(partition_index=index, offset=offset)]
    response = broker.call_now(
        ApiKey.DELETE_RECORDS, 2, topics=[Message(name=topic, partitions=partitions)], timeout_ms=60_000
    )
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


def test_delete_records(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            await broker.create_topic("compacted", cleanup_policy="compact")
            broker.append("orders", b"a", b"b", b"c", b"d")
            assert delete_records(broker, 2) == (ErrorCode.NONE, 2)
            assert list_offset(broker, -2).offset == 2
            # The log start does not move back.
            assert delete_records(broker, 1) == (ErrorCode.NONE, 2)
            assert delete_records(broker, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert delete_records(broker, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert delete_records(broker, -1) == (ErrorCode.NONE, 4)
            assert delete_records(broker, 0, topic="missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            assert delete_records(broker, 0, index=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            assert delete_records(broker, 0, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("leader_epoch", "current", "expected"),
    [
        (0, 4, (ErrorCode.NONE, 0, 2)),
        (1, 4, (ErrorCode.NONE, 0, 2)),
        (2, -1, (ErrorCode.NONE, 2, 3)),
        (3, 4, (ErrorCode.NONE, 2, 3)),
        (4, 4, (ErrorCode.NONE, 4, 3)),
        (5, 4, (ErrorCode.NONE, -1, -1)),
        (-1, 4, (ErrorCode.NONE, -1, -1)),
        (0, 3, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
        (0, 5, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_offset_for_leader_epoch(
    tmp_path: Path, leader_epoch: int, current: int, expected: tuple[ErrorCode, int, int]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            state = broker.replica("orders").state
            broker.append("orders", b"a", b"b")
            state.set_leader(1, leader_epoch=2, partition_epoch=1, replicas=(1,), isr=(1,))
            broker.append("orders", b"c")
            state.set_leader(1, leader_epoch=4, partition_epoch=2, replicas=(1,), isr=(1,))
            wanted = Message(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
            missing = Message(partition=9, current_leader_epoch=-1, leader_epoch=0)
            response = broker.call_now(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, topics=[Message(topic="orders", partitions=[wanted, missing])]
            )
            first, second = response.topics[0].partitions
            assert (first.error_code, first.leader_epoch, first.end_offset) == expected
            assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(main())
