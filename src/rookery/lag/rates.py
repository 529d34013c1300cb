"""Rates over a window of samples, and when a group will have caught up at these rates. Pure."""

import math
from collections.abc import Sequence

from rookery.base.types import Offset, TimestampMs
from rookery.base.values import value_class

_MS_PER_S = 1000


@value_class
class Point:
    """The committed offset of a group and the end of the log at one time."""

    at_ms: TimestampMs
    committed: Offset
    end: Offset


@value_class
class Rates:
    """Offsets per second: written to the partition, and committed by the group."""

    written: float
    committed: float

    @property
    def trend(self) -> float:
        """How much the lag grows per second; negative if it falls."""
        return self.written - self.committed

    def catch_up_s(self, lag: int) -> float:
        """Return the seconds until the group has committed everything; infinity if the lag does not fall."""
        if lag <= 0:
            return 0.0
        return lag / -self.trend if self.trend < 0 else math.inf


def rates(points: Sequence[Point]) -> Rates | None:
    """Return the rates over `points`, oldest first; None without two points at different times.

    A reset of the group's offsets, or a log that became shorter, says nothing about speed: only the points after the
    last one count.
    """
    first = 0
    for index in range(1, len(points)):
        if points[index].committed < points[index - 1].committed or points[index].end < points[index - 1].end:
            first = index
    since = points[first:]
    if not since or since[-1].at_ms <= since[0].at_ms:
        return None
    duration_s = (since[-1].at_ms - since[0].at_ms) / _MS_PER_S
    return Rates((since[-1].end - since[0].end) / duration_s, (since[-1].committed - since[0].committed) / duration_s)
