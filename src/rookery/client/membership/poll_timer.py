"""max.poll.interval.ms: how long an application may go without polling before its member leaves the group.

A poll restarts it whenever it comes round. One that waits for records for longer than that, because nothing is assigned
or everything paused, would not come round in time: so it is asked to, by `remind`, when a third is over. Where no poll
is waiting, that does nothing. Both kinds of membership have one.
"""

import asyncio
from collections.abc import Callable

_REMIND_AFTER = 1 / 3
# Less is rounding: a timer so short would be due at the same moment, again and again.
_RESOLUTION_S = 0.001


class PollTimer:
    def __init__(self, limit_ms: int, *, remind: Callable[[], None]) -> None:
        self._limit_s = limit_ms / 1000
        self._remind = remind
        self._polled_s: float | None = None
        self._reminder: asyncio.TimerHandle | None = None

    @property
    def is_started(self) -> bool:
        return self._polled_s is not None

    @property
    def left_s(self) -> float:
        assert self._polled_s is not None, "polls begin the joins, and joins the heartbeats"
        return self._polled_s + self._limit_s - asyncio.get_running_loop().time()

    def restart(self) -> None:
        """There is a poll."""
        loop = asyncio.get_running_loop()
        self._polled_s = loop.time()
        # Not anew for each of many short polls: it looks at the time when it is due.
        if self._reminder is None:
            self._reminder = loop.call_later(self._limit_s * _REMIND_AFTER, self._due)

    def stop(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def _due(self) -> None:
        early_s = self.left_s - self._limit_s * (1 - _REMIND_AFTER)
        if early_s > _RESOLUTION_S:
            self._reminder = asyncio.get_running_loop().call_later(early_s, self._due)
        else:
            self._reminder = None
            self._remind()
