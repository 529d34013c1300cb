"""Produce: acknowledgements, duplicates, errors, and what a response waits for."""

import asyncio
import struct
from collections.abc import Awaitable
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.files import File
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.framing import RequestHeader, encode_request_frame
from rookery.protocol.message import Message
from rookery.records.batch import Codec
from tests.broker.harness import (
    CORRELATION_ID,
    Broker,
    UnsyncedFile,
    UnsyncedFiles,
    batch,
    decode,
    joined,
    running,
    settle,
)
from tests.replication.elections import find_lost, forget_leader_epochs, lose_and_win_election

VERSION = 12


def fields(records: bytes | None, *, topic: str = "orders", index: int = 0, acks: int = -1, **more: Any) -> Any:
    data = [Message(name=topic, partition_data=[Message(index=index, records=records)])]
    return {"acks": acks, "timeout_ms": 60_000, "topic_data": data, **more}


def produce(broker: Broker, records: bytes | None, *, version: int = VERSION, **more: Any) -> Message:
    response = broker.call_now(ApiKey.PRODUCE, version, **fields(records, **more))
    (result,) = response.responses[0].partition_responses
    assert isinstance(result, Message)
    return result


def test_offsets_follow_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert [produce(broker, batch(b"a", b"b")).base_offset for _ in range(3)] == [0, 2, 4]

    asyncio.run(main())


def test_duplicate_is_answered_with_its_old_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            first = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
            second = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=2)
            assert [produce(broker, data).base_offset for data in (first, second, first)] == [0, 2, 0]
            assert broker.replica("orders").log.end_offset == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sequence", "epoch", "expected"),
    [
        (5, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 2, ErrorCode.NONE),
        (2, 1, ErrorCode.NONE),
    ],
)
def test_producer_state(tmp_path: Path, sequence: int, epoch: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0)
            data = batch(b"c", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
            result = produce(broker, data)
            assert result.error_code == expected
            assert (result.base_offset == -1) == (expected is not ErrorCode.NONE)

    asyncio.run(main())


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (flipped(batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a", control=True), ErrorCode.INVALID_RECORD),
        (batch(b"a" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", timestamp_ms=1_800_000_000_000), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=["null", "empty", "two", "crc", "cut", "control", "large", "future"],
)
def test_rejected_batches(tmp_path: Path, records: bytes | None, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", max_message_bytes="1000")
            result = produce(broker, records)
            assert result.error_code == expected
            assert result.error_message
            assert broker.replica("orders").log.end_offset == 0

    asyncio.run(main())


def test_old_message_format_is_rejected(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            data = bytearray(batch(b"a"))
            data[16] = 1
            assert produce(broker, bytes(data)).error_code == ErrorCode.INVALID_RECORD

    asyncio.run(main())


def test_all_keyless_records_on_a_compacted_topic_are_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", cleanup_policy="compact")
            result = produce(broker, batch(b"a", b"b", key=None))
            assert result.error_code == ErrorCode.INVALID_RECORD
            assert [error.batch_index for error in result.record_errors] == [0, 1]

    asyncio.run(main())


@pytest.mark.parametrize(("version", "expected"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
def test_zstd_needs_v7(tmp_path: Path, version: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert produce(broker, batch(b"a", codec=Codec.ZSTD), version=version).error_code == expected

    asyncio.run(main())


def test_log_append_time_is_in_the_response(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", message_timestamp_type="LogAppendTime")
            result = produce(broker, batch(b"a", timestamp_ms=5))
            assert result.log_append_time_ms == broker.services.clock.now_ms()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topic": "missing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_partitions_with_an_error(tmp_path: Path, changes: dict[str, Any], expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert produce(broker, batch(b"a"), **changes).error_code == expected

    asyncio.run(main())


def test_unknown_topic_id(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            data = [Message(topic_id=UUID(int=5), partition_data=[Message(index=0, records=batch(b"a"))])]
            response = broker.call_now(ApiKey.PRODUCE, 13, acks=1, timeout_ms=1, topic_data=data)
            assert response.responses[0].topic_id == UUID(int=5)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    asyncio.run(main())


def test_one_partition_fails_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            data = [
                Message(
                    name="orders",
                    partition_data=[
                        Message(index=0, records=flipped(batch(b"a"))),
                        Message(index=1, records=batch(b"a")),
                    ],
                )
            ]
            response = broker.call_now(ApiKey.PRODUCE, VERSION, acks=1, timeout_ms=1, topic_data=data)
            codes = [result.error_code for result in response.responses[0].partition_responses]
            assert codes == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]

    asyncio.run(main())


def test_acks_zero_has_no_response_and_closes_on_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"), acks=0)) is None
            assert broker.replica("orders").log.end_offset == 1
            with pytest.raises(ProtocolError, match="CORRUPT_MESSAGE"):
                broker.send(ApiKey.PRODUCE, VERSION, **fields(flipped(batch(b"a")), acks=0))

    asyncio.run(main())


def old_request(version: int, *, acks: int = 1) -> bytes:
    body = struct.pack(">hi", acks, 1000)
    body += struct.pack(">i", 1) + struct.pack(">h", 6) + b"orders"
    body += struct.pack(">i", 2) + struct.pack(">ii", 0, 3) + b"abc" + struct.pack(">ii", 1, -1)
    return encode_request_frame(RequestHeader(ApiKey.PRODUCE, version, CORRELATION_ID, "old"), body)[4:]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_are_unsupported(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            reply = broker.dispatcher.handle(memoryview(bytearray(old_request(version))), broker.connection)
            assert isinstance(reply, list)
            partition = struct.pack(">hq", ErrorCode.UNSUPPORTED_VERSION, -1) + (b"\xff" * 8 if version >= 2 else b"")
            expected = struct.pack(">iih", CORRELATION_ID, 1, 6) + b"orders" + struct.pack(">i", 2)
            expected += struct.pack(">i", 0) + partition + struct.pack(">i", 1) + partition
            expected += bytes(4) if version >= 1 else b""
            assert joined(reply)[4:] == expected

    asyncio.run(main())


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_old_requests_that_are_truncated_or_have_acks_zero_close(tmp_path: Path, cut: int) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            for frame in (old_request(1)[:-cut], old_request(1, acks=0)):
                with pytest.raises(ProtocolError):
                    broker.dispatcher.handle(memoryview(bytearray(frame)), broker.connection)

    asyncio.run(main())


def have_followers(broker: Broker, *, isr: tuple[int, ...], epoch: int = 0) -> None:
    """Make this node the leader of a partition with two more replicas."""
    broker.replica("orders").state.set_leader(1, leader_epoch=epoch, partition_epoch=1, replicas=(1, 2, 3), isr=isr)


@pytest.mark.parametrize(("acks", "expected"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE)])
def test_min_insync_replicas(tmp_path: Path, acks: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", min_insync_replicas="2")
            assert produce(broker, batch(b"a")).error_code == ErrorCode.NONE
            have_followers(broker, isr=(1,))
            assert produce(broker, batch(b"a"), acks=acks).error_code == expected

    asyncio.run(main())


async def waiting(answer: Reply | Awaitable[Reply | None] | None) -> "asyncio.Task[Reply | None]":
    """Run stage 2 of a request as the connection does."""
    assert answer is not None
    assert not isinstance(answer, list), "the response did not wait"
    task: asyncio.Task[Reply | None] = asyncio.ensure_future(answer)
    await settle()
    return task


async def result_of(task: "asyncio.Task[Reply | None]") -> Message:
    reply = await task
    assert reply is not None
    (result,) = decode(ApiKey.PRODUCE, VERSION, reply).responses[0].partition_responses
    assert isinstance(result, Message)
    return result


def test_acks_all_waits_for_the_in_sync_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            have_followers(broker, isr=(1, 2))
            assert produce(broker, batch(b"z"), acks=1).base_offset == 0
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"))))
            broker.replica("orders").read(1, 1000, node_id=2)
            await settle()
            assert not task.done()
            broker.replica("orders").read(2, 1000, node_id=2)
            result = await result_of(task)
            assert (result.error_code, result.base_offset) == (0, 1)
            assert len(broker.services.pending) == 0

    asyncio.run(main())


def test_acks_all_after_the_isr_shrank(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", min_insync_replicas="2")
            have_followers(broker, isr=(1, 2))
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"))))
            # Both happen before the waiting response looks at the partition again.
            broker.replica("orders").read(1, 1000, node_id=2)
            have_followers(broker, isr=(1,))
            broker.services.pending.wake(TopicPartition("orders", 0))
            assert (await result_of(task)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    asyncio.run(main())


def test_nothing_is_committed_with_too_few_in_sync_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", min_insync_replicas="2")
            have_followers(broker, isr=(1, 2))
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"), timeout_ms=50)))
            have_followers(broker, isr=(1,))
            broker.services.pending.wake(TopicPartition("orders", 0))
            assert broker.replica("orders").state.high_watermark == 0
            assert (await result_of(task)).error_code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(main())


async def produce_over_elections(broker: Broker, *, acks: int) -> set[bytes]:
    """Acknowledged values that the log does not have, when an election is lost and won again during the wait."""
    await broker.create_topic("orders")
    have_followers(broker, isr=(1, 2))
    replica = broker.replica("orders")
    # acks=1 waits for the fsync that `flush.messages` requests; it ends after the elections.
    replica.is_flushing = True
    task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"ours"), acks=acks)))
    replica.is_flushing = False
    lose_and_win_election(replica, batch(b"others"))
    return find_lost(replica, {b"ours": ErrorCode((await result_of(task)).error_code)})


@pytest.mark.parametrize("acks", [-1, 1])
def test_an_append_of_a_former_epoch_is_not_acknowledged(tmp_path: Path, acks: int) -> None:
    """Epoch 6, a truncation and epoch 7 before the waiter runs: its offset is committed with other records."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            assert await produce_over_elections(broker, acks=acks) == set()

    asyncio.run(main())


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_request_that_forgets_its_epoch_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    forget_leader_epochs(monkeypatch)

    async def main() -> None:
        async with running(tmp_path) as broker:
            assert await produce_over_elections(broker, acks=acks) == {b"ours"}

    asyncio.run(main())


def test_time_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            have_followers(broker, isr=(1, 2))
            request = fields(batch(b"a")) | {"timeout_ms": 1}
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **request))
            assert (await result_of(task)).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert broker.replica("orders").log.end_offset == 1

    asyncio.run(main())


def test_deleting_the_topic_ends_the_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            have_followers(broker, isr=(1, 2))
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"))))
            await broker.call(
                ApiKey.DELETE_TOPICS, 6, topics=[Message(name="orders", topic_id=NO_TOPIC_ID)], timeout_ms=60_000
            )
            assert (await result_of(task)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(main())


def test_a_lost_connection_leaves_no_waiter(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            have_followers(broker, isr=(1, 2))
            task = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"))))
            assert len(broker.services.pending) == 1
            task.cancel()
            await settle()
            assert len(broker.services.pending) == 0

    asyncio.run(main())


class GatedFile(UnsyncedFile):
    """A file whose sync waits until the test opens the gate."""

    gate: Event
    syncs: list[Path]

    def sync(self) -> None:
        if self.path.suffix == ".log":
            self.syncs.append(self.path)
            assert self.gate.wait(30)


class GatedFiles(UnsyncedFiles):
    def __init__(self) -> None:
        self.gate = Event()
        self.gate.set()
        self.syncs: list[Path] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        file = GatedFile(path, create=create)
        file.gate, file.syncs = self.gate, self.syncs
        return file


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_messages_delays_acks_and_visibility_and_groups_flushes(tmp_path: Path, acks: int) -> None:
    async def main() -> None:
        files = GatedFiles()
        async with running(tmp_path, files=files) as broker:
            await broker.create_topic("orders", flush_messages="1")
            files.gate.clear()
            files.syncs.clear()
            first = await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a"), acks=acks)))
            others = [
                await waiting(broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"b"), acks=acks))) for _ in range(5)
            ]
            assert broker.replica("orders").state.high_watermark == 0
            assert not first.done()
            files.gate.set()
            offsets = [(await result_of(task)).base_offset for task in (first, *others)]
            assert offsets == list(range(6))
            assert broker.replica("orders").state.high_watermark == 6
            # One fsync for the first record, one for all records that arrived during it.
            assert len(files.syncs) == 2

    asyncio.run(main())


class BrokenFile(UnsyncedFile):
    broken: Event

    def sync(self) -> None:
        if self.broken.is_set():
            raise OSError(5, "Input/output error")

    def append(self, data: Any) -> None:
        if self.broken.is_set():
            raise OSError(28, "No space left on device")
        super().append(data)


class BrokenFiles(UnsyncedFiles):
    """A disk that fails when the test says so."""

    def __init__(self) -> None:
        self.broken = Event()

    def open(self, path: Path, *, create: bool = False) -> File:
        file = BrokenFile(path, create=create)
        file.broken = self.broken if "disk0" in path.parts else Event()
        return file


def test_a_full_disk_is_a_storage_error_and_other_disks_work(tmp_path: Path) -> None:
    async def main() -> None:
        files = BrokenFiles()
        async with running(tmp_path, files=files, directories=2) as broker:
            await broker.create_topic("orders", partitions=2)
            files.broken.set()
            results = [produce(broker, batch(b"a"), index=index) for index in range(2)]
            assert [result.error_code for result in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
            assert produce(broker, batch(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(main())


def test_failed_flush_is_a_storage_error(tmp_path: Path) -> None:
    async def main() -> None:
        files = BrokenFiles()
        async with running(tmp_path, files=files) as broker:
            await broker.create_topic("orders", flush_messages="2")
            assert produce(broker, batch(b"a")).error_code == ErrorCode.NONE
            answer = broker.send(ApiKey.PRODUCE, VERSION, **fields(batch(b"a")))
            files.broken.set()
            assert (await result_of(await waiting(answer))).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(main())
