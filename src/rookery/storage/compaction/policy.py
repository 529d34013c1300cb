"""Which part of a log compaction may clean, and when: pure decisions over segments' sizes, offsets and timestamps.

A compacted log is clean up to its cleaner checkpoint and dirty from there. Only whole sealed segments are cleaned, and
only up to the first uncleanable offset: the lowest of the active segment's start, the last stable offset, and the first
segment that is younger than `min.compaction.lag.ms`. A log is due when more than `min.cleanable.dirty.ratio` of its
bytes are dirty, or when a dirty record is older than `max.compaction.lag.ms`. `dedupe` decides which records stay;
`task` does the work.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from rookery.base.types import Offset, TimestampMs
from rookery.storage.config import FOREVER_MS, LogConfig
from rookery.storage.index import OFFSET_ENTRY_SIZE, RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE


class SegmentFacts(Protocol):
    """The properties of a segment that count; timestamps may cost a read, so they are read only where needed."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def first_timestamp_ms(self) -> TimestampMs: ...
    @property
    def max_timestamp_ms(self) -> TimestampMs: ...


class CleanableRange(NamedTuple):
    """The dirty part of a log that may be cleaned now: [`first_dirty_offset`, `end_offset`)."""

    first_dirty_offset: Offset
    # The start of a segment: the first one that must not be cleaned.
    end_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    # Whether a dirty record is older than `max.compaction.lag.ms`.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, dirty_ratio_min: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > dirty_ratio_min)


def first_dirty_offset(checkpoint: Offset | None, *, start_offset: Offset, end_offset: Offset) -> Offset:
    """Return where cleaning continues; a checkpoint outside the log means that all of it is dirty."""
    if checkpoint is None or not start_offset <= checkpoint <= end_offset:
        return start_offset
    return checkpoint


def cleanable_range(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    first_dirty: Offset,
    stable_offset: Offset,
    now_ms: TimestampMs,
) -> CleanableRange:
    """Return the part that may be cleaned now.

    `segments` are all of a log's, the active one last; `stable_offset` is the last stable offset.
    """
    active = segments[-1]
    bounds = [(segment, following.base_offset) for segment, following in pairwise(segments)]
    dirty = [segment for segment, end_offset in bounds if end_offset > first_dirty]
    end_offset = active.base_offset
    for segment, segment_end in bounds:
        if segment_end > first_dirty and (segment_end > stable_offset or _is_too_young(segment, config, now_ms)):
            end_offset = segment.base_offset
            break
    cleanable = [segment for segment in dirty if segment.base_offset < end_offset]
    return CleanableRange(
        first_dirty,
        max(first_dirty, end_offset),
        clean_bytes=sum(segment.size_bytes for segment, segment_end in bounds if segment_end <= first_dirty),
        dirty_bytes=sum(segment.size_bytes for segment in cleanable),
        is_overdue=_is_overdue(dirty, config, now_ms),
    )


def _is_too_young(segment: SegmentFacts, config: LogConfig, now_ms: TimestampMs) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.max_timestamp_ms > now_ms - lag_ms


def _is_overdue(dirty: Iterable[SegmentFacts], config: LogConfig, now_ms: TimestampMs) -> bool:
    if config.max_compaction_lag_ms >= FOREVER_MS:
        return False
    oldest_allowed_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < segment.first_timestamp_ms < oldest_allowed_ms for segment in dirty)


def can_merge(
    segment: SegmentFacts, config: LogConfig, *, base_offset: Offset, size_bytes: int, end_offset: Offset
) -> bool:
    """Return whether `segment`, which ends at `end_offset`, can be merged into one of `size_bytes` from `base_offset`.

    Neighbours are merged, so that cleaned segments do not become smaller and smaller.
    """
    size = size_bytes + segment.size_bytes
    return (
        size <= config.segment_bytes
        and _index_size(size, config) <= config.segment_index_bytes
        and end_offset - 1 - base_offset <= RELATIVE_OFFSET_MAX
    )


def _index_size(size_bytes: int, config: LogConfig) -> int:
    """Return the largest size that either index can have for this many bytes of batches: one entry per interval."""
    entries = size_bytes // max(1, config.index_interval_bytes) + 1
    return entries * max(OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE)
