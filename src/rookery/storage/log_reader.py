"""Turns an offset into file ranges: the part of every fetch that touches a log.

Only a few batch headers are read here; the bytes of the ranges go to the socket unchanged.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.files import FileSlice
from rookery.base.types import NO_OFFSET, Offset
from rookery.records.batch import LENGTH_PREFIX_SIZE, batch_size_at
from rookery.storage.segment import Segment


class LogRead(NamedTuple):
    """The result of a read: file ranges of whole batches (the last may be cut short), or an error code."""

    error_code: ErrorCode
    slices: Sequence[FileSlice]
    size_bytes: int
    # The segment of the last range, and the offset at which it ends.
    last_segment: Segment | None = None
    last_segment_end: Offset = NO_OFFSET


_EMPTY_READ = LogRead(ErrorCode.NONE, (), 0)
_OUT_OF_RANGE = LogRead(ErrorCode.OFFSET_OUT_OF_RANGE, (), 0)


def read_segments(
    segments: Sequence[Segment],
    bases: Sequence[Offset],
    *,
    offset: Offset,
    start_offset: Offset,
    end_offset: Offset,
    limit: Offset | None,
    max_bytes: int,
    at_least_one: bool,
) -> LogRead:
    """Return ranges from the batch that holds `offset`, over as many segments as `max_bytes` covers.

    `start_offset` and `end_offset` are those of the log; only records below `limit` are returned.
    """
    if offset < start_offset or offset > end_offset:
        return _OUT_OF_RANGE
    if limit is None or limit > end_offset:
        limit = end_offset
    if offset >= limit:
        return _EMPTY_READ
    slices: list[FileSlice] = []
    total = 0
    last: tuple[Segment | None, Offset] = None, NO_OFFSET
    slot = len(bases) - 1 if offset >= bases[-1] else bisect_right(bases, offset) - 1
    while slot < len(bases) and bases[slot] < limit and total < max(max_bytes, 1):
        segment = segments[slot]
        slot += 1
        segment_end = bases[slot] if slot < len(bases) else end_offset
        start = segment.position_of(offset) if offset > segment.base_offset else 0
        available = (segment.size_bytes if segment_end <= limit else segment.position_of(limit)) - start
        if available <= 0:
            continue
        size = available
        if available > max_bytes - total:
            size = _cut(segment, start, max_bytes - total, at_least_one=at_least_one and not slices)
        if size:
            slices.append(FileSlice(segment.file, start, size))
            total += size
            last = segment, segment_end
        if size < available:
            break
    return LogRead(ErrorCode.NONE, slices, total, *last)


def read_end_offset(found: LogRead, limit: Offset) -> Offset:
    """Return an offset after all records of `found`: that of the next index entry, at most `limit`."""
    if found.last_segment is None:
        return limit
    last, index = found.slices[-1], found.last_segment.offset_index
    return min(limit, index.first_from(last.position + last.size, default=found.last_segment_end))


def _cut(segment: Segment, start: int, remaining: int, *, at_least_one: bool) -> int:
    """Return how many bytes of a range to send if `remaining` is less: the first batch is never cut short."""
    first_size = batch_size_at(segment.file.read_at(start, LENGTH_PREFIX_SIZE))
    if first_size <= remaining:
        return remaining
    return first_size if at_least_one else 0
