"""The cleaner: compacts the dirtiest log, one segment's worth at a time, beside the event loop.

Theory of operation. `Cleaner.choose` (event loop) picks the dirtiest log that is due and takes a snapshot of what the
work needs: its sealed segments, its producers' ends, its configuration. Then the task alternates between two threads:
`CleaningTask.run` (worker) does one step of pure file work on sealed segments, which nobody writes to, and
`CleaningTask.finish` (event loop) takes over its result:

    run: read the dirty part into an offset map          finish: -
    run: write some segments' remains to a `.cleaned`    finish: swap it in by `Log.replace_segments`
    ...                                                  ...
    run: write `cleaner-offset-checkpoint`               finish: done

Only the swap touches the log. If the log was truncated, deleted or has lost a segment meanwhile, `finish` throws the
result away. A crash at any point leaves a log that holds the same latest values: swaps are atomic, and what was cleaned
without its checkpoint is cleaned again, to the same result. Cleaning never goes beyond the recovery point: a record that
has survived must not be given up for a later one that a crash may take.

A log whose batches cannot be read is left alone from then on, with one error in the journal.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, ProtocolError, StorageError
from rookery.base.files import replace_file
from rookery.base.types import NO_OFFSET, Buffer, Offset, TopicId, TopicPartition
from rookery.records.batch import BatchHeader
from rookery.records.compression import DECOMPRESSED_SIZE_MAX
from rookery.records.control import ControlType, control_type
from rookery.storage.checkpoints import encode_offsets, read_offsets
from rookery.storage.compaction import CleanableRange, cleanable_range, first_dirty_offset, fits_together
from rookery.storage.dedupe import AbortedTransactions, BatchFilter, FilterSettings, LastRecord, OffsetMap
from rookery.storage.log import Log
from rookery.storage.names import CLEANED_SUFFIX
from rookery.storage.segment import Segment

logger = structlog.get_logger(__name__)

CLEANER_CHECKPOINT_FILE = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    # `log.cleaner.dedupe.buffer.size`
    dedupe_buffer_bytes: int = 134_217_728
    # The most that one stored batch may expand to.
    decompressed_size_max: int = 4 * DECOMPRESSED_SIZE_MAX


@dataclass(slots=True)
class CleaningStats:
    """What one cleaning did, for logs and metrics."""

    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_written: int = 0
    segments_before: int = 0
    segments_after: int = 0


@dataclass(frozen=True, slots=True)
class _CleanUpTo:
    """A checkpoint in memory; the topic id tells a deleted topic's from its successor's."""

    topic_id: TopicId
    offset: Offset


class _CancelledError(Exception):
    """The task was told to stop."""


class Cleaner:
    """Chooses what to clean and keeps the checkpoints. Lives on the event loop."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        clock: Clock,
        settings: CleanerSettings | None = None,
        *,
        high_watermark: Callable[[Log], Offset] | None = None,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._settings = settings or CleanerSettings()
        self._high_watermark = high_watermark or (lambda log: log.end_offset)
        self._checkpoints: dict[Path, dict[TopicPartition, _CleanUpTo]] = {}
        self._running: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, TopicId] = {}

    def choose(self) -> "CleaningTask | None":
        """The dirtiest log that is due, as a task; None if there is none."""
        now_ms = self._clock.now_ms()
        best: tuple[float, Log, CleanableRange] | None = None
        for log in self._logs():
            if not self._is_candidate(log):
                continue
            dirty = self.dirty_range(log)
            if dirty.is_due(log.config.min_cleanable_dirty_ratio) and (best is None or dirty.dirty_ratio > best[0]):
                best = dirty.dirty_ratio, log, dirty
        if best is None:
            return None
        self._running.add(best[1].partition)
        return CleaningTask(self, best[1], best[2], now_ms=now_ms, settings=self._settings)

    async def clean_one(self, executor: Executor | None = None) -> bool:
        """Choose and clean one log; False if none was due. What `node` calls in a loop with a pause."""
        task = self.choose()
        if task is None:
            return False
        loop = asyncio.get_running_loop()
        while not task.is_done:
            step = loop.run_in_executor(executor, task.run)
            try:
                await asyncio.shield(step)
            except asyncio.CancelledError:
                task.cancel()
                await step
                task.abort()
                raise
            task.finish()
        return True

    def dirty_range(self, log: Log) -> CleanableRange:
        """What of a log could be cleaned now, due or not."""
        checkpoint = self._checkpoint_of(log)
        return cleanable_range(
            log.segments,
            log.config,
            first_dirty=first_dirty_offset(checkpoint, start_offset=log.start_offset, end_offset=log.end_offset),
            stable_offset=min(self._high_watermark(log), log.recovery_point, *_open_transactions(log)),
            now_ms=self._clock.now_ms(),
        )

    def note_truncation(self, partition: TopicPartition, offset: Offset) -> None:
        """A log was cut at `offset`: what comes after it now is dirty."""
        for checkpoints in self._checkpoints.values():
            known = checkpoints.get(partition)
            if known is not None and known.offset > offset:
                checkpoints[partition] = _CleanUpTo(known.topic_id, offset)

    def _is_candidate(self, log: Log) -> bool:
        return (
            log.config.compacts
            and not log.is_closed
            and log.log_directory.is_online
            and log.partition not in self._running
            and self._uncleanable.get(log.partition) != log.topic_id
        )

    def _checkpoint_of(self, log: Log) -> Offset | None:
        checkpoints = self._checkpoints.get(log.log_directory.path)
        if checkpoints is None:
            checkpoints = self._load(log)
        known = checkpoints.get(log.partition)
        return known.offset if known is not None and known.topic_id == log.topic_id else None

    def _load(self, log: Log) -> dict[TopicPartition, _CleanUpTo]:
        """Read a directory's checkpoint; it is as old as the logs that are open now, so it speaks of these."""
        directory = log.log_directory
        path = directory.path / CLEANER_CHECKPOINT_FILE
        try:
            offsets = read_offsets(log.files, path)
        except CorruptionError as error:
            logger.warning("ignoring a damaged cleaner checkpoint", path=str(path), error=str(error))
            offsets = {}
        except OSError as error:
            raise directory.fail(error) from error
        topic_ids = {other.partition: other.topic_id for other in self._logs() if other.log_directory is directory}
        loaded = {
            partition: _CleanUpTo(topic_ids[partition], offset)
            for partition, offset in offsets.items()
            if partition in topic_ids
        }
        self._checkpoints[directory.path] = loaded
        return loaded

    def note_clean(self, log: Log, offset: Offset) -> bytes:
        """A log is clean up to `offset`; returns the contents of its directory's checkpoint file."""
        checkpoints = self._checkpoints.setdefault(log.log_directory.path, {})
        checkpoints[log.partition] = _CleanUpTo(log.topic_id, offset)
        alive = {other.partition for other in self._logs()}
        for partition in checkpoints.keys() - alive:
            del checkpoints[partition]
        return encode_offsets({partition: clean.offset for partition, clean in checkpoints.items()})

    def release(self, log: Log, *, uncleanable: bool = False) -> None:
        """A task has ended."""
        self._running.discard(log.partition)
        if uncleanable:
            self._uncleanable[log.partition] = log.topic_id


def _open_transactions(log: Log) -> Iterator[Offset]:
    """Where the transactions that are under way began: nothing from there on is decided."""
    for state in log.producers:
        if state.current_transaction_offset != NO_OFFSET:
            yield state.current_transaction_offset


@dataclass(slots=True)
class _Replacement:
    """A cleaned segment and those that it stands for."""

    cleaned: Segment
    sources: list[Segment] = field(default_factory=list)
    changed: bool = False


class CleaningTask:
    """One cleaning of one log. `run` in a worker thread and `finish` on the event loop, in turns, until `is_done`."""

    def __init__(
        self, cleaner: Cleaner, log: Log, dirty: CleanableRange, *, now_ms: int, settings: CleanerSettings
    ) -> None:
        self.log = log
        self.stats = CleaningStats()
        self.is_done = False
        self._cleaner = cleaner
        self._dirty = dirty
        self._config = log.config
        self._settings = settings
        self._now_ms = now_ms
        # (segment, offset at which it ends), oldest first: all of the log up to the end of the dirty range.
        self._sources = _sources_of(log, dirty.end_offset)
        self._last_records = {
            state.producer_id: LastRecord(state.last_offset, state.epoch) for state in log.producers
        }
        self._aborted = AbortedTransactions()
        self._offsets = OffsetMap(settings.dedupe_buffer_bytes)
        self._filter: BatchFilter | None = None
        self._replacement: _Replacement | None = None
        self._checkpoint: bytes | None = None
        self._failure: Exception | None = None
        self._is_cancelled = False
        self.stats.segments_before = len(self._sources)

    @property
    def clean_end_offset(self) -> Offset:
        """Where the next cleaning will begin; before the end of the dirty range if the map was too small for it."""
        return self._offsets.latest_offset + 1

    def cancel(self) -> None:
        """Make a `run` that is under way end soon; `abort` follows it."""
        self._is_cancelled = True

    # In the worker thread

    def run(self) -> None:
        """One step. Never raises: `finish` deals with whatever happened."""
        try:
            if self._checkpoint is not None:
                path = self.log.log_directory.path / CLEANER_CHECKPOINT_FILE
                with self.log.log_directory.checkpoint_lock:
                    replace_file(self.log.files, path, self._checkpoint)
            elif self._filter is None:
                self._filter = self._build_filter()
            else:
                self._replacement = self._clean_next(self._filter)
        except (OSError, CorruptionError, ProtocolError, _CancelledError) as error:
            self._failure = error

    def _build_filter(self) -> BatchFilter:
        self._find_aborted()
        self._fill_map()
        settings = FilterSettings(
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            batch_size_max=self._config.max_message_bytes,
            end_offset=self._dirty.end_offset,
            decompressed_size_max=self._settings.decompressed_size_max,
        )
        # What lies behind the mapped range waits for the next cleaning.
        self._sources = [source for source in self._sources if source[0].base_offset < self.clean_end_offset]
        return BatchFilter(self._offsets, settings, last_records=self._last_records, aborted=self._aborted)

    def _find_aborted(self) -> None:
        """A pass over headers only; every transaction that begins in the range has ended in it."""
        for segment, _ in self._sources:
            for position, header in segment.headers():
                self._check_cancelled()
                if not header.is_control:
                    self._aborted.note_data(header)
                    continue
                kind = control_type(segment.read_batch(position, header))
                if kind in (ControlType.ABORT, ControlType.COMMIT):
                    self._aborted.note_marker(header, kind)

    def _fill_map(self) -> None:
        first_dirty = self._dirty.first_dirty_offset
        self._offsets.latest_offset = first_dirty - 1
        for segment, end_offset in self._sources:
            if end_offset <= first_dirty:
                continue
            for header, data in self._batches(segment):
                if header.last_offset < first_dirty:
                    continue
                if self._offsets.is_full:
                    return
                if not header.is_control and not self._aborted.contains(header):
                    size_max = self._settings.decompressed_size_max
                    self._offsets.add_batch(header, data, from_offset=first_dirty, size_max=size_max)
                self._offsets.latest_offset = header.last_offset
            # Compaction leaves gaps at segments' ends.
            self._offsets.latest_offset = end_offset - 1

    def _clean_next(self, batch_filter: BatchFilter) -> _Replacement:
        """Clean the next segments into one, as many as fit."""
        replacement = _Replacement(self._new_segment(self._sources[0][0]))
        cleaned, taken = replacement.cleaned, 0
        try:
            for segment, end_offset in self._sources:
                if taken and not self._fits(segment, cleaned, end_offset):
                    break
                replacement.changed |= self._copy(segment, cleaned, batch_filter)
                replacement.sources.append(segment)
                taken += 1
            replacement.changed |= taken > 1
            if replacement.changed:
                _make_durable(cleaned)
        except BaseException:
            cleaned.remove()
            raise
        del self._sources[:taken]
        return replacement

    def _new_segment(self, source: Segment) -> Segment:
        return Segment.create(
            self.log.files,
            self.log.directory,
            source.base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            created_ms=source.created_ms,
            stage=CLEANED_SUFFIX,
        )

    def _fits(self, segment: Segment, cleaned: Segment, end_offset: Offset) -> bool:
        return fits_together(
            segment,
            self._config,
            base_offset=cleaned.base_offset,
            size_bytes=cleaned.size_bytes,
            end_offset=end_offset,
        )

    def _copy(self, segment: Segment, cleaned: Segment, batch_filter: BatchFilter) -> bool:
        """Append what is left of `segment` to `cleaned`; tells whether that differs from what was there."""
        changed = False
        for header, data in self._batches(segment):
            left = batch_filter.clean(header, data)
            changed |= left is None or (left is not data and left != data)
            self.stats.batches_read += 1
            self.stats.bytes_read += len(data)
            if left is not None:
                max_timestamp_ms = header.max_timestamp_ms if left is data else _max_timestamp(left)
                cleaned.append(left, last_offset=header.last_offset, max_timestamp_ms=max_timestamp_ms)
                self.stats.batches_written += 1
                self.stats.bytes_written += len(left)
        return changed

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, Buffer]]:
        for _, header, data in segment.batches():
            self._check_cancelled()
            yield header, data

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise _CancelledError
