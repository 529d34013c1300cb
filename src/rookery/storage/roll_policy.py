"""When the active segment has had enough: by size, time, full indexes, or offsets that would not fit the indexes."""

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
        # One slot stays free for the entry that sealing writes.
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        # An entry is made after more than so many bytes: with most settings the segment is full long before.
        entries_at_most = config.segment_bytes // max(config.index_interval_bytes, 1)
        self._indexes_may_fill = entries_at_most >= self._time_entries_max
        # The segment that was asked about last, and the largest timestamp that it takes.
        self._segment: Segment | None = None
        self._newest_ms: TimestampMs | None = None

    def must_roll(self, segment: Segment, size: int, last_offset: Offset, max_timestamp_ms: TimestampMs) -> bool:
        """Whether a batch must go into a new segment. An empty one takes anything that its indexes can hold."""
        segment_size = segment.size_bytes
        if segment_size == 0:
            # Its first record, which the time is counted from, is about to come; perhaps not for the first time.
            self._segment = None
            return not segment.fits(last_offset)
        if segment is not self._segment:
            self._segment, self._newest_ms = segment, self._find_newest_ms(segment)
        return (
            segment_size + size > self._segment_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (self._indexes_may_fill and self._has_full_index(segment))
            or (self._has_waited(segment) if self._newest_ms is None else max_timestamp_ms > self._newest_ms)
        )

    def _has_full_index(self, segment: Segment) -> bool:
        return (
            len(segment.offset_index) >= self._offset_entries_max or len(segment.time_index) >= self._time_entries_max
        )

    def _find_newest_ms(self, segment: Segment) -> TimestampMs | None:
        """By record timestamps, so that replaying old data rolls as it did; None where there are none."""
        first_ms = segment.first_timestamp_ms
        return first_ms + self._segment_ms - self._jitter_of(segment) if first_ms >= 0 else None

    def _has_waited(self, segment: Segment) -> bool:
        """By the clock, for records without timestamps."""
        return self._clock.now_ms() - segment.created_ms > self._segment_ms - self._jitter_of(segment)

    def _jitter_of(self, segment: Segment) -> int:
        """Spreads the rolls of many partitions over time; fixed per segment, so that a run can be repeated."""
        if self._jitter_ms <= 0:
            return 0
        return crc32(f"{self._partition}/{segment.base_offset}".encode()) % self._jitter_ms
