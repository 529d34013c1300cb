"""Histograms: how values are distributed, over the last minutes and since the start.

Kafka's histograms are samples that forget old values by and by, from which percentiles are computed. Here each value is
counted in a bucket, which costs less per value and cannot miss an extreme one: eight buckets for each power of two, so
that a percentile is at most 7 % off. Counts are kept for some periods; a job calls `rotate` at the end of each, and
percentiles cover the last ones. Count and sum are those of all values.

Pure. One thread records; a snapshot is taken on the same one.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

# How many periods percentiles cover, the present one included. A node rotates its histograms once a minute.
PERIODS: Final = 5

# 2**3 buckets for each power of two.
_FINE_BITS: Final = 3
_FINE: Final = 1 << _FINE_BITS
# Larger values count as this one: more than 12 days in microseconds, or a terabyte.
_VALUE_MAX: Final = (1 << 40) - 1
PERCENTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Distribution(NamedTuple):
    """A snapshot of a histogram. `number` and `sum` cover all values, everything else the last periods."""

    number: int
    sum: float
    minimum: float
    maximum: float
    mean: float
    # In the order of `PERCENTILES`.
    percentiles: tuple[float, ...]


class Histogram:
    """Counts of values, which are whole numbers of at least 0."""

    __slots__ = ("_counts", "_older", "count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self._counts: dict[int, int] = {}
        self._older: deque[dict[int, int]] = deque(maxlen=PERIODS - 1)

    def record(self, value: int) -> None:
        self.count += 1
        self.sum += value
        # The bucket of `bucket_of`, without a call: this runs for every request.
        if value < _FINE:
            bucket = max(value, 0)
        else:
            value = min(value, _VALUE_MAX)
            shift = value.bit_length() - _FINE_BITS - 1
            bucket = (shift << _FINE_BITS) + (value >> shift)
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1

    def rotate(self) -> None:
        """End a period. Values of the oldest one no longer count in percentiles."""
        self._older.append(self._counts)
        self._counts = {}

    @property
    def periods(self) -> Sequence[dict[int, int]]:
        """The counts by bucket, of each period."""
        return [*self._older, self._counts]


def bucket_of(value: int) -> int:
    """Return the bucket that a value counts in."""
    histogram = Histogram()
    histogram.record(value)
    return next(iter(histogram.periods[-1]))


def middle_of(bucket: int) -> float:
    """Return the value in the middle of a bucket."""
    if bucket < 2 * _FINE:
        return float(bucket)
    shift = (bucket >> _FINE_BITS) - 1
    return float((bucket - (shift << _FINE_BITS)) << shift) + (1 << shift) / 2


def distribution(histograms: Iterable[Histogram], *, zeros: int = 0, scale: float = 1.0) -> Distribution:
    """Return the distribution of the values of several histograms.

    `zeros` is the number of values that were 0 and are not recorded, in the last periods and since the start alike.
    Values are multiplied by `scale`.
    """
    count, total, merged = zeros, 0, {0: zeros} if zeros else {}
    for histogram in histograms:
        count += histogram.count
        total += histogram.sum
        for period in histogram.periods:
            for bucket, number in period.items():
                merged[bucket] = merged.get(bucket, 0) + number
    if not merged:
        return Distribution(count, total * scale, 0.0, 0.0, 0.0, (0.0,) * len(PERCENTILES))
    buckets = sorted(merged)
    middles = [middle_of(bucket) * scale for bucket in buckets]
    numbers = [merged[bucket] for bucket in buckets]
    ends = list(accumulate(numbers))
    mean = sum(middle * number for middle, number in zip(middles, numbers, strict=True)) / ends[-1]
    percentiles = tuple(middles[bisect_left(ends, max(1.0, share * ends[-1]))] for share in PERCENTILES)
    return Distribution(count, total * scale, middles[0], middles[-1], mean, percentiles)
