"""Time that can be advanced: the clock and the event loop of an embedded broker share one shift.

Wall-clock time comes from a `Clock`, timers from the loop's `time()`; shifting only one of them would expire records
but not sessions, or vice versa. The time of uvloop cannot be shifted, so that an embedded broker runs on asyncio's
loop.

Time advances by a jump. Every timer that has become due fires once, in order, and sees the new time: work that repeats
every second runs once after a jump of an hour, not 3,600 times.
"""

import asyncio

from rookery.base.clock import SystemClock
from rookery.base.types import TimestampMs


class TimeShift:
    """The offset of a broker's time. Survives the broker's restarts."""

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
        # Set before the base class, whose constructor reads the time.
        self._shift = shift
        super().__init__()

    def time(self) -> float:
        return super().time() + self._shift.seconds


async def jump(shift: TimeShift, seconds: float) -> None:
    """Advance the running loop's time. Returns when every timer that became due has fired, and the tasks that they
    woke have run until they wait again."""
    shift.seconds += seconds
    await wait_for_due_timers()


async def wait_for_due_timers() -> None:
    """Return when all timers that are due have fired."""
    loop = asyncio.get_running_loop()
    fired = loop.create_future()
    # Due timers fire in the order of their times, so that this one is the last.
    loop.call_at(loop.time(), fired.set_result, None)
    await fired
