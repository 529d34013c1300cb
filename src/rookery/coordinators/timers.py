"""A shard's timers: there are many, they are often postponed, and seldom fire.

Each heartbeat postpones a session's time-out. Postponing a timer therefore only stores the new time; the event loop's
timer is armed again when it fires before that time.
"""

from collections.abc import Callable
from typing import Protocol

from rookery.coordinators.result import Timer, TimerKey


class Handle(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an event loop that `Timers` uses."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle: ...


class Timers:
    """Calls `fired(key)` once for each timer that is due."""

    def __init__(self, loop: Loop, fired: Callable[[TimerKey], None]) -> None:
        self._loop = loop
        self._fired = fired
        self._due: dict[TimerKey, float] = {}
        self._armed: dict[TimerKey, tuple[float, Handle]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, timer: Timer) -> None:
        if timer.delay_ms is None:
            self._due.pop(timer.key, None)
            self._disarm(timer.key)
            return
        due = self._loop.time() + timer.delay_ms / 1000
        self._due[timer.key] = due
        armed = self._armed.get(timer.key)
        if armed is None or due < armed[0]:
            self._arm(timer.key, due)

    def close(self) -> None:
        for key in list(self._armed):
            self._disarm(key)
        self._due.clear()

    def _arm(self, key: TimerKey, due: float) -> None:
        self._disarm(key)
        self._armed[key] = (due, self._loop.call_at(due, lambda: self._check(key)))

    def _disarm(self, key: TimerKey) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None:
            armed[1].cancel()

    def _check(self, key: TimerKey) -> None:
        armed_for, _ = self._armed.pop(key)
        due = self._due[key]
        if due > armed_for:
            self._arm(key, due)
        else:
            del self._due[key]
            self._fired(key)
