"""How many requests arrive, how long they take, how large they are, and which errors they get: Kafka's RequestMetrics.

The time of a request has two parts: `local`, while its handler runs, and `remote`, while its response waits for other
brokers, for records or for other members. Most requests are answered by their handlers; for these one number is
recorded. Only the requests that wait have numbers of their own.

A broker with one event loop has no queue of requests. A request waits if it arrived together with others of its
connection; only waits of some milliseconds are recorded, all others count as 0.
"""

from collections.abc import Callable, Iterator
from typing import Final

from rookery.telemetry.histograms import Distribution, Histogram, distribution

_MILLIS_PER_MICRO: Final = 0.001


class ApiStats:
    """The requests of one API. All times are in microseconds."""

    __slots__ = ("bytes", "immediate", "local", "queued", "remote", "sizes", "throttled", "total")

    def __init__(self) -> None:
        # The requests that their handlers answered.
        self.immediate = Histogram()
        # The parts of the time of those that had to wait, and the whole of it.
        self.local = Histogram()
        self.remote = Histogram()
        self.total = Histogram()
        self.queued = Histogram()
        self.throttled = Histogram()
        # The sizes of some requests, and the bytes of all.
        self.sizes = Histogram()
        self.bytes = 0

    @property
    def count(self) -> int:
        return self.immediate.count + self.total.count

    def finish(self, local_us: int, total_us: int) -> None:
        """Record a request that had to wait."""
        self.local.record(local_us)
        self.remote.record(total_us - local_us)
        self.total.record(total_us)

    def rotate(self) -> None:
        for each in (
            self.immediate,
            self.local,
            self.remote,
            self.total,
            self.queued,
            self.throttled,
            self.sizes,
        ):
            each.rotate()


class VersionStats:
    """The requests of one version of an API."""

    __slots__ = ("api", "count")

    def __init__(self, api: ApiStats) -> None:
        self.api = api
        self.count = 0


def total_times(*stats: ApiStats) -> Distribution:
    """Return the times of all requests of some APIs, in milliseconds, as do the functions below."""
    return _merge(stats, lambda each: (each.immediate, each.total))


def local_times(*stats: ApiStats) -> Distribution:
    return _merge(stats, lambda each: (each.immediate, each.local))


def remote_times(*stats: ApiStats) -> Distribution:
    return _merge(stats, lambda each: (each.remote,), zeros=lambda each: each.immediate.count)


def queue_times(*stats: ApiStats) -> Distribution:
    return _merge(stats, lambda each: (each.queued,), zeros=lambda each: each.count - each.queued.count)


def throttle_times(*stats: ApiStats) -> Distribution:
    return _merge(stats, lambda each: (each.throttled,), zeros=lambda each: each.count - each.throttled.count)


def sizes(*stats: ApiStats) -> Distribution:
    found = distribution([each.sizes for each in stats])
    return found._replace(number=sum(each.count for each in stats), sum=sum(each.bytes for each in stats))


def _merge(
    stats: tuple[ApiStats, ...],
    histograms: Callable[[ApiStats], tuple[Histogram, ...]],
    zeros: Callable[[ApiStats], int] = lambda _: 0,
) -> Distribution:
    merged = [histogram for each in stats for histogram in histograms(each)]
    return distribution(merged, zeros=max(0, sum(map(zeros, stats))), scale=_MILLIS_PER_MICRO)


class RequestStats:
    """The requests of a node's listeners, by API and version, created when the first one arrives.

    Without `is_measured` no metrics are served, and requests are not measured.
    """

    def __init__(self, *, is_measured: bool = False) -> None:
        self.is_measured = is_measured
        self.apis: dict[str, ApiStats] = {}
        self.versions: dict[tuple[str, int], VersionStats] = {}
        # By API key and error code. A request may have several errors, one for each of its partitions.
        self.errors: dict[tuple[int, int], int] = {}

    def get(self, name: str, version: int) -> VersionStats:
        """Return the requests of an API; `name` is Kafka's."""
        found = self.versions.get((name, version))
        if found is None:
            api = self.apis.setdefault(name, ApiStats())
            found = self.versions[name, version] = VersionStats(api)
        return found

    def add_error(self, api_key: int, code: int) -> None:
        key = (api_key, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def rotate(self) -> None:
        for api in self.apis.values():
            api.rotate()

    def __iter__(self) -> Iterator[tuple[str, ApiStats]]:
        return iter(self.apis.items())
