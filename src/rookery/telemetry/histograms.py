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
FINE_BITS: Final = 3
FINE: Final = 1 << FINE_BITS
# Larger values count as this one: more than 12 days in microseconds, or a terabyte.
VALUE_MAX: Final = (1 << 40) - 1
BUCKETS: Final = (40 - FINE_BITS + 1) << FINE_BITS
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
    """Counts of values, which are whole numbers of at least 0.

    The fields are public for `broker.request_metering`, which records without a call.
    """

    __slots__ = ("_older", "count", "counts", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        # The counts of the present period by bucket; empty until the first value.
        self.counts: list[int] = []
        self._older: deque[list[int]] = deque(maxlen=PERIODS - 1)

    def record(self, value: int) -> None:
        self.count += 1
        self.sum += value
        if not self.counts:
            self.begin()
        self.counts[bucket_of(value)] += 1

    def begin(self) -> None:
        """Begin to count in a period."""
        self.counts = [0] * BUCKETS

    def rotate(self) -> None:
        """End a period. Values of the oldest one no longer count in percentiles."""
        self._older.append(self.counts)
        self.counts = []

    @property
    def periods(self) -> Sequence[Sequence[int]]:
        """The counts by bucket, of each period; empty for one without values."""
        return [*self._older, self.counts]


def bucket_of(value: int) -> int:
    """Return the bucket that a value counts in."""
    if value < FINE:
        return max(value, 0)
    if value > VALUE_MAX:
        value = VALUE_MAX
    shift = value.bit_length() - FINE_BITS - 1
    return (shift << FINE_BITS) + (value >> shift)


def middle_of(bucket: int) -> float:
    """Return the value in the middle of a bucket."""
    if bucket < 2 * FINE:
        return float(bucket)
    shift = (bucket >> FINE_BITS) - 1
    return float((bucket - (shift << FINE_BITS)) << shift) + (1 << shift) / 2


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
            for bucket, number in enumerate(period):
                if number:
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
