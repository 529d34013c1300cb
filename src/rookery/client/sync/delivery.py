"""The futures of records that threads send through the clients' thread.

There is one for every record, so they must be cheap. All futures of a producer share one condition: that causes some
spurious wake-ups and makes everything else cheaper. It is notified only while a thread waits. `set_result` or
`set_exception` is called once, on the clients' thread.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, RLock

from rookery.client.produce.records import RecordMetadata

_PENDING = "PENDING"
_FINISHED = "FINISHED"


class SharedCondition:
    """The condition of all futures of a producer. `lock` guards the futures and the number of waiting threads."""

    __slots__ = ("condition", "lock", "waiter_count")

    def __init__(self) -> None:
        self.lock = RLock()
        self.condition = Condition(self.lock)
        self.waiter_count = 0


class Delivery(Future[RecordMetadata]):
    """The future of a record's metadata; raises ApiError if it was not written. It cannot be cancelled."""

    def __init__(self, shared: SharedCondition) -> None:
        # Like `Future.__init__`, but without a condition for each future.
        self._shared = shared
        self._condition = shared.condition
        self._state = _PENDING
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[RecordMetadata]], object]] = []

    def cancel(self) -> bool:
        """Return False: a record that was sent cannot be cancelled."""
        return False

    def set_result(self, result: RecordMetadata) -> None:
        assert self._state == _PENDING, "completed once"
        with self._shared.lock:
            self._result = result
            self._state = _FINISHED
            for waiter in self._waiters:
                waiter.add_result(self)
            if self._shared.waiter_count:
                self._condition.notify_all()
        if self._done_callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]  # not in the stubs of Future

    def set_exception(self, exception: BaseException | None) -> None:
        """Failures are rare: this need not be cheap."""
        assert self._state == _PENDING, "completed once"
        super().set_exception(exception)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Wait until this future is done. Other futures notify the condition, too, so `done` is checked each time."""
        with self._shared.lock:
            self._shared.waiter_count += 1
            try:
                if not self._condition.wait_for(self.done, timeout):
                    raise TimeoutError
            finally:
                self._shared.waiter_count -= 1
