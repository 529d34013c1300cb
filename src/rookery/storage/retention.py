"""Which segments have expired: pure decisions, made from the oldest segment on.

Whole segments are deleted from the start of a log, never from the middle: by time, when the newest record of a segment
is older than `retention.ms`; by size, while the log without the segment still has `retention.bytes`; and below the log
start offset (DeleteRecords), also in logs that are only compacted. The active segment is deleted only by time, and only
when everything in it has expired: the log then rolls first.
"""

from collections.abc import Sequence
from typing import Protocol

from rookery.base.types import Offset, TimestampMs
from rookery.storage.config import UNLIMITED, LogConfig


class SegmentFacts(Protocol):
    @property
    def base_offset(self) -> Offset: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> TimestampMs: ...


def count_expired(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    start_offset: Offset,
    stable_offset: Offset,
    end_offset: Offset,
    now_ms: TimestampMs,
) -> int:
    """Return how many segments, from the oldest on, may be deleted; none that extends beyond `stable_offset`."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    removable = sum(1 for end in ends if end <= stable_offset)
    counts = [_count_below_start(ends[:-1], start_offset)]
    if config.deletes:
        counts.append(_count_by_time(segments, config.retention_ms, now_ms))
        counts.append(_count_by_size(segments, config.retention_bytes))
    return min(removable, max(counts))


def _count_below_start(sealed_ends: Sequence[Offset], start_offset: Offset) -> int:
    return sum(1 for end in sealed_ends if end <= start_offset)


def _count_by_time(segments: Sequence[SegmentFacts], retention_ms: int, now_ms: TimestampMs) -> int:
    """Count segments expired by time.

    Segments whose records have no timestamps never expire; an empty active segment has nothing to delete.
    """
    if retention_ms == UNLIMITED:
        return 0
    count = 0
    for segment in segments:
        if not segment.size_bytes and segment is segments[-1]:
            break
        if not 0 <= segment.max_timestamp_ms < now_ms - retention_ms:
            break
        count += 1
    return count


def _count_by_size(segments: Sequence[SegmentFacts], retention_bytes: int) -> int:
    if retention_bytes == UNLIMITED:
        return 0
    count = 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    for segment in segments[:-1]:
        excess -= segment.size_bytes
        if excess < 0:
            break
        count += 1
    return count
