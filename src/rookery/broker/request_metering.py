"""Measures every request that arrives on a listener: one call around the dispatcher's, and one when a response that
waited is ready.

Without `metrics.listeners`, listeners call the dispatcher directly (`metered`). `make cost` measures what a request
costs with them; the goal is under a microsecond more, so that metrics can always be on.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from rookery.base.clock import Clock
from rookery.broker.api_table import APIS
from rookery.net.connection import ConnectionInfo, Handler, HandlerResult
from rookery.protocol.api import ApiKey
from rookery.telemetry.histograms import FINE, FINE_BITS, VALUE_MAX, bucket_of
from rookery.telemetry.requests import ApiStats, RequestStats, VersionStats

# API key and version as one number.
_API: Final = struct.Struct(">i")
_VERSION_BITS: Final = 16
_VERSION_MASK: Final = (1 << _VERSION_BITS) - 1
_NO_API: Final = -1
_MICROS_PER_S: Final = 1_000_000
# A request that waited less than this for its turn counts as one that did not: the loop's time is in milliseconds.
_QUEUED_MIN_S: Final = 0.002
# Every eighth size is recorded: sizes of one API vary little, and the sum of all is exact anyway.
_SIZES_MASK: Final = 7
_FETCH: Final = int(ApiKey.FETCH)
# Clients may send any version of ApiVersions. Unknown ones count together, so that they cannot fill the memory.
_VERSION_MAX: Final = 32
_UNKNOWN_VERSION: Final = -1


class RequestMetering:
    """A handler of requests that passes them to another one. `now` returns seconds that never decrease."""

    def __init__(self, handle: Handler, stats: RequestStats, now: Callable[[], float]) -> None:
        self._handle = handle
        self._stats = stats
        self._now = now
        # By API key and version: the numbers of clients' requests, and those of followers'. Only those of Fetch differ.
        self._known: dict[int, tuple[VersionStats, VersionStats]] = {}

    def handle(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        now = self._now
        began_s = now()
        size = len(frame)
        api = _API.unpack_from(frame)[0] if size >= _API.size else _NO_API
        result = self._handle(frame, connection)
        # Only now: a request that the dispatcher rejects is not of an API that exists, and has no metrics.
        pair = self._known.get(api) or self._add(api)
        stats = pair[connection.is_follower]
        stats.count += 1
        measured = stats.api
        measured.bytes += size
        connection.is_measured = True
        if stats.count & _SIZES_MASK == 1:
            measured.sizes.record(size)
        if began_s - connection.received_s >= _QUEUED_MIN_S:
            measured.queued.record(int((began_s - connection.received_s) * _MICROS_PER_S))
        if connection.throttled_s:
            _record_throttle(measured, connection)
        local_us = int((now() - began_s) * _MICROS_PER_S)
        if type(result) is not list and result is not None:
            connection.on_finished = partial(self._finish, measured, connection, began_s, local_us)
            return result
        # `Histogram.record` without its calls, which would cost as much as all of the above.
        times = measured.immediate
        if not (counts := times.counts):
            times.begin()
            counts = times.counts
        times.count += 1
        times.sum += local_us
        if local_us < FINE or local_us > VALUE_MAX:
            counts[bucket_of(local_us)] += 1
        else:
            shift = local_us.bit_length() - FINE_BITS - 1
            counts[(shift << FINE_BITS) + (local_us >> shift)] += 1
        return result

    def _finish(self, measured: ApiStats, connection: ConnectionInfo, began_s: float, local_us: int) -> None:
        if connection.throttled_s:
            _record_throttle(measured, connection)
        measured.finish(local_us, int((self._now() - began_s) * _MICROS_PER_S))

    def _add(self, api: int) -> tuple[VersionStats, VersionStats]:
        api_key, version = api >> _VERSION_BITS, api & _VERSION_MASK
        name = metric_name(api_key)
        if version > _VERSION_MAX:
            stats = self._stats.get(name, _UNKNOWN_VERSION)
            return stats, stats
        if api_key == _FETCH:
            pair = self._stats.get(f"{name}Consumer", version), self._stats.get(f"{name}Follower", version)
        else:
            pair = (self._stats.get(name, version),) * 2
        self._known[api] = pair
        return pair


def _record_throttle(measured: ApiStats, connection: ConnectionInfo) -> None:
    measured.throttled.record(int(connection.throttled_s * _MICROS_PER_S))
    connection.throttled_s = 0.0


def metered(handle: Handler, stats: RequestStats, clock: Clock) -> Handler:
    """Return a handler that measures requests, or `handle` itself if no metrics are served."""
    return RequestMetering(handle, stats, clock.monotonic).handle if stats.is_measured else handle


def metric_name(api_key: int) -> str:
    """Return Kafka's name of an API in metrics, such as `OffsetCommit`."""
    return APIS[ApiKey(api_key)].name
