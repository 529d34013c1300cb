"""One cleaning of one log: the work of compaction, in steps that alternate between a worker thread and the event loop.

`CleaningTask.run` (worker thread) does one step of file work on sealed segments, which are never written to, and
`CleaningTask.finish` (event loop) applies its result:

    run: read the dirty part into an offset map                   finish: -
    run: write what is left of some segments to a new one         finish: swap it in by `Log.replace_segments`
    run: remove the replaced ones; write the next new one         finish: swap it in
    ...                                                           ...
    run: remove the replaced ones; write the checkpoint           finish: done

All other state that a step needs was copied on the event loop when the task was created. Only the swap changes the log.
If the log was truncated or deleted meanwhile or has lost a segment, `finish` discards the result. A crash at any point
leaves a log with the same latest values: a swap is atomic, and what was cleaned without a checkpoint is cleaned again,
with the same result. Cleaning needs disk space for one additional segment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Protocol

import structlog

from rookery.base.errors import CorruptionError, ProtocolError, StorageError
from rookery.base.files import replace_file
from rookery.base.types import NO_OFFSET, Buffer, Offset, TimestampMs
from rookery.base.values import value_class
from rookery.records.batch import BatchHeader, compute_crc, read_header
from rookery.records.compression import DECOMPRESSED_SIZE_MAX
from rookery.records.control import ControlType, control_type
from rookery.storage.compaction.dedupe import AbortedTransactions, BatchFilter, FilterSettings, LastRecord, OffsetMap
from rookery.storage.compaction.policy import CleanableRange, can_merge
from rookery.storage.log import Log
from rookery.storage.replacement import create_cleaned, seal_and_sync
from rookery.storage.segment import Segment

logger = structlog.get_logger(__name__)

CLEANER_CHECKPOINT_FILE = "cleaner-offset-checkpoint"

# Bytes collected for one write.
_WRITE_SIZE = 1 << 20


@value_class(kw_only=True)
class CleanerSettings:
    # `log.cleaner.dedupe.buffer.size`
    dedupe_buffer_bytes: int = 134_217_728
    # The decompressed size limit of one stored batch.
    decompressed_size_max: int = 4 * DECOMPRESSED_SIZE_MAX


@dataclass(slots=True)
class CleaningStats:
    """The counters of one cleaning, for log lines and metrics."""

    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_written: int = 0
    segments_before: int = 0
    segments_after: int = 0


class _CancelledError(Exception):
    """The task was cancelled."""


class Owner(Protocol):
    """The creator of the task, which is notified of its end: the cleaner. All calls come on the event loop."""

    def note_clean(self, log: Log, offset: Offset) -> bytes:
        """Note that a log is clean up to `offset`; returns the contents of its directory's checkpoint file."""
        ...

    def release(self, log: Log, *, uncleanable: bool = False) -> None:
        """Note that the task has ended."""
        ...


@dataclass(slots=True)
class _Replacement:
    """A cleaned segment and those that it replaces."""

    cleaned: Segment
    sources: list[Segment] = field(default_factory=list)
    changed: bool = False


class CleaningTask:
    """One cleaning of one log.

    Call `run` in a worker thread and `finish` on the event loop, alternating, until `is_done`.
    """

    def __init__(
        self, owner: Owner, log: Log, dirty: CleanableRange, *, now_ms: TimestampMs, settings: CleanerSettings
    ) -> None:
        self.log = log
        self.stats = CleaningStats()
        self.is_done = False
        self._owner = owner
        self._dirty = dirty
        self._config = log.config
        self._settings = settings
        self._now_ms = now_ms
        # (segment, offset at which it ends), oldest first: the whole log up to the end of the dirty range.
        self._sources = _sources_of(log, dirty.end_offset)
        self._last_records = {state.producer_id: LastRecord(state.last_offset, state.epoch) for state in log.producers}
        self._aborted = AbortedTransactions()
        self._aborted_beyond = log.find_aborted_across(dirty.end_offset)
        self._offsets = OffsetMap(settings.dedupe_buffer_bytes, first_offset=dirty.first_dirty_offset)
        self._last_batch_end: Offset = NO_OFFSET
        self._filter: BatchFilter | None = None
        self._replacement: _Replacement | None = None
        # Segments that are no longer part of the log but whose files still exist.
        self._replaced: list[Segment] = []
        self._checkpoint: bytes | None = None
        self._failure: Exception | None = None
        self._is_cancelled = False
        self._generation = log.generation
        self.stats.segments_before = len(self._sources)

    @property
    def clean_end_offset(self) -> Offset:
        """Where the next cleaning begins; before the end of the dirty range if the map was too small for it."""
        return self._offsets.latest_offset + 1

    def cancel(self) -> None:
        """Make a `run` in progress end soon; `abort` follows it."""
        self._is_cancelled = True

    # In the worker thread

    def run(self) -> None:
        """Do one step. Never raises: `finish` handles the failure."""
        try:
            self._remove_replaced()
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
            end_offset=self._last_batch_end,
            decompressed_size_max=self._settings.decompressed_size_max,
        )
        # Segments after the mapped range are left to the next cleaning.
        self._sources = [source for source in self._sources if source[0].base_offset < self.clean_end_offset]
        return BatchFilter(self._offsets, settings, last_records=self._last_records, aborted=self._aborted)

    def _find_aborted(self) -> None:
        """Find the aborted transactions, in a pass over headers only."""
        for segment, _ in self._sources:
            for position, header in segment.headers():
                self._check_cancelled()
                if not header.is_control:
                    self._aborted.note_data(header)
                    continue
                kind = control_type(segment.read_batch(position, header))
                if kind in (ControlType.ABORT, ControlType.COMMIT):
                    self._aborted.note_marker(header, kind)
        for producer_id, first_offset in self._aborted_beyond:
            self._aborted.note_beyond(producer_id, first_offset)

    def _fill_map(self) -> None:
        first_dirty = self._dirty.first_dirty_offset
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
                    self._offsets.add_batch(header, data, size_max=size_max)
                self._offsets.latest_offset = header.last_offset
                self._last_batch_end = header.last_offset + 1
            # Compaction may have left a gap at the end of a segment.
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
                seal_and_sync(cleaned)
            else:
                cleaned.remove()
        except BaseException:
            cleaned.remove()
            raise
        del self._sources[:taken]
        return replacement

    def _remove_replaced(self) -> None:
        for segment in self._replaced:
            segment.remove()
        self._replaced = []

    def _new_segment(self, source: Segment) -> Segment:
        return create_cleaned(
            self.log.files,
            self.log.directory,
            source.base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            created_ms=source.created_ms,
        )

    def _fits(self, segment: Segment, cleaned: Segment, end_offset: Offset) -> bool:
        return can_merge(
            segment,
            self._config,
            base_offset=cleaned.base_offset,
            size_bytes=cleaned.size_bytes,
            end_offset=end_offset,
        )

    def _copy(self, segment: Segment, cleaned: Segment, batch_filter: BatchFilter) -> bool:
        """Append what is left of `segment` to `cleaned`; returns whether anything was dropped or rewritten."""
        changed, waiting, waiting_bytes = False, [], 0
        for header, data in self._batches(segment):
            left = batch_filter.clean(header, data)
            changed |= left is None or (left is not data and left != data)
            self.stats.batches_read += 1
            self.stats.bytes_read += len(data)
            if left is None:
                continue
            max_timestamp_ms = header.max_timestamp_ms if left is data else read_header(left).max_timestamp_ms
            waiting.append((left, header.last_offset, max_timestamp_ms))
            waiting_bytes += len(left)
            if waiting_bytes >= _WRITE_SIZE:
                self._write(cleaned, waiting)
                waiting, waiting_bytes = [], 0
        self._write(cleaned, waiting)
        return changed

    def _write(self, cleaned: Segment, batches: Sequence[tuple[Buffer, Offset, TimestampMs]]) -> None:
        cleaned.append_batches(batches)
        self.stats.batches_written += len(batches)
        self.stats.bytes_written += sum(len(data) for data, _, _ in batches)

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, Buffer]]:
        for position, header, data in segment.batches():
            self._check_cancelled()
            # Rewritten batches get a new CRC, which would hide that the old one was wrong: damage would become valid
            # data.
            if compute_crc(data) != header.crc:
                raise CorruptionError(f"the checksum of the batch at {position} of {segment.path()} does not match")
            yield header, data

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise _CancelledError

    # On the event loop

    def finish(self) -> None:
        """Apply the result of the last `run`. An OSError takes the log directory offline and ends the task."""
        if self._failure is not None:
            self._fail(self._failure)
        elif self._checkpoint is not None:
            self._end()
            logger.info(
                "log cleaned", partition=str(self.log.partition), up_to=self.clean_end_offset, **asdict(self.stats)
            )
        elif self._replacement is not None and not self._swap(self._replacement):
            self.abort()
        elif not self._sources and self._filter is not None:
            self._checkpoint = self._owner.note_clean(self.log, self.clean_end_offset)

    def abort(self) -> None:
        """End without a result; `run` must not be in progress. Completed swaps stay."""
        self._discard()
        self._end()

    def _swap(self, replacement: _Replacement) -> bool:
        if not self._is_current(replacement.sources):
            return False
        if replacement.changed:
            try:
                self.log.replace_segments(replacement.sources, replacement.cleaned)
            except StorageError:
                # The log has already logged the reason and is offline.
                return False
            self._replaced = replacement.sources
        self._replacement = None
        self.stats.segments_after += 1
        return True

    def _is_current(self, sources: list[Segment]) -> bool:
        """Return whether the log still consists of the segments that the worker has read.

        After a truncation, swapping in a segment made of the old ones would bring back records that were cut.
        """
        log = self.log
        if log.is_closed or not log.log_directory.is_online or log.generation != self._generation:
            return False
        return all(segment in log.segments for segment in sources)

    def _fail(self, failure: Exception) -> None:
        sources = [segment for segment, _ in self._sources]
        stale = isinstance(failure, _CancelledError) or not self._is_current(sources)
        self._discard()
        self._end(uncleanable=not stale and not isinstance(failure, OSError))
        if stale:
            return
        if isinstance(failure, OSError):
            self.log.log_directory.fail(failure)
        else:
            partition = str(self.log.partition)
            logger.error("log cannot be cleaned and is skipped", partition=partition, error=str(failure))

    def _discard(self) -> None:
        """Remove files that are not, or no longer, part of the log; after a crash recovery removes them."""
        replacement, self._replacement = self._replacement, None
        if not self.log.log_directory.is_online:
            return
        try:
            self._remove_replaced()
            if replacement is not None:
                replacement.cleaned.remove()
        except FileNotFoundError:
            logger.debug("partition was deleted while it was cleaned", partition=str(self.log.partition))
        except OSError as error:
            self.log.log_directory.fail(error)

    def _end(self, *, uncleanable: bool = False) -> None:
        self.is_done = True
        self._owner.release(self.log, uncleanable=uncleanable)


def _sources_of(log: Log, end_offset: Offset) -> list[tuple[Segment, Offset]]:
    """Return the segments to clean and their ends.

    Opens their files, so that the worker can read them even if they are removed meanwhile; may raise OSError.
    """
    sources = [
        (segment, following.base_offset)
        for segment, following in pairwise(log.segments)
        if following.base_offset > log.start_offset and segment.base_offset < end_offset
    ]
    for segment, _ in sources:
        segment.file.size()
    return sources
