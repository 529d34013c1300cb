"""Decides when a new segment begins: by size, time, full indexes, or offsets that would not fit the indexes."""

from zlib import crc32

from rookery.base.clock import Clock
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.storage.config import LogConfig
from rookery.storage.index import OFFSET_ENTRY_SIZE, RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE
from rookery.storage.segment import Segment


class RollPolicy:
    __slots__ = (
        "_clock",
        "_indexes_may_fill",
        "_jitter_ms",
        "_newest_ms",
        "_offset_entries_max",
        "_partition",
        "_segment",
        "_segment_bytes",
        "_segment_ms",
        "_time_entries_max",
    )

    def __init__(self, partition: TopicPartition, config: LogConfig, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.roll_ms
        self._jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY_SIZE
        # One slot stays free for the entry that is added when the segment is sealed.
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        # There is at most one entry per interval: with most settings the segment is full long before its indexes.
        entries_at_most = config.segment_bytes // max(config.index_interval_bytes, 1)
        self._indexes_may_fill = entries_at_most >= self._time_entries_max
        # The segment of the last call, and the largest timestamp that it accepts.
        self._segment: Segment | None = None
        self._newest_ms: TimestampMs | None = None

    @property
    def counts_entries(self) -> bool:
        """Whether a segment may have to end because its indexes are full."""
        return self._indexes_may_fill

    def must_roll(self, segment: Segment, size: int, last_offset: Offset, max_timestamp_ms: TimestampMs) -> bool:
        """Return whether a batch needs a new segment; an empty one accepts anything that its indexes can hold."""
        segment_size = segment.size_bytes
        if segment_size == 0:
            # Time counts from its first record, which is about to come, possibly again: after a truncation to nothing.
            self._segment = None
            return not segment.fits(last_offset)
        if segment is not self._segment:
            self._segment, self._newest_ms = segment, self._newest_accepted_ms(segment)
        return (
            segment_size + size > self._segment_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (self._indexes_may_fill and self._has_full_index(segment))
            or (self._is_old_by_clock(segment) if self._newest_ms is None else max_timestamp_ms > self._newest_ms)
        )

    def _has_full_index(self, segment: Segment) -> bool:
        return (
            len(segment.offset_index) >= self._offset_entries_max or len(segment.time_index) >= self._time_entries_max
        )

    def _newest_accepted_ms(self, segment: Segment) -> TimestampMs | None:
        """Return the largest timestamp that a segment accepts, counted from its first; None if it has none."""
        first_ms = segment.first_timestamp_ms
        return first_ms + self._segment_ms - self._jitter_of(segment) if first_ms >= 0 else None

    def _is_old_by_clock(self, segment: Segment) -> bool:
        """Return whether a segment of records without timestamps is old enough by the clock."""
        return self._clock.now_ms() - segment.created_ms > self._segment_ms - self._jitter_of(segment)

    def _jitter_of(self, segment: Segment) -> int:
        """Return how much earlier this segment rolls, to spread the rolls of many partitions; the same in every run."""
        if self._jitter_ms <= 0:
            return 0
        return crc32(f"{self._partition}/{segment.base_offset}".encode()) % self._jitter_ms
