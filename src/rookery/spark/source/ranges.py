"""Splits ranges of offsets into tasks, with the arithmetic of Spark's Kafka source. Pure.

Without options there is one task for each partition with records to read. `maxRecordsPerPartition` splits longer
ranges. If there are still fewer ranges than `minPartitions`, the longest are split in proportion to their length, and
short ones stay whole. The parts of a range differ by at most one offset.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rookery.base.types import Offset, TopicPartition


class OffsetRange(NamedTuple):
    """The offsets from `start` to before `end`."""

    partition: TopicPartition
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]) -> list[OffsetRange]:
    """Return the ranges that are not empty, in order."""
    ranges = [OffsetRange(tp, starts[tp], ends[tp]) for tp in sorted(starts.keys() & ends.keys())]
    return [each for each in ranges if each.size > 0]


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Return one range for each task."""
    parts = [each for each in ranges if each.size > 0]
    if max_records is not None:
        parts = _flatten(_divide(each, -(-each.size // max_records)) for each in parts)
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(each.size for each in parts)
    short = {each for each in parts if _share(each.size, total, min_partitions) == 1}
    # Short ranges take a task each, and only the others share the remaining tasks.
    long_total = total - sum(each.size for each in short)
    wanted = max(min_partitions - len(short), 1)
    return _flatten([each] if each in short else _divide(each, _share(each.size, long_total, wanted)) for each in parts)


def _share(size: int, total: int, count: int) -> int:
    """Return the number of parts of a range; halves are rounded up, as in Java."""
    return max(int(size / total * count + 0.5), 1)


def _divide(whole: OffsetRange, count: int) -> list[OffsetRange]:
    parts, start = [], whole.start
    for left in range(count, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            parts.append(OffsetRange(whole.partition, start, end))
        start = end
    return parts


def _flatten(groups: Iterable[list[OffsetRange]]) -> list[OffsetRange]:
    return [each for group in groups for each in group]
