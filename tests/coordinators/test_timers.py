from collections.abc import Callable

from rookery.coordinators.result import Timer, TimerKey
from rookery.coordinators.timers import Timers


class Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop whose time is advanced by the test."""

    def __init__(self) -> None:
        self._now = 100.0
        self.scheduled: list[tuple[float, Callable[[], object], Handle]] = []

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle:
        handle = Handle()
        self.scheduled.append((when, callback, handle))
        return handle

    def advance(self, seconds: float) -> None:
        self._now += seconds
        while due := [item for item in self.scheduled if item[0] <= self._now and not item[2].is_cancelled]:
            first = min(due, key=lambda item: item[0])
            self.scheduled.remove(first)
            first[1]()


def test_a_timer_fires_once() -> None:
    loop, fired = Loop(), list[TimerKey]()
    timers = Timers(loop, fired.append)
    timers.set(Timer("a", 1000))
    timers.set(Timer("b", 2000))
    loop.advance(0.9)
    assert fired == []
    loop.advance(0.2)
    assert fired == ["a"]
    loop.advance(10)
    assert fired == ["a", "b"]
    assert len(timers) == 0


def test_postponing_a_timer_schedules_nothing() -> None:
    loop, fired = Loop(), list[TimerKey]()
    timers = Timers(loop, fired.append)
    for _ in range(100):
        timers.set(Timer("a", 1000))
        loop.advance(0.005)
    assert len(loop.scheduled) == 1
    loop.advance(0.9)
    assert fired == []
    loop.advance(0.1)
    assert fired == ["a"]


def test_a_timer_can_be_moved_forward_and_cancelled() -> None:
    loop, fired = Loop(), list[TimerKey]()
    timers = Timers(loop, fired.append)
    timers.set(Timer("a", 5000))
    timers.set(Timer("a", 1000))
    timers.set(Timer("b", 1000))
    timers.set(Timer("b", None))
    timers.set(Timer("never set", None))
    loop.advance(1)
    assert fired == ["a"]
    loop.advance(10)
    assert fired == ["a"]


def test_a_timer_may_set_itself_again() -> None:
    loop, fired = Loop(), list[TimerKey]()

    def again(key: TimerKey) -> None:
        fired.append(key)
        timers.set(Timer(key, 1000))

    timers = Timers(loop, again)
    timers.set(Timer("a", 1000))
    for _ in range(3):
        loop.advance(1)
    assert fired == ["a", "a", "a"]
    timers.close()
    loop.advance(10)
    assert len(fired) == 3
