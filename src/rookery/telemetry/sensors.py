"""Sensors: averages, maxima and rates over sliding windows, computed as in Kafka's metrics.

Theory of operation. A sensor keeps a list of samples. Events are added to the newest sample until it is one window old;
then a new one begins, and as many older ones are kept as there are windows (N). A measurement uses all samples whose
last event is not older than N windows; the others are reset first, and begin now. So a value covers between N - 1 and N
windows, and a sensor without events for N windows has its initial values: NaN for averages and extremes, 0 for rates.

A rate divides by the time since the oldest sample began, but by at least N - 1 windows, so that one early event is no
spike. Totals cover all events.

In Kafka each statistic has its own samples. Here the statistics of a sensor share them, so that an event costs a few
additions, however many metrics use it.

Pure: the caller passes the time, in seconds of any monotonic clock. One thread records. Another thread may measure
concurrently: totals stay exact, and a window can lose at most the event that is being recorded.
"""

from collections import deque
from math import inf, nan
from typing import NamedTuple

SECONDS_PER_HOUR = 3600.0
_MILLISECOND_S = 0.001


class Windows(NamedTuple):
    """The number and length of windows: metrics.num.samples and metrics.sample.window.ms."""

    number: int = 2
    length_s: float = 30.0


DEFAULT_WINDOWS = Windows()


class _Sample(NamedTuple):
    events: int
    sum: float
    maximum: float
    minimum: float
    began_s: float
    # The time of its last event; `began_s` if it has none.
    last_s: float


class Sensor:
    """Statistics of events with a value each. The newest sample is kept in attributes, to make `record` fast."""

    __slots__ = (
        "_began_s",
        "_ends_s",
        "_events",
        "_length_s",
        "_maximum",
        "_minimum",
        "_number",
        "_older",
        "_span_s",
        "_sum",
        "count",
        "last_s",
        "total",
    )

    def __init__(self, windows: Windows) -> None:
        # Windows of no length would make every rate a division by zero.
        self._length_s = max(windows.length_s, _MILLISECOND_S)
        self._number = windows.number
        self._span_s = windows.number * self._length_s
        # The number and the sum of all events since the beginning, and the time of the last one.
        self.count, self.total = 0, 0.0
        self.last_s: float | None = None
        # None: there is no sample yet, not even the newest.
        self._older: deque[_Sample] | None = None
        self._events, self._sum, self._maximum, self._minimum = 0, 0.0, -inf, inf
        self._began_s = 0.0
        self._ends_s = -inf

    def record(self, value: float, now_s: float) -> None:
        if now_s >= self._ends_s:
            self._advance(now_s)
        self.count += 1
        self.total += value
        self._events += 1
        self._sum += value
        if value > self._maximum:
            self._maximum = value
        if value < self._minimum:
            self._minimum = value
        self.last_s = now_s

    def average(self, now_s: float) -> float:
        samples = self._samples(now_s)
        events = sum(sample.events for sample in samples)
        return sum(sample.sum for sample in samples) / events if events else nan

    def maximum(self, now_s: float) -> float:
        largest = max((sample.maximum for sample in self._samples(now_s)), default=-inf)
        return nan if largest == -inf else float(largest)

    def minimum(self, now_s: float) -> float:
        smallest = min((sample.minimum for sample in self._samples(now_s)), default=inf)
        return nan if smallest == inf else float(smallest)

    def rate(self, now_s: float, unit_s: float = 1.0) -> float:
        """Return the sum of values per second, or per `unit_s`."""
        samples = self._begin_and_sample(now_s)
        return sum(sample.sum for sample in samples) * unit_s / self._width_s(samples, now_s)

    def rate_and_width(self, now_s: float) -> tuple[float, float]:
        """Return the sum of values per second, and the seconds that it was divided by."""
        samples = self._begin_and_sample(now_s)
        width_s = self._width_s(samples, now_s)
        return sum(sample.sum for sample in samples) / width_s, width_s

    def simple_rate(self, now_s: float) -> float:
        """Return the sum of values per second, divided by the time since the oldest sample began, at least a window.

        It shows an early burst at once, where `rate` spreads it over all windows.
        """
        samples = self._begin_and_sample(now_s)
        elapsed_s = now_s - min(sample.began_s for sample in samples)
        return sum(sample.sum for sample in samples) / max(elapsed_s, self._length_s)

    def count_rate(self, now_s: float, unit_s: float = 1.0) -> float:
        """Return the number of events per second, or per `unit_s`."""
        samples = self._begin_and_sample(now_s)
        return sum(sample.events for sample in samples) * unit_s / self._width_s(samples, now_s)

    def _width_s(self, samples: list[_Sample], now_s: float) -> float:
        elapsed_s = now_s - min(sample.began_s for sample in samples)
        missing = self._number - 1 - int(elapsed_s // self._length_s)
        return max(elapsed_s + max(missing, 0) * self._length_s, _MILLISECOND_S)

    def _begin_and_sample(self, now_s: float) -> list[_Sample]:
        """Return the samples; begin the first one if there is none: a rate counts from its first measurement."""
        if self._older is None:
            self._older = deque(maxlen=self._number)
            self._open(now_s)
        return self._samples(now_s)

    def _samples(self, now_s: float) -> list[_Sample]:
        """Return all samples, after resetting those that are too old."""
        if self._older is None:
            return []
        for index, sample in enumerate(self._older):
            if now_s - sample.last_s >= self._span_s:
                self._older[index] = _Sample(0, 0.0, -inf, inf, now_s, now_s)
        newest = self._newest()
        if now_s - newest.last_s >= self._span_s:
            self._open(now_s)
            newest = self._newest()
        return [*self._older, newest]

    def _newest(self) -> _Sample:
        last_s = self.last_s if self._events and self.last_s is not None else self._began_s
        return _Sample(self._events, self._sum, self._maximum, self._minimum, self._began_s, last_s)

    def _advance(self, now_s: float) -> None:
        """Begin a new sample: there is none, or the newest is one window old."""
        if self._older is None:
            self._older = deque(maxlen=self._number)
        else:
            self._older.append(self._newest())
        self._open(now_s)

    def _open(self, now_s: float) -> None:
        self._events, self._sum, self._maximum, self._minimum = 0, 0.0, -inf, inf
        self._began_s = now_s
        self._ends_s = now_s + self._length_s
