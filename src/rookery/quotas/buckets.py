"""What one entity has used of its quota, and the time for which it has to be throttled.

`RateBucket` measures a rate over `number` windows of `length_s` seconds, as `telemetry.sensors` does it. An entity that
was silent may therefore use about `number - 1` windows' worth at once. One that exceeds its limit is throttled for the
time in which the average falls to the limit, if nothing is used meanwhile: (rate - limit) / limit * width.

`TokenBucket` refills with `limit` tokens per second, up to `number` windows' worth. It may be overdrawn by one use.

Pure: the caller passes the time, in seconds of any monotonic clock. The limit is an attribute, since it may change.
"""

from rookery.telemetry.sensors import Sensor, Windows

# Kafka's quota.window.num and quota.window.size.seconds.
DEFAULT_WINDOWS = Windows(11, 1.0)
_THROTTLE_MAX_MS = 2**31 - 1
# For a limit of zero, which no wait satisfies.
_BLOCKED_MS = 3_600_000


class RateBucket:
    """The rate of one entity. `used_s` is the time of its last use."""

    __slots__ = ("_sensor", "limit", "used_s")

    def __init__(self, limit: float, windows: Windows) -> None:
        self.limit = limit
        self.used_s = 0.0
        self._sensor = Sensor(windows)

    def use(self, value: float, now_s: float) -> int:
        """Record a use; return the milliseconds for which the entity has to be throttled, 0 within its limit."""
        self._sensor.record(value, now_s)
        rate, width_s = self._sensor.rate_and_width(now_s)
        if rate <= self.limit:
            return 0
        return _BLOCKED_MS if self.limit <= 0 else _milliseconds((rate - self.limit) / self.limit * width_s)

    def note(self, value: float, now_s: float) -> None:
        """Record a use, or take one back (a negative `value`), without a look at the limit."""
        self._sensor.record(value, now_s)

    def rate(self, now_s: float) -> float:
        return self._sensor.rate(now_s)


class TokenBucket:
    """The tokens of one entity, full at first. `used_s` is the time of its last use."""

    __slots__ = ("_refilled_s", "_span_s", "_tokens", "limit", "used_s")

    def __init__(self, limit: float, windows: Windows) -> None:
        self.limit = limit
        self.used_s = 0.0
        self._span_s = windows.number * windows.length_s
        self._tokens: float | None = None
        self._refilled_s = 0.0

    def tokens(self, now_s: float) -> float:
        burst = self._span_s * self.limit
        before = burst if self._tokens is None else self._tokens
        self._tokens = min(burst, before + self.limit * max(now_s - self._refilled_s, 0.0))
        self._refilled_s = max(now_s, self._refilled_s)
        return self._tokens

    def use(self, value: float, now_s: float) -> int:
        """Take tokens, more than there are if need be; return the milliseconds until none is owed."""
        self.note(value, now_s)
        return self.wait_ms(now_s)

    def note(self, value: float, now_s: float) -> None:
        """Take tokens, or give some back (a negative `value`)."""
        self._tokens = min(self._span_s * self.limit, self.tokens(now_s) - value)

    def wait_ms(self, now_s: float) -> int:
        """Return the milliseconds until no token is owed, 0 if none is."""
        tokens = self.tokens(now_s)
        if tokens >= 0:
            return 0
        return _BLOCKED_MS if self.limit <= 0 else _milliseconds(-tokens / self.limit)


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), _THROTTLE_MAX_MS)
