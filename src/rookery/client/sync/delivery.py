"""The futures of records that were handed to the clients' thread.

There is one for every record, so they are made to cost little. All futures of a producer share one condition, which
wakes up those who wait more often than need be and makes everything else cheaper; and it is notified only while
somebody waits. `set_result` and `set_exception` are called once, on the clients' thread.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, RLock

from rookery.client.produce.records import RecordMetadata

_PENDING = "PENDING"
_FINISHED = "FINISHED"


class Waiting:
    """What the futures of a producer share. `count` is how many threads wait; the lock guards it and the futures."""

    __slots__ = ("condition", "count", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        self.condition = Condition(self.lock)
        self.count = 0


class Delivery(Future[RecordMetadata]):
    """Where a record landed; raises ApiError if it was not written. A record on its way cannot be called back."""

    def __init__(self, waiting: Waiting) -> None:
        # What Future's own does, without a condition for each.
        self._waiting = waiting
        self._condition = waiting.condition
        self._state = _PENDING
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[RecordMetadata]], object]] = []

    def cancel(self) -> bool:
        """No: False."""
        return False

    def set_result(self, result: RecordMetadata) -> None:
        assert self._state == _PENDING, "settled once"
        with self._waiting.lock:
            self._result = result
            self._state = _FINISHED
            for waiter in self._waiters:
                waiter.add_result(self)
            if self._waiting.count:
                self._condition.notify_all()
        if self._done_callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]  # Future's own, which its types do not tell

    def set_exception(self, exception: BaseException | None) -> None:
        """Failures are few: this need not be cheap."""
        assert self._state == _PENDING, "settled once"
        super().set_exception(exception)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Others' deliveries notify the condition, too."""
        with self._waiting.lock:
            self._waiting.count += 1
            try:
                if not self._condition.wait_for(self.done, timeout):
                    raise TimeoutError
            finally:
                self._waiting.count -= 1
