"""Time that can be moved ahead: the clock and the event loop of an embedded broker share one shift.

Wall-clock time comes from a `Clock`, timers from the loop's `time()`; moving one of them alone would expire records
but not sessions, or the other way round. uvloop keeps its time to itself, so an embedded broker runs on asyncio's loop.

A move is a jump. Every timer that has become due fires once, in order, and sees the new time: work that repeats every
second happens once after a jump of an hour, not 3,600 times.
"""

import asyncio

from rookery.base.clock import SystemClock
from rookery.base.types import TimestampMs


class TimeShift:
    """How far a broker's time is ahead. Survives the broker's restarts."""

    def __init__(self) -> None:
        self.seconds = 0.0


class ShiftedClock(SystemClock):
    def __init__(self, shift: TimeShift) -> None:
        self._shift = shift

    def now_ms(self) -> TimestampMs:
        return super().now_ms() + round(self._shift.seconds * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self._shift.seconds


class ShiftedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop computes all its timers, and how long it may sleep, from `time()`."""

    def __init__(self, shift: TimeShift) -> None:
        # Before the base class, which asks for the time when it is made.
        self._shift = shift
        super().__init__()

    def time(self) -> float:
        return super().time() + self._shift.seconds


async def jump(shift: TimeShift, seconds: float) -> None:
    """Move the running loop's time. Returns when every timer that became due has fired, and what it woke has run as
    far as it could without waiting for something else."""
    shift.seconds += seconds
    await due_timers_fired()


async def due_timers_fired() -> None:
    loop = asyncio.get_running_loop()
    fired = loop.create_future()
    # Due timers fire in the order of their times, so this one is the last of them.
    loop.call_at(loop.time(), fired.set_result, None)
    await fired
