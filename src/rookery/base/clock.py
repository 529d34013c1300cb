"""The clock interface: no code below `node` reads the system clock directly."""

import time
from typing import Protocol

from rookery.base.types import TimestampMs


class Clock(Protocol):
    def now_ms(self) -> TimestampMs:
        """Return wall-clock time, for record timestamps and retention."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for time-outs and durations."""
        ...


def thread_time() -> float:
    """Return the processor time of the calling thread, in seconds."""
    return time.thread_time()


class SystemClock:
    # The function itself, without a call around it: metrics read it twice for each request.
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> TimestampMs:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that only moves by `advance`."""

    def __init__(self, now_ms: TimestampMs = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._start_ms = now_ms

    def now_ms(self) -> TimestampMs:
        return self._now_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
