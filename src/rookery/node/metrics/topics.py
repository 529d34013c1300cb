"""Metrics of topics and their partitions. Topics beyond a limit are shown as one: each has dozens of lines."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.errors import CorruptionError, StorageError
from rookery.base.slices import Slices
from rookery.replication.replica import Replica
from rookery.telemetry import names
from rookery.telemetry.measurements import Definition, Family, Tags, Value, single
from rookery.telemetry.traffic import TopicTraffic, Traffic

# The topic of the line that shows all topics beyond the limit.
OTHER_TOPICS: Final = "(others)"

_COUNTS: Final[tuple[tuple[Definition, str], ...]] = (
    (names.BYTES_IN, "bytes_in"),
    (names.BYTES_OUT, "bytes_out"),
    (names.MESSAGES_IN, "messages_in"),
    (names.REPLICATION_BYTES_IN, "replication_bytes_in"),
    (names.REPLICATION_BYTES_OUT, "replication_bytes_out"),
    (names.PRODUCES, "produces"),
    (names.FETCHES, "fetches"),
    (names.FAILED_PRODUCES, "failed_produces"),
    (names.FAILED_FETCHES, "failed_fetches"),
)


def traffic_families(traffic: Traffic, shown: Callable[[str], bool]) -> Iterator[Family]:
    """Return Kafka's BrokerTopicMetrics: of all topics, which has no tag, and of each that is `shown`."""
    rest = TopicTraffic()
    topics: list[tuple[Tags, TopicTraffic]] = [((), traffic.total())]
    for topic, found in traffic:
        if shown(topic):
            topics.append(((("topic", topic),), found))
        else:
            rest.add(found)
    if any(not shown(topic) for topic, _ in traffic):
        topics.append(((("topic", OTHER_TOPICS),), rest))
    for definition, name in _COUNTS:
        yield Family(definition, [(tags, getattr(found, name)) for tags, found in topics])


_LED: Final[tuple[tuple[Definition, Callable[[Replica], Value]], ...]] = (
    (names.UNDER_MIN_ISR, lambda replica: int(is_under_min(replica))),
    (names.AT_MIN_ISR, lambda replica: int(is_at_min(replica))),
    (names.REPLICAS_UNDER, lambda replica: int(is_under_replicated(replica))),
    (names.REPLICAS_COUNT, lambda replica: len(replica.state.replicas)),
    (names.IN_SYNC_COUNT, lambda replica: len(replica.state.isr)),
    (names.STABLE_OFFSET_LAG, lambda replica: _stable_lag(replica)),
    (names.EXPORTER_END, lambda replica: replica.state.high_watermark),
    (names.EXPORTER_START, lambda replica: replica.log.start_offset),
    (names.EXPORTER_IN_SYNC, lambda replica: len(replica.state.isr)),
    (names.EXPORTER_LEADER, lambda replica: replica.state.leader),
    (names.EXPORTER_PREFERRED, lambda replica: int(replica.state.replicas[:1] == (replica.state.leader,))),
    (names.EXPORTER_REPLICAS, lambda replica: len(replica.state.replicas)),
    (names.EXPORTER_UNDER, lambda replica: int(is_under_replicated(replica))),
)
_HOSTED: Final[tuple[tuple[Definition, Callable[[Replica], Value]], ...]] = (
    (names.LOG_SIZE, lambda replica: replica.log.size_bytes),
    (names.LOG_START, lambda replica: replica.log.start_offset),
    (names.LOG_END, lambda replica: replica.log.end_offset),
    (names.LOG_SEGMENTS, lambda replica: len(replica.log.segments)),
)


async def partition_families(
    replicas: Sequence[Replica], slices: Slices, shown: Callable[[str], bool]
) -> AsyncIterator[Family]:
    """Return the metrics of partitions. A broker with thousands of them serves others in between."""
    points: dict[Definition, list[tuple[Tags, Value]]] = {definition: [] for definition, _ in (*_LED, *_HOSTED)}
    async for some in slices.of(replicas, ITEMS_PER_SLICE):
        for replica in some:
            topic, index = replica.state.topic_partition
            if not shown(topic) or not replica.log.log_directory.is_online:
                continue
            tags = (("topic", topic), ("partition", str(index)))
            for definition, read in (*_HOSTED, *_LED) if replica.state.is_leader else _HOSTED:
                points[definition].append((tags, read(replica)))
    for definition, found in points.items():
        yield Family(definition, found)


def replica_families(replicas: Iterable[Replica]) -> Iterator[Family]:
    """Return the numbers of partitions by their condition."""
    hosted = list(replicas)
    led = [replica for replica in hosted if replica.state.is_leader]
    yield single(names.PARTITION_COUNT, len(hosted))
    yield single(names.LEADER_COUNT, len(led))
    yield single(names.UNDER_REPLICATED, sum(map(is_under_replicated, led)))
    yield single(names.UNDER_MIN_ISR_COUNT, sum(map(is_under_min, led)))
    yield single(names.AT_MIN_ISR_COUNT, sum(map(is_at_min, led)))
    yield single(names.OFFLINE_REPLICAS, sum(not replica.log.log_directory.is_online for replica in hosted))
    yield single(names.PRODUCER_IDS, sum(replica.log.known_producers for replica in hosted))


def is_under_replicated(replica: Replica) -> bool:
    return len(replica.state.isr) < len(replica.state.replicas)


def is_under_min(replica: Replica) -> bool:
    return not replica.has_enough_replicas


def is_at_min(replica: Replica) -> bool:
    return len(replica.state.isr) == replica.state.needed_in_sync


def _stable_lag(replica: Replica) -> int:
    try:
        return replica.state.high_watermark - replica.last_stable_offset
    except (StorageError, CorruptionError):
        return 0
