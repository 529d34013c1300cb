"""Replays a partition's log into a shard, in slices between which the event loop serves other requests.

The log is read in worker threads: a read may be 5 MB, and any read may have to wait for the disk. Only the positions of
the batches are looked up on the event loop, where the log's state lives.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import structlog

from rookery.base.bounds import COORDINATOR_RECORDS_PER_SLICE
from rookery.base.errors import CorruptionError, ErrorCode, InvalidBatchError
from rookery.base.files import FileSlice
from rookery.base.slices import Slices
from rookery.base.types import Buffer, Offset, ProducerId
from rookery.records.batch import HEADER_SIZE, BatchHeader, batch_size_at, read_header
from rookery.records.record import Record, decode_records
from rookery.replication.replica import Replica
from rookery.storage.segment_check import read_end_marker

logger = structlog.get_logger(__name__)


class Replayable(Protocol):
    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...

    def replay(self, record: Any) -> None: ...

    def replay_pending(self, record: Any, producer_id: ProducerId) -> None: ...

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None: ...


async def load(
    shard: Replayable, replica: Replica, max_bytes: int, slices: Slices, *, executor: Executor | None = None
) -> Offset:
    """Replay all records; return the offset after the last one. Raises CorruptionError if one cannot be read.

    `max_bytes` is the size of a read, which `executor` does; None is the event loop's own executor.
    """
    offset = replica.log.start_offset
    replayed = 0
    while offset < replica.log.end_offset:
        start_offset = offset
        for header, batch in _whole_batches(await _read(replica, offset, max_bytes, executor)):
            offset = header.last_offset + 1
            records: Sequence[Record] = ()
            if header.is_control:
                _end_transaction(shard, header, batch)
            else:
                records = await _records(header, batch, executor)
            producer_id = header.producer_id if header.is_transactional else None
            # Slices end within a batch, too: one of a megabyte has tens of thousands of offsets.
            for start in range(0, max(1, len(records)), COORDINATOR_RECORDS_PER_SLICE):
                if replayed >= COORDINATOR_RECORDS_PER_SLICE:
                    replayed = 0
                    await slices.pause()
                some = records[start : start + COORDINATOR_RECORDS_PER_SLICE]
                replayed += max(1, len(some))
                for record in some:
                    # The log may start in the middle of a batch, whose earlier records are deleted.
                    if record.offset >= start_offset:
                        _replay(shard, record, producer_id)
        if offset == start_offset:
            # Compaction has removed all records from here to the end: no batch will advance the offset.
            offset = replica.log.end_offset
    return offset


def _replay(shard: Replayable, record: Record, producer_id: ProducerId | None) -> None:
    if record.key is None:
        raise CorruptionError(f"the record at offset {record.offset} of a coordinator's topic has no key")
    decoded = shard.decode(record.key, record.value)
    if decoded is None:
        # Written by a newer version. Failing here would make the partition unavailable after a downgrade.
        logger.warning("skipping a record of an unknown kind", offset=record.offset)
    elif producer_id is None:
        shard.replay(decoded)
    else:
        shard.replay_pending(decoded, producer_id)


def _end_transaction(shard: Replayable, header: BatchHeader, batch: Buffer) -> None:
    marker = read_end_marker(batch)
    if marker is not None:
        shard.end_transaction(header.producer_id, committed=marker.committed)


async def _read(replica: Replica, offset: Offset, max_bytes: int, executor: Executor | None) -> bytes:
    """Read the next batches from `offset` on; the last may be cut off."""
    found = replica.log.read(offset, max_bytes)
    if found.error_code is not ErrorCode.NONE:
        raise CorruptionError(f"the log does not have offset {offset}")
    return await asyncio.get_running_loop().run_in_executor(executor, _read_slices, found.slices)


def _read_slices(slices: Sequence[FileSlice]) -> bytes:
    return b"".join(part.file.read_at(part.position, part.size) for part in slices)


async def _records(header: BatchHeader, batch: Buffer, executor: Executor | None) -> list[Record]:
    try:
        if header.record_count <= COORDINATOR_RECORDS_PER_SLICE:
            return decode_records(batch)
        return await asyncio.get_running_loop().run_in_executor(executor, decode_records, batch)
    except InvalidBatchError as error:
        raise CorruptionError(f"the batch at offset {header.base_offset} cannot be read: {error}") from error


def _whole_batches(data: bytes) -> Iterator[tuple[BatchHeader, Buffer]]:
    position, view = 0, memoryview(data)
    while len(data) - position >= HEADER_SIZE:
        size = batch_size_at(data, position)
        if position + size > len(data):
            return
        yield read_header(data, position), view[position : position + size]
        position += size
