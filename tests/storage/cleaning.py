"""Helpers of the cleaner's tests: logs of small segments, and a reader that reduces them to their latest values."""

from collections.abc import Iterable
from pathlib import Path

from rookery.base.clock import ManualClock
from rookery.base.files import Files
from rookery.base.types import Offset, TopicPartition
from rookery.records.batch import Codec, iterate_headers, read_header
from rookery.records.record import Record, build_batch, decode_records
from rookery.storage.compaction.cleaner import Cleaner
from rookery.storage.compaction.task import CleanerSettings, CleaningTask
from rookery.storage.config import LogConfig
from rookery.storage.log import Log

PARTITION = TopicPartition("table", 0)
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01, index_interval_bytes=64)

Pair = tuple[bytes | None, bytes | None]


def open_log(
    files: Files,
    directory: Path,
    clock: ManualClock,
    config: LogConfig = COMPACT,
    *,
    partition: TopicPartition = PARTITION,
    recovery_point: Offset = 0,
) -> Log:
    path = directory / str(partition)
    return Log.open(files, path, config, clock=clock, partition=partition, recovery_point=recovery_point)


def append(log: Log, *pairs: Pair, producer: tuple[int, int] | None = None, codec: Codec = Codec.NONE) -> list[Record]:
    """Append one batch of records with the current time; `producer` is its id and first sequence number."""
    now_ms = log.clock.now_ms()
    producer_id, base_sequence = producer or (-1, -1)
    batch = build_batch(
        [Record(index, now_ms, *pair) for index, pair in enumerate(pairs)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer else -1,
        base_sequence=base_sequence,
    )
    base_offset = log.append(batch, read_header(batch), leader_epoch=0)
    return [Record(base_offset + index, now_ms, *pair) for index, pair in enumerate(pairs)]


def seal(log: Log) -> None:
    """Roll and flush, so that the cleaner may clean everything."""
    log.roll()
    log.flush()


def read_records(log: Log, offset: Offset = 0) -> list[Record]:
    found: list[Record] = []
    for part in log.read(max(offset, log.start_offset), 1 << 30).slices:
        data = part.file.read_at(part.position, part.size)
        for position, header in iterate_headers(data):
            found.extend(decode_records(data[position : position + header.size_bytes]))
    return [record for record in found if record.offset >= offset]


def fold(records: Iterable[Record]) -> dict[bytes, bytes]:
    """Return the latest value of each key that has one."""
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        state.pop(record.key, None)
        if record.value is not None:
            state[record.key] = record.value
    return state


def make_cleaner(*logs: Log, memory_bytes: int = 1 << 20) -> Cleaner:
    return Cleaner(lambda: logs, logs[0].clock, lambda: CleanerSettings(dedupe_buffer_bytes=memory_bytes))


def finish(task: CleaningTask) -> CleaningTask:
    while not task.is_done:
        task.run()
        task.finish()
    return task


def clean(cleaner: Cleaner) -> CleaningTask | None:
    task = cleaner.choose()
    return finish(task) if task is not None else None
