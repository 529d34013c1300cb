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
from rookery.telemetry.requests import ApiStats, RequestStats, VersionStats

_API: Final = struct.Struct(">hh")
_MICROS_PER_S: Final = 1_000_000
# A request that waited less than this for its turn counts as one that did not: the loop's time is in milliseconds.
_QUEUED_MIN_S: Final = 0.002
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
        self._known: dict[tuple[int, int], tuple[VersionStats, VersionStats]] = {}

    def handle(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        began_s = self._now()
        api = _API.unpack_from(frame) if len(frame) >= _API.size else (-1, -1)
        size = len(frame)
        result = self._handle(frame, connection)
        # Only now: a request that the dispatcher rejects is not of an API that exists, and has no metrics.
        known = self._known.get(api) or self._add(*api)
        stats = known[connection.is_follower]
        stats.count += 1
        measured = stats.api
        connection.is_measured = True
        measured.sizes.record(size)
        if began_s - connection.received_s >= _QUEUED_MIN_S:
            measured.queued.record(int((began_s - connection.received_s) * _MICROS_PER_S))
        local_us = int((self._now() - began_s) * _MICROS_PER_S)
        if connection.throttled_s:
            _record_throttle(measured, connection)
        if result is None or type(result) is list:
            measured.immediate.record(local_us)
        else:
            connection.on_finished = partial(self._finish, measured, connection, began_s, local_us)
        return result

    def _finish(self, measured: ApiStats, connection: ConnectionInfo, began_s: float, local_us: int) -> None:
        if connection.throttled_s:
            _record_throttle(measured, connection)
        measured.finish(local_us, int((self._now() - began_s) * _MICROS_PER_S))

    def _add(self, api_key: int, version: int) -> tuple[VersionStats, VersionStats]:
        name = metric_name(api_key)
        if not 0 <= version <= _VERSION_MAX:
            stats = self._stats.get(name, _UNKNOWN_VERSION)
            return stats, stats
        if api_key == _FETCH:
            pair = self._stats.get(f"{name}Consumer", version), self._stats.get(f"{name}Follower", version)
        else:
            pair = (self._stats.get(name, version),) * 2
        self._known[api_key, version] = pair
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
