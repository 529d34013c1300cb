"""Waiting requests: acknowledgements that wait for replicas or an fsync, and fetches that wait for data (a long poll).

A waiter names the partitions whose change may complete it, and a deadline. A change marks its partition. All marks of
one turn of the event loop are processed together at the beginning of the next one: a request that appends to a hundred
partitions, or a hundred appends to one partition, wake a waiter once.

Pure: the loop's `call_soon` and `call_later` are injected. Waiters complete by callback; a caller that needs a future
creates one.
"""

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from rookery.base.types import TopicPartition


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of an event loop that `Pending` uses."""

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Waiter:
    """One parked request.

    `attempt(changed)` is called with the partitions that changed. It either completes the request and returns True, or
    returns False, and the request stays parked. `expire()` completes the request at its deadline. Exactly one of the
    two completes it.
    """

    __slots__ = ("_pending", "_timer", "attempt", "expire", "partitions")

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
        # None unless the request is parked.
        self._pending: Pending | None = None

    def cancel(self) -> None:
        """Drop the request because its connection was closed. Does nothing if the request is already complete."""
        if self._pending is not None:
            self._pending.remove(self)


class Pending:
    """The parked requests of one broker, by partition."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiters: dict[TopicPartition, dict[Waiter, None]] = {}
        # An ordered set: with a `set`, the order of the responses would depend on string hashes, and a simulated run
        # could not be repeated.
        self._changed: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def park(self, waiter: Waiter, *, timeout_seconds: float) -> None:
        """Keep a request until an attempt completes it, it is cancelled, or its time has passed."""
        for partition in waiter.partitions:
            self._waiters.setdefault(partition, {})[waiter] = None
        waiter._pending = self
        waiter._timer = self._timers.call_later(timeout_seconds, lambda: self._expire(waiter))

    def wake(self, partition: TopicPartition) -> None:
        """Mark a partition as changed: by an append, a new high watermark or leader, a deletion, or a disk failure."""
        if partition in self._waiters:
            if not self._changed:
                self._timers.call_soon(self._attempt_changed)
            self._changed[partition] = None

    def remove(self, waiter: Waiter) -> None:
        waiter._pending = None
        if waiter._timer is not None:
            waiter._timer.cancel()
        for partition in waiter.partitions:
            waiters = self._waiters.get(partition)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[partition]

    def _attempt_changed(self) -> None:
        # Swapped before the attempts: an attempt may change partitions itself, and that schedules the next call. If the
        # marks were cleared afterwards, these changes would be lost and their waiters would time out.
        changed, self._changed = self._changed, {}
        candidates = {waiter: None for partition in changed for waiter in self._waiters.get(partition, ())}
        failures: list[Exception] = []
        for waiter in candidates:
            try:
                # An earlier attempt of this turn may have cancelled the waiter; it must not complete after that.
                if waiter._pending is not None and waiter.attempt(changed.keys()):
                    self.remove(waiter)
            except Exception as error:
                # A bug in one waiter must not end the loop: the other waiters' marks are gone and they would time out.
                self.remove(waiter)
                failures.append(error)
        if failures:
            raise ExceptionGroup("parked requests failed", failures)

    def _expire(self, waiter: Waiter) -> None:
        self.remove(waiter)
        waiter.expire()
