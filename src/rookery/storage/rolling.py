"""When the active segment has had enough: by size, time, full indexes, or offsets that would not fit the indexes."""

from zlib import crc32

from rookery.base.clock import Clock
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.storage.config import LogConfig
from rookery.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from rookery.storage.segment import Segment


class RollPolicy:
    __slots__ = (
        "_clock",
        "_jitter_ms",
        "_offset_entries_max",
        "_partition",
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

    def must_roll(self, segment: Segment, size: int, *, last_offset: Offset, max_timestamp_ms: TimestampMs) -> bool:
        """Whether a batch must go into a new segment. An empty one takes anything."""
        segment_size = segment.size_bytes
        return segment_size > 0 and (
            segment_size + size > self._segment_bytes
            or len(segment.offset_index) >= self._offset_entries_max
            or len(segment.time_index) >= self._time_entries_max
            or not segment.fits(last_offset)
            or self._waited_ms(segment, max_timestamp_ms) > self._segment_ms - self._jitter_of(segment)
        )

    def _waited_ms(self, segment: Segment, max_timestamp_ms: TimestampMs) -> int:
        """By record timestamps, so that replaying old data rolls as it did; by the clock where there are none."""
        first_ms = segment.first_timestamp_ms
        return max_timestamp_ms - first_ms if first_ms >= 0 else self._clock.now_ms() - segment.created_ms

    def _jitter_of(self, segment: Segment) -> int:
        """Spreads the rolls of many partitions over time; fixed per segment, so that a run can be repeated."""
        if self._jitter_ms <= 0:
            return 0
        return crc32(f"{self._partition}/{segment.base_offset}".encode()) % self._jitter_ms
