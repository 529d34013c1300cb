"""Parked requests on an event loop that the test steps manually."""

from collections.abc import Callable, Set

import pytest

from rookery.base.types import TopicPartition
from rookery.replication.pending import Pending, Waiter

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class ManualTimer:
    def __init__(self, delay: float, callback: Callable[[], object]) -> None:
        self.delay = delay
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    def __init__(self) -> None:
        self.ready: list[Callable[[], object]] = []
        self.timers: list[ManualTimer] = []

    def call_soon(self, callback: Callable[[], object], /) -> object:
        self.ready.append(callback)
        return None

    def call_later(self, delay: float, callback: Callable[[], object], /) -> ManualTimer:
        timer = ManualTimer(delay, callback)
        self.timers.append(timer)
        return timer

    def turn(self) -> int:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()
        return len(ready)

    def fire_timers(self) -> None:
        for timer in self.timers:
            if not timer.cancelled:
                timer.callback()
        self.timers.clear()


class Recorder:
    """The two callbacks of a waiter, with a record of their calls."""

    def __init__(self, *, completes_after: int) -> None:
        self.attempts: list[set[TopicPartition]] = []
        self.expired = 0
        self._completes_after = completes_after

    def waiter(self, *partitions: TopicPartition) -> Waiter:
        return Waiter(partitions, attempt=self._attempt, expire=self._expire)

    def _attempt(self, changed: Set[TopicPartition]) -> bool:
        self.attempts.append(set(changed))
        return len(self.attempts) >= self._completes_after

    def _expire(self) -> None:
        self.expired += 1


def test_wakes_of_one_turn_are_one_attempt() -> None:
    loop = ManualLoop()
    pending = Pending(loop)
    recorder = Recorder(completes_after=1)
    pending.park(recorder.waiter(A, B), timeout_seconds=5)
    for _ in range(3):
        pending.wake(A)
        pending.wake(B)
    assert recorder.attempts == []
    assert loop.turn() == 1
    assert recorder.attempts == [{A, B}]
    assert len(pending) == 0
    assert [timer.cancelled for timer in loop.timers] == [True]


def test_a_request_stays_parked_after_an_unsuccessful_attempt() -> None:
    loop = ManualLoop()
    pending = Pending(loop)
    recorder = Recorder(completes_after=2)
    pending.park(recorder.waiter(A, B), timeout_seconds=5)
    pending.wake(A)
    loop.turn()
    assert len(pending) == 1
    pending.wake(B)
    loop.turn()
    assert recorder.attempts == [{A}, {B}]
    assert len(pending) == 0


def test_deadline_completes_once() -> None:
    loop = ManualLoop()
    pending = Pending(loop)
    recorder = Recorder(completes_after=99)
    pending.park(recorder.waiter(A), timeout_seconds=0.5)
    assert [timer.delay for timer in loop.timers] == [0.5]
    pending.wake(A)
    loop.fire_timers()
    loop.turn()
    assert recorder.expired == 1
    assert recorder.attempts == []
    assert len(pending) == 0


def test_wake_without_waiters_schedules_nothing() -> None:
    loop = ManualLoop()
    Pending(loop).wake(A)
    assert loop.ready == []


def test_a_cancelled_waiter_is_removed() -> None:
    loop = ManualLoop()
    pending = Pending(loop)
    recorder = Recorder(completes_after=1)
    waiter = recorder.waiter(A)
    pending.park(waiter, timeout_seconds=5)
    pending.wake(A)
    waiter.cancel()
    waiter.cancel()
    loop.turn()
    loop.fire_timers()
    assert (recorder.attempts, recorder.expired) == ([], 0)


def test_a_waiter_may_park_another_one_from_its_attempt() -> None:
    loop = ManualLoop()
    pending = Pending(loop)
    second = Recorder(completes_after=1)

    def attempt(changed: Set[TopicPartition]) -> bool:
        pending.park(second.waiter(A), timeout_seconds=1)
        pending.wake(A)
        return True

    pending.park(Waiter((A,), attempt=attempt, expire=lambda: None), timeout_seconds=1)
    pending.wake(A)
    loop.turn()
    assert second.attempts == []
    loop.turn()
    assert second.attempts == [{A}]


def test_a_waiter_that_fails_does_not_hold_up_others() -> None:
    loop = ManualLoop()
    pending = Pending(loop)

    def fail(_: Set[TopicPartition]) -> bool:
        raise RuntimeError("a bug")

    broken, other = Waiter([A], attempt=fail, expire=lambda: None), Recorder(completes_after=1)
    pending.park(broken, timeout_seconds=1)
    pending.park(other.waiter(A), timeout_seconds=1)
    pending.wake(A)
    with pytest.raises(ExceptionGroup, match="parked requests failed"):
        loop.turn()
    assert other.attempts == [{A}]
    assert len(pending) == 0
