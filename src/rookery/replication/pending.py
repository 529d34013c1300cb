"""Requests that wait: acknowledgements for replicas or an fsync, and fetches for data (a long poll).

A waiter names the partitions whose change may complete it, and a deadline. A change marks its partition; all marks of
one turn of the event loop are worked off together at the turn's end, so that a request which appends to a hundred
partitions, or a hundred appends to one, wake a waiter once.

Pure: the loop's `call_soon` and `call_later` are injected. Waiters report by callback; who wants a future makes one.
"""

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from rookery.base.types import TopicPartition


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Waiter:
    """One parked request.

    `attempt(changed)` is called with the partitions that changed; it completes the request and answers True, or False
    to go on waiting. `expire()` completes the request at its deadline. Exactly one of the two completes it.
    """

    __slots__ = ("_parked", "_timer", "attempt", "expire", "partitions")

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        *,
        attempt: Callable[[Set[TopicPartition]], bool],
        expire: Callable[[], None],
    ) -> None:
        self.partitions = tuple(partitions)
        self.attempt = attempt
        self.expire = expire
        self._timer: Timer | None = None
        self._parked: Pending | None = None

    def cancel(self) -> None:
        """Forget the request, because its connection is gone. No error if it is complete already."""
        if self._parked is not None:
            self._parked.remove(self)


class Pending:
    """The parked requests of one broker, by partition."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiters: dict[TopicPartition, dict[Waiter, None]] = {}
        # In the order in which they changed: who is answered first does not depend on how sets are iterated.
        self._changed: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def park(self, waiter: Waiter, *, timeout_seconds: float) -> None:
        for partition in waiter.partitions:
            self._waiters.setdefault(partition, {})[waiter] = None
        waiter._parked = self
        waiter._timer = self._timers.call_later(timeout_seconds, lambda: self._expire(waiter))

    def wake(self, partition: TopicPartition) -> None:
        """Something changed here: an append, the high watermark, the leadership, a deletion, a failed disk."""
        if partition in self._waiters:
            if not self._changed:
                self._timers.call_soon(self._attempt_changed)
            self._changed[partition] = None

    def remove(self, waiter: Waiter) -> None:
        waiter._parked = None
        if waiter._timer is not None:
            waiter._timer.cancel()
        for partition in waiter.partitions:
            waiters = self._waiters.get(partition)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[partition]

    def _attempt_changed(self) -> None:
        changed, self._changed = self._changed, {}
        candidates = {waiter: None for partition in changed for waiter in self._waiters.get(partition, ())}
        failures: list[Exception] = []
        for waiter in candidates:
            try:
                if waiter._parked is not None and waiter.attempt(changed.keys()):
                    self.remove(waiter)
            except Exception as error:
                # A bug; those who wait beside it shall not wait for ever.
                self.remove(waiter)
                failures.append(error)
        if failures:
            raise ExceptionGroup("parked requests failed", failures)

    def _expire(self, waiter: Waiter) -> None:
        self.remove(waiter)
        waiter.expire()
