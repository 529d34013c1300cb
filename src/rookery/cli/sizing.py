"""How many partitions, brokers, disks, network and memory a workload needs: the usual formulas, each with its reason.

Pure. Every number of the result is one `Line` with the formula that gave it. Bytes are decimal where users give them.
"""

from collections.abc import Iterator
from math import ceil

from rookery.base.errors import ConfigError
from rookery.base.values import value_class

# The default of `segment.bytes`: retention deletes whole segments, so each replica holds about one more.
SEGMENT_BYTES = 1024**3
# A broker with more replicas than this takes long to start, to stop and to elect leaders.
REPLICAS_PER_BROKER_MAX = 4000
# What one partition is assumed to take and to give if it is neither measured nor given.
PARTITION_BYTES_S = 10_000_000.0
_BROKERS_MAX = 10_000
_MEGA = 1_000_000


@value_class(kw_only=True)
class Workload:
    """`rate_bytes_s` is the peak of what producers send, as sent: after compression.

    `average_bytes_s` decides about storage; None: the peak. `read_by` groups read everything, the largest with
    `group_size` members. `headroom` is the part of disk and network to leave free. `survives` is how many brokers may
    be missing at the peak. `lag_s` is how far the slowest group is usually behind: that much is served from memory.
    """

    rate_bytes_s: float
    average_bytes_s: float | None = None
    retention_s: float
    replication: int = 3
    read_by: int = 1
    group_size: int = 1
    partition_bytes_s: float = PARTITION_BYTES_S
    consumer_bytes_s: float = PARTITION_BYTES_S
    is_measured: bool = False
    disk_bytes: float
    network_bytes_s: float
    headroom: float = 0.3
    survives: int = 1
    lag_s: float = 30.0


@value_class(kw_only=True)
class Line:
    """One result: `value` is for programs, `text` for people, and `reason` has the formula with its numbers."""

    key: str
    name: str
    value: float
    text: str
    reason: str


@value_class(kw_only=True)
class Sizing:
    partitions: int
    brokers: int
    min_insync_replicas: int
    bottleneck: str
    lines: tuple[Line, ...]


def check_workload(workload: Workload) -> None:
    """Raise ConfigError with a sentence if `workload` makes no sense."""
    positive = {
        "the rate": workload.rate_bytes_s,
        "the retention": workload.retention_s,
        "the rate of a partition": workload.partition_bytes_s,
        "the rate of a consumer": workload.consumer_bytes_s,
        "the disk of a broker": workload.disk_bytes,
        "the network of a broker": workload.network_bytes_s,
    }
    for name, value in positive.items():
        if not value > 0:
            raise ConfigError(f"{name} must be larger than 0")
    if workload.average_bytes_s is not None and not 0 < workload.average_bytes_s <= workload.rate_bytes_s:
        raise ConfigError("the average rate must be larger than 0, and not larger than the peak")
    if not 0 <= workload.headroom < 1:
        raise ConfigError("the headroom must be from 0 to below 1, for example 0.3 for 30 %")
    if workload.replication < 1 or workload.read_by < 0 or workload.group_size < 1 or workload.survives < 0:
        raise ConfigError("replicas and group members must be at least 1; groups and lost brokers not negative")
    if workload.survives >= workload.replication:
        raise ConfigError(
            f"{workload.replication} replica(s) do not survive the loss of {workload.survives} broker(s): "
            f"give --replication {workload.survives + 1} or more"
        )
    if _usable_disk(workload) <= SEGMENT_BYTES * workload.replication:
        raise ConfigError("the disk of a broker is too small: it must hold more than one segment for each replica")


def size(workload: Workload) -> Sizing:
    """Return what `workload` needs. Raises ConfigError for input that makes no sense."""
    check_workload(workload)
    fewest = max(
        ceil(workload.rate_bytes_s / workload.partition_bytes_s),
        ceil(workload.rate_bytes_s / workload.consumer_bytes_s),
        workload.group_size,
    )
    brokers = workload.replication
    while True:
        partitions = ceil(fewest / brokers) * brokers
        needs = _broker_needs(workload, partitions)
        needed = max(needs.values())
        if needed <= brokers:
            break
        # More brokers may mean more partitions, and these more storage.
        brokers = needed
        if brokers > _BROKERS_MAX:
            raise ConfigError(f"this needs more than {_BROKERS_MAX:,} brokers: split it over several clusters")
    bottleneck = max(needs, key=lambda name: needs[name])
    min_isr = max(1, workload.replication - max(1, workload.survives))
    lines = tuple(_lines(workload, fewest, partitions, brokers, needs))
    return Sizing(
        partitions=partitions, brokers=brokers, min_insync_replicas=min_isr, bottleneck=bottleneck, lines=lines
    )


def storage_bytes(workload: Workload, partitions: int) -> float:
    """Return the bytes on all disks: the data of the retention time, and a segment for each replica."""
    kept = (workload.average_bytes_s or workload.rate_bytes_s) * workload.retention_s
    return (kept + partitions * SEGMENT_BYTES) * workload.replication


def network_in_bytes_s(workload: Workload) -> float:
    return workload.rate_bytes_s * workload.replication


def network_out_bytes_s(workload: Workload) -> float:
    return workload.rate_bytes_s * (workload.replication - 1 + workload.read_by)


def _usable_disk(workload: Workload) -> float:
    return workload.disk_bytes * (1 - workload.headroom)


def _usable_network(workload: Workload) -> float:
    return workload.network_bytes_s * (1 - workload.headroom)


def _broker_needs(workload: Workload, partitions: int) -> dict[str, int]:
    """Return how many brokers each resource needs. The brokers that may be missing come on top of those at work."""
    network = max(network_in_bytes_s(workload), network_out_bytes_s(workload))
    return {
        "replication": workload.replication,
        "storage": ceil(storage_bytes(workload, partitions) / _usable_disk(workload)),
        "network": ceil(network / _usable_network(workload)) + workload.survives,
        "replicas": ceil(partitions * workload.replication / REPLICAS_PER_BROKER_MAX) + workload.survives,
    }


def _lines(workload: Workload, fewest: int, partitions: int, brokers: int, needs: dict[str, int]) -> Iterator[Line]:
    yield from _partition_lines(workload, fewest, partitions, brokers)
    yield from _storage_lines(workload, partitions, brokers)
    yield from _network_lines(workload, brokers)
    yield Line(
        key="brokers",
        name="brokers",
        value=brokers,
        text=f"{brokers:,}",
        reason=f"the most of: {', '.join(f'{name} {count:,}' for name, count in needs.items())}",
    )
    at_work = max(1, brokers - workload.survives)
    cache = workload.rate_bytes_s * workload.replication * workload.lag_s / at_work
    yield Line(
        key="page_cache_bytes_per_broker",
        name="page cache of a broker",
        value=cache,
        text=bytes_text(cache),
        reason=f"rate x replicas x {workload.lag_s:g} s of lag / {at_work} brokers at work: "
        "consumers that lag less read from memory, not from the disk",
    )


def _partition_lines(workload: Workload, fewest: int, partitions: int, brokers: int) -> Iterator[Line]:
    source = "measured" if workload.is_measured else "assumed or given"
    for key, name, rate in (
        ("partitions_by_producers", "partitions for producers", workload.partition_bytes_s),
        ("partitions_by_consumers", "partitions for consumers", workload.consumer_bytes_s),
    ):
        count = ceil(workload.rate_bytes_s / rate)
        yield Line(
            key=key,
            name=name,
            value=count,
            text=f"{count:,}",
            reason=f"{_rate_text(workload.rate_bytes_s)} / {_rate_text(rate)} of one partition ({source})",
        )
    yield Line(
        key="partitions",
        name="partitions",
        value=partitions,
        text=f"{partitions:,}",
        reason=f"the larger, and at least the {workload.group_size} member(s) of the largest group: {fewest:,}; "
        f"rounded up to a multiple of {brokers} brokers, for equal numbers of leaders",
    )


def _storage_lines(workload: Workload, partitions: int, brokers: int) -> Iterator[Line]:
    total = storage_bytes(workload, partitions)
    average = workload.average_bytes_s or workload.rate_bytes_s
    yield Line(
        key="storage_bytes",
        name="storage",
        value=total,
        text=bytes_text(total),
        reason=f"({_rate_text(average)} x {workload.retention_s:,.0f} s + {partitions:,} partitions x 1 GiB segment) "
        f"x {workload.replication} replicas",
    )
    disk = total / brokers / (1 - workload.headroom)
    yield Line(
        key="disk_bytes_per_broker",
        name="disk of a broker",
        value=disk,
        text=bytes_text(disk),
        reason=f"storage / {brokers} brokers, with {workload.headroom:.0%} left free",
    )
    refill_s = total / brokers / _usable_network(workload)
    yield Line(
        key="refill_seconds",
        name="filling a lost broker again",
        value=refill_s,
        text=f"{refill_s / 3600:,.1f} h",
        reason="storage of a broker / its usable network, with nothing else on it: the shortest possible time",
    )


def _network_lines(workload: Workload, brokers: int) -> Iterator[Line]:
    at_work = max(1, brokers - workload.survives)
    for key, name, total, formula in (
        ("network_in_bytes_s", "network in", network_in_bytes_s(workload), f"x {workload.replication} replicas"),
        (
            "network_out_bytes_s",
            "network out",
            network_out_bytes_s(workload),
            f"x ({workload.replication - 1} followers + {workload.read_by} group(s) that read it)",
        ),
    ):
        yield Line(
            key=key,
            name=name,
            value=total,
            text=_rate_text(total),
            reason=f"{_rate_text(workload.rate_bytes_s)} {formula}; {_rate_text(total / at_work)} for each of "
            f"{at_work} broker(s) with {workload.survives} missing, of {_rate_text(workload.network_bytes_s)}",
        )


def bytes_text(size_bytes: float) -> str:
    """Return a size in decimal units: `1.3 TB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} PB"


def _rate_text(bytes_s: float) -> str:
    return f"{bytes_s / _MEGA:,.1f} MB/s"
