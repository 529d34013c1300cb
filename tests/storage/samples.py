"""Batches and logs that the storage tests share."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

from rookery.base.clock import Clock, ManualClock
from rookery.base.files import Files, FileSlice
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.records.batch import iterate_headers, read_header
from rookery.records.control import Marker, build_marker
from rookery.records.record import Record, build_batch
from rookery.storage.config import FOREVER_MS, LogConfig
from rookery.storage.log import Log

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
DATA = Path("/data")
DIRECTORY = DATA / str(PARTITION)
EPOCH = 3
START_MS = 1_700_000_000_000

# Three or four of the smallest batches fill a segment, and every second one gets an index entry.
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=64, segment_index_bytes=1200, retention_ms=-1)
# Without limits: a segment is rolled or flushed only by tests that do it explicitly.
ROOMY = LogConfig(segment_ms=FOREVER_MS, retention_ms=-1)


def batch(
    *timestamps_ms: TimestampMs,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Build a batch with one record per timestamp."""
    records = [Record(index, ms, b"key", value) for index, ms in enumerate(timestamps_ms or (START_MS,))]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def marker(
    producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0, timestamp_ms: int = START_MS
) -> bytearray:
    """Build the batch that ends a transaction."""
    return build_marker(Marker(producer_id, epoch, committed, coordinator_epoch), timestamp_ms)


def append(log: Log, data: bytearray, leader_epoch: int = EPOCH) -> Offset:
    return log.append(data, read_header(data), leader_epoch=leader_epoch)


def append_all(log: Log, batches: Iterable[bytearray], leader_epoch: int = EPOCH) -> list[Offset]:
    return [append(log, data, leader_epoch) for data in batches]


def open_log(
    files: Files,
    directory: Path = DIRECTORY,
    config: LogConfig = ROOMY,
    *,
    clock: Clock | None = None,
    recovery_point: Offset = 0,
    start_offset: Offset = 0,
    clean: bool = False,
) -> Log:
    return Log.open(
        files,
        directory,
        config,
        clock=clock or ManualClock(START_MS),
        partition=PARTITION,
        topic_id=TOPIC_ID,
        recovery_point=recovery_point,
        start_offset=start_offset,
        clean=clean,
    )


def reopen(log: Log, *, clean: bool = True) -> Log:
    """Open the log again, after closing it if `clean`."""
    if clean:
        log.close()
    return open_log(
        log.files,
        log.directory,
        log.config,
        clock=log.clock,
        recovery_point=log.recovery_point,
        start_offset=log.start_offset,
        clean=clean,
    )


def read_bytes(slices: Sequence[FileSlice]) -> bytes:
    return b"".join(part.file.read_at(part.position, part.size) for part in slices)


def contents(log: Log) -> list[tuple[Offset, bytes]]:
    """Return all batches from the start offset on, with their base offsets, read in small fetches as by a consumer."""
    found: list[tuple[Offset, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = read_bytes(log.read(offset, 400).slices)
        if not data:
            break
        for position, header in iterate_headers(data):
            found.append((header.base_offset, data[position : position + header.size_bytes]))
            offset = header.last_offset + 1
    return found
