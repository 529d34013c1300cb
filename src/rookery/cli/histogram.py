"""Counts durations in buckets of growing width: percentiles within 2.5 %, at a fixed cost per duration. Pure."""

import math
from collections.abc import Iterator

from rookery.base.values import value_class

# Neighbouring buckets differ by this factor, so that the middle of a bucket is within 2.5 % of its durations.
_GROWTH = 1.05
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST_MS = 0.001
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@value_class
class Bar:
    """One line of the drawn histogram: from 1, 2, 5, 10, 20, ... milliseconds to the next of these."""

    from_ms: float
    to_ms: float
    count: int


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0.0
        self._sum_ms = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, duration_ms: float) -> None:
        bucket = math.floor(math.log(max(duration_ms, _SMALLEST_MS)) / _LOG_GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self._sum_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)

    @property
    def mean_ms(self) -> float:
        return self._sum_ms / self.count if self.count else 0.0

    def percentile_ms(self, percent: float) -> float:
        """Return approximately the duration that `percent` of all durations do not exceed; 0 without durations."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(self.max_ms, float(_GROWTH ** (bucket + 0.5)))
        return 0.0

    def summary(self) -> dict[str, float]:
        """Return mean, percentiles and maximum, by their names in `--json`."""
        percentiles = {f"p{percent:g}": self.percentile_ms(percent) for percent in PERCENTILES}
        return {"mean": self.mean_ms, **percentiles, "max": self.max_ms}

    def bars(self) -> list[Bar]:
        """Return the bars from the shortest to the longest duration, without gaps."""
        if not self._buckets:
            return []
        edges = list(_edges(_GROWTH ** min(self._buckets), _GROWTH ** (max(self._buckets) + 1)))
        counts = [0] * (len(edges) - 1)
        for bucket, count in self._buckets.items():
            middle = _GROWTH ** (bucket + 0.5)
            counts[next(index for index in range(len(counts)) if middle < edges[index + 1])] += count
        return [Bar(edges[index], edges[index + 1], count) for index, count in enumerate(counts)]


def _edges(lowest: float, highest: float) -> Iterator[float]:
    """Yield the numbers 1, 2, 5, 10, ... from at most `lowest` until beyond `highest`."""
    power = math.floor(math.log10(lowest))
    steps = [step * 10.0**exponent for exponent in range(power, power + 30) for step in (1, 2, 5)]
    start = max(index for index, step in enumerate(steps) if step <= lowest * 1.0000001)
    for step in steps[start:]:
        yield step
        if step > highest:
            return
