"""Charges requests to the quotas of their clients, and throttles clients that exceed them.

The dispatcher makes a `Usage` for a request if there are quotas at all. The response is never delayed: it has the time
for which the client is throttled, and the connection reads no further request for that time (`net.connection`), so that
clients that ignore the time are throttled as well.

A client is charged for the bytes of a Produce request, the bytes of a Fetch response, the partitions that a request
creates or deletes, and the processor time of any request on the event loop: its handler's, and that of its coroutines,
measured step by step. The work of other threads, and of the sockets, is not measured.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from rookery.base.clock import Clock, SystemClock, thread_time
from rookery.net.connection import ConnectionInfo
from rookery.quotas.buckets import TokenBucket
from rookery.quotas.clients import ClientQuotas

_Result = TypeVar("_Result")
_PERCENT: Final = 100.0


class Throttling:
    """The quotas of a node's clients, and the clocks of their charges. `cpu_time` is that of the calling thread."""

    def __init__(
        self,
        quotas: ClientQuotas | None = None,
        clock: Clock | None = None,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        self.quotas = quotas or ClientQuotas()
        self.clock = clock or SystemClock()
        self.cpu_time = cpu_time

    def measure(self, connection: ConnectionInfo, client_id: str | None, request_bytes: int) -> "Usage":
        """Begin to measure a request."""
        return Usage(self, connection, client_id or "", request_bytes)


class Usage:
    """What one request uses of its client's quotas. One of the `charge` methods is called for its response."""

    __slots__ = ("_client_id", "_connection", "_mutations", "_request_bytes", "_running_s", "_spent_s", "_throttling")

    def __init__(self, throttling: Throttling, connection: ConnectionInfo, client_id: str, request_bytes: int) -> None:
        self._throttling = throttling
        self._connection = connection
        self._client_id = client_id
        self._request_bytes = request_bytes
        self._mutations: Mutations | None = None
        self._spent_s = 0.0
        # The processor time at which the current step began, None between two steps.
        self._running_s: float | None = None
        self.resume()

    def resume(self) -> None:
        if self._throttling.quotas.request.is_active:
            self._running_s = self._throttling.cpu_time()

    def pause(self) -> None:
        if self._running_s is not None:
            self._spent_s += self._throttling.cpu_time() - self._running_s
            self._running_s = None

    def finish(self) -> None:
        """Charge the time since the response was charged: its encoding. It throttles the client's next request."""
        self.pause()
        if self._spent_s > 0:
            bucket = self._throttling.quotas.request.find(self._user, self._client_id, self._now_s)
            if bucket is not None:
                bucket.note(self._spent_s * _PERCENT, self._now_s)
            self._spent_s = 0.0

    def follow(self, awaitable: Awaitable[_Result]) -> "_Followed[_Result]":
        """Measure an awaitable, too, whenever it runs."""
        return _Followed(self, awaitable)

    def mutations(self, *, is_strict: bool) -> "Mutations":
        """Return the quota of the partitions that the request creates or deletes."""
        bucket = self._throttling.quotas.mutation.find(self._user, self._client_id, self._now_s)
        self._mutations = Mutations(bucket, self._throttling.clock, is_strict=is_strict)
        return self._mutations

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return how many bytes a Fetch may return: more than these would exceed the quota of a silent client."""
        quotas = self._throttling.quotas
        limit = quotas.fetch.limit_of(self._user, self._client_id)
        return bytes_max if limit is None else min(bytes_max, int(limit * quotas.fetch_span_s))

    def charge(self, throttle_ms: int = 0) -> int:
        """Charge the request's time; return the milliseconds for which the client is throttled, at least `throttle_ms`.

        `throttle_ms` is what another node has charged for the request.
        """
        if self._mutations is not None:
            throttle_ms = max(throttle_ms, self._mutations.throttle_ms)
        return self._throttle(max(throttle_ms, self._charge_time()))

    def charge_produce(self, *, has_response: bool = True) -> int:
        """Charge the bytes of a Produce request, and its time unless it has no response."""
        bucket = self._throttling.quotas.produce.find(self._user, self._client_id, self._now_s)
        throttle_ms = 0 if bucket is None else bucket.use(self._request_bytes, self._now_s)
        return self._throttle(max(throttle_ms, self._charge_time() if has_response else 0))

    def charge_fetch(self, size: int) -> tuple[int, bool]:
        """Charge the records of a Fetch response, `size` bytes, and the request's time.

        Returns the milliseconds for which the client is throttled, and whether the records are sent nevertheless. If
        not, they are not charged. They are if the client has used nothing: else it would never get a batch that is
        larger than its quota for all windows.
        """
        now_s, time_throttle_ms = self._now_s, self._charge_time()
        bucket = self._throttling.quotas.fetch.find(self._user, self._client_id, now_s)
        if bucket is None:
            return self._throttle(time_throttle_ms), not time_throttle_ms
        is_first = bucket.rate(now_s) <= 0
        throttle_ms = bucket.use(size, now_s)
        is_sent = not time_throttle_ms and (is_first or not throttle_ms)
        if not is_sent:
            bucket.note(-size, now_s)
        return self._throttle(max(throttle_ms, time_throttle_ms)), is_sent

    def note_fetch(self, size: int) -> None:
        """Charge the bytes of a Fetch response that are not records."""
        bucket = self._throttling.quotas.fetch.find(self._user, self._client_id, self._now_s)
        if bucket is not None:
            bucket.note(size, self._now_s)

    @property
    def _user(self) -> str:
        return self._connection.principal.name

    @property
    def _now_s(self) -> float:
        return self._throttling.clock.monotonic()

    def _charge_time(self) -> int:
        quotas = self._throttling.quotas
        if not quotas.request.is_active:
            return 0
        bucket = quotas.request.find(self._user, self._client_id, self._now_s)
        if bucket is None:
            return 0
        is_running = self._running_s is not None
        self.pause()
        throttle_ms = bucket.use(self._spent_s * _PERCENT, self._now_s)
        self._spent_s = 0.0
        if is_running:
            self.resume()
        return min(throttle_ms, quotas.request_throttle_max_ms)

    def _throttle(self, throttle_ms: int) -> int:
        if throttle_ms > 0 and (mute := self._connection.mute) is not None:
            self._connection.throttled_s = throttle_ms / 1000
            mute(throttle_ms / 1000)
        return throttle_ms


class Mutations:
    """The quota of the partitions that one request creates or deletes. `bucket` is None without a limit.

    A strict quota admits nothing more while tokens are owed; one that is not strict only throttles the client: older
    versions of the requests have no error for it.
    """

    def __init__(self, bucket: TokenBucket | None, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._clock = clock
        self._is_strict = is_strict
        self._ends_s = 0.0

    def admit(self, count: int) -> bool:
        """Take tokens for `count` partitions; return whether the request may create or delete them."""
        bucket = self._bucket
        if bucket is None:
            return True
        now_s = self._clock.monotonic()
        wait_ms = bucket.wait_ms(now_s) if self._is_strict else bucket.use(count, now_s)
        self._ends_s = now_s + wait_ms / 1000
        if not self._is_strict:
            return True
        if wait_ms:
            return False
        bucket.note(count, now_s)
        return True

    def give_back(self, count: int) -> None:
        """Return the tokens for partitions that could not be created or deleted."""
        if self._bucket is not None:
            self._bucket.note(-count, self._clock.monotonic())

    @property
    def throttle_ms(self) -> int:
        """The time for which the client is throttled, less the time that has passed since."""
        return max(0, round((self._ends_s - self._clock.monotonic()) * 1000))


class _Followed(Awaitable[_Result]):
    """An awaitable whose steps are charged to a request."""

    __slots__ = ("_awaitable", "_usage")

    def __init__(self, usage: Usage, awaitable: Awaitable[_Result]) -> None:
        self._usage = usage
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, _Result]:
        usage, steps = self._usage, self._awaitable.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            usage.resume()
            try:
                yielded = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as end:
                usage.finish()
                result: _Result = end.value
                return result
            finally:
                usage.pause()
            try:
                sent, error = (yield yielded), None
            except BaseException as raised:
                error = raised
