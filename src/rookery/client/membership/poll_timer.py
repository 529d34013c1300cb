"""Measures max.poll.interval.ms: how long an application may go without polling before its member leaves the group.

Every poll restarts the timer. A poll that waits for records longer than that, because nothing is assigned or everything
is paused, must restart it, too: `remind` is called after a third of the interval to wake it. If no poll is waiting,
that has no effect. Both kinds of membership have one.
"""

import asyncio
from collections.abc import Callable

_REMIND_AFTER = 1 / 3
# A shorter rest is a rounding error. A timer for it would fire at the same loop time again and again.
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
        """Called by every poll."""
        loop = asyncio.get_running_loop()
        self._polled_s = loop.time()
        # Many short polls share one timer: `_on_timer` computes the time that is left.
        if self._reminder is None:
            self._reminder = loop.call_later(self._limit_s * _REMIND_AFTER, self._on_timer)

    def stop(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def _on_timer(self) -> None:
        early_s = self.left_s - self._limit_s * (1 - _REMIND_AFTER)
        if early_s > _RESOLUTION_S:
            self._reminder = asyncio.get_running_loop().call_later(early_s, self._on_timer)
        else:
            self._reminder = None
            self._remind()
