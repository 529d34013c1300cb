"""Kafka's RequestMetrics."""

from collections.abc import Callable, Iterator
from typing import Final

from rookery.base.errors import ErrorCode
from rookery.broker.request_metering import metric_name
from rookery.telemetry import names
from rookery.telemetry.histograms import Distribution
from rookery.telemetry.measurements import Definition, Family, Tags, Value
from rookery.telemetry.requests import (
    ApiStats,
    RequestStats,
    local_times,
    queue_times,
    remote_times,
    sizes,
    throttle_times,
    total_times,
)

_FETCH: Final = "Fetch"
_DISTRIBUTIONS: Final[tuple[tuple[Definition, Callable[..., Distribution]], ...]] = (
    (names.TOTAL_TIME, total_times),
    (names.QUEUE_TIME, queue_times),
    (names.LOCAL_TIME, local_times),
    (names.REMOTE_TIME, remote_times),
    (names.THROTTLE_TIME, throttle_times),
    (names.REQUEST_BYTES, sizes),
)
_SECONDS_PER_MICRO: Final = 1e-6


def request_families(stats: RequestStats) -> Iterator[Family]:
    apis = _apis(stats)
    yield Family(names.REQUESTS, list(_counts(stats)))
    yield Family(names.ERRORS, list(_errors(stats, apis)))
    for definition, measure in _DISTRIBUTIONS:
        yield Family(definition, [((("request", name),), measure(*found)) for name, found in apis.items()])
    seconds = {
        name: sum(each.immediate.sum + each.total.sum for each in found) * _SECONDS_PER_MICRO
        for name, found in apis.items()
    }
    yield Family(names.REQUEST_SECONDS, [((("request", name),), value) for name, value in seconds.items()])


def _apis(stats: RequestStats) -> dict[str, tuple[ApiStats, ...]]:
    """Return the requests by Kafka's names: fetches of consumers and followers have one each, and one together."""
    apis = {name: (found,) for name, found in stats}
    fetches = tuple(found for name, found in stats if name.startswith(_FETCH) and name != "FetchSnapshot")
    return apis | ({_FETCH: fetches} if fetches else {})


def _counts(stats: RequestStats) -> Iterator[tuple[Tags, Value]]:
    fetches: dict[int, int] = {}
    for (name, version), found in stats.versions.items():
        yield (("request", name), ("version", str(version))), found.count
        if name in (f"{_FETCH}Consumer", f"{_FETCH}Follower"):
            fetches[version] = fetches.get(version, 0) + found.count
    for version, count in fetches.items():
        yield (("request", _FETCH), ("version", str(version))), count


def _errors(stats: RequestStats, apis: dict[str, tuple[ApiStats, ...]]) -> Iterator[tuple[Tags, Value]]:
    failed: dict[str, int] = {}
    for (api_key, code), count in stats.errors.items():
        name = metric_name(api_key)
        failed[name] = failed.get(name, 0) + count
        text = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
        yield (("request", name), ("error", text)), count
    for name, found in apis.items():
        # A response may have several errors, so that this is a lower bound; Kafka counts every partition without one.
        yield (("request", name), ("error", "NONE")), max(0, sum(each.count for each in found) - failed.get(name, 0))
