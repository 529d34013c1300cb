"""Checks of settings, topics, disks and timestamps. Pure."""

from collections.abc import Iterator

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName
from rookery.doctor.findings import Check, Seen, Severity, some
from rookery.doctor.snapshot import ClusterSnapshot, SeenTopic

_DAY_MS = 86_400_000
_UNUSED_AFTER_MS = 30 * _DAY_MS
_CONSUMER_FETCH_BYTES = 50 * 1024 * 1024
_DISK_LOW, _DISK_VERY_LOW = 0.15, 0.05
_FUTURE_MS = 60_000
# Younger logs say too little about the rate at which a topic grows.
_AGE_MIN_MS = 3_600_000
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def auto_creation(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    found = [b.node_id for b in snapshot.brokers if b.configs.get("auto.create.topics.enable") == "true"]
    if found:
        yield Seen(
            subject=f"broker {some(found)}",
            text="auto.create.topics.enable=true",
            advice="auto.create.topics.enable=false in server.properties of each broker, and a restart",
        )


def default_replication(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    if len(snapshot.live) < 3:
        return
    found = [b.node_id for b in snapshot.brokers if b.configs.get("default.replication.factor") == "1"]
    if found:
        yield Seen(
            subject=f"broker {some(found)}",
            text=f"default.replication.factor=1, with {len(snapshot.live)} brokers",
            advice="default.replication.factor=3 in server.properties of each broker, and a restart",
        )


def internal_replication(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    wanted = min(3, len(snapshot.live))
    for topic in snapshot.topics:
        # A single replica has its own check.
        if topic.name in _INTERNAL_TOPICS and 1 < topic.replication < wanted:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"{topic.replication} replicas, in a cluster of {len(snapshot.live)} brokers",
                command=f"rookery reassign execute --topics {topic.name} --replication-factor {wanted}",
            )


def message_sizes(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    requests = _smallest(snapshot, "socket.request.max.bytes")
    for topic in snapshot.topics:
        largest = topic.number("max.message.bytes")
        if largest is None:
            continue
        if requests is not None and largest > requests:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"max.message.bytes={largest}, but brokers take requests of up to {requests} bytes only",
                command=f"rookery topics alter {topic.name} --set max.message.bytes={requests // 2}",
                severity=Severity.ERROR,
            )
        elif largest > _CONSUMER_FETCH_BYTES:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"max.message.bytes={largest}, more than consumers fetch at once ({_CONSUMER_FETCH_BYTES})",
                command=f"rookery topics alter {topic.name} --set max.message.bytes=1048588",
            )


def _smallest(snapshot: ClusterSnapshot, key: str) -> int | None:
    texts = [broker.configs.get(key) for broker in snapshot.brokers]
    return min((int(text) for text in texts if text), default=None)


def endless_retention(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.user_topics:
        is_deleting = topic.configs.get("cleanup.policy") == "delete"
        if is_deleting and topic.number("retention.ms") == -1 and topic.number("retention.bytes") == -1:
            yield Seen(
                subject=f"topic {topic.name}",
                text="retention.ms=-1 and retention.bytes=-1: nothing is ever deleted",
                command=f"rookery topics alter {topic.name} --set retention.ms=604800000",
            )


def unused_topics(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    if snapshot.lags is None:
        return
    read = {each.partition.topic for group in snapshot.lags.groups for each in group.partitions}
    for topic in snapshot.user_topics:
        if topic.name in read or not topic.partitions:
            continue
        newest = [each.newest_ms for each in topic.partitions if not each.is_empty]
        if any(at_ms is None or at_ms > snapshot.at_ms - _UNUSED_AFTER_MS for at_ms in newest):
            continue
        last_ms = max((at_ms for at_ms in newest if at_ms is not None), default=None)
        age = "no records" if last_ms is None else f"no record for {(snapshot.at_ms - last_ms) // _DAY_MS} days"
        yield Seen(
            subject=f"topic {topic.name}",
            text=f"{age}, and no group has committed an offset",
            command=f"rookery topics delete {topic.name}",
        )


def future_timestamps(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.topics:
        ahead = {
            each.partition: (each.newest_ms - snapshot.at_ms) / 1000
            for each in topic.partitions
            if each.newest_ms is not None and each.newest_ms > snapshot.at_ms + _FUTURE_MS
        }
        if ahead:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"timestamps up to {max(ahead.values()):,.0f} s ahead of this machine's clock: {some(ahead)}",
                command=f"rookery topics alter {topic.name} --set message.timestamp.after.max.ms={_FUTURE_MS}",
                advice="refuses such records; compare the clocks of producers, brokers and this machine",
            )


def failed_directories(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for directory in snapshot.log_dirs:
        if directory.error != ErrorCode.NONE:
            yield Seen(
                subject=f"broker {directory.node_id}",
                text=f"log directory {directory.path} failed: {directory.error.name}",
                command=f"rookery brokers describe {directory.node_id}",
                advice="then replace the disk and restart the broker",
            )


def disk_space(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for directory in snapshot.log_dirs:
        if directory.total_bytes <= 0 or directory.usable_bytes < 0:
            continue
        free = directory.usable_bytes / directory.total_bytes
        if free < _DISK_LOW:
            yield Seen(
                subject=f"broker {directory.node_id}",
                text=f"{directory.path}: {free:.0%} of {directory.total_bytes / 1e9:,.0f} GB free",
                command="rookery reassign execute",
                advice="after adding brokers; or shorten retention.ms of the largest topics",
                severity=Severity.ERROR if free < _DISK_VERY_LOW else Severity.WARNING,
            )


def retention_against_disk(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    topics = {topic.name: topic for topic in snapshot.topics}
    oldest = {each.partition: each.oldest_ms for each in snapshot.partitions}
    for directory in snapshot.log_dirs:
        growth: dict[TopicName, float] = {}
        for tp, size_bytes in directory.partition_sizes.items():
            topic = topics.get(tp.topic)
            if topic is not None:
                grown = _growth_bytes(topic, size_bytes, oldest.get(tp), snapshot.at_ms)
                growth[tp.topic] = growth.get(tp.topic, 0) + grown
        total = sum(growth.values())
        if 0 <= directory.usable_bytes < total:
            largest = max(growth, key=lambda name: growth[name])
            yield Seen(
                subject=f"broker {directory.node_id}",
                text=f"{directory.path}: at the present rates, {total / 1e9:,.1f} GB more are written before retention "
                f"deletes anything, and {directory.usable_bytes / 1e9:,.1f} GB are free; most by {largest}",
                command=f"rookery topics alter {largest} --set retention.ms={_shorter_ms(topics[largest])}",
                advice="half the present time; or set retention.bytes, or add disks",
            )


def _shorter_ms(topic: SeenTopic) -> int:
    return (topic.number("retention.ms") or 0) // 2


def _growth_bytes(topic: SeenTopic, size_bytes: int, oldest_ms: int | None, now_ms: int) -> float:
    """Return by how much a replica will still grow until its oldest record is as old as retention allows."""
    retention_ms = topic.number("retention.ms")
    age_ms = 0 if oldest_ms is None else now_ms - oldest_ms
    if topic.configs.get("cleanup.policy") != "delete" or retention_ms is None or retention_ms < 0:
        return 0
    if age_ms < _AGE_MIN_MS or age_ms >= retention_ms:
        return 0
    projected = size_bytes * retention_ms / age_ms
    limit = topic.number("retention.bytes")
    return (projected if limit is None or limit < 0 else min(projected, max(limit, size_bytes))) - size_bytes


CHECKS = (
    Check(
        id="auto-creation",
        severity=Severity.WARNING,
        title="topics are created by a misspelt name",
        why="A typing error in a client makes a topic with default settings, and data goes there unnoticed.",
        run=auto_creation,
    ),
    Check(
        id="default-replication",
        severity=Severity.WARNING,
        title="new topics get one replica",
        why="A topic that is created without a number of replicas is lost with one disk.",
        run=default_replication,
    ),
    Check(
        id="internal-replication",
        severity=Severity.WARNING,
        title="offsets or transactions with fewer than three replicas",
        why="Groups and transactions stop when their internal topics are offline.",
        run=internal_replication,
    ),
    Check(
        id="message-sizes",
        severity=Severity.WARNING,
        title="records larger than requests or fetches allow",
        why="Producers are refused, or consumers get one record per request and run out of memory.",
        run=message_sizes,
    ),
    Check(
        id="endless-retention",
        severity=Severity.NOTE,
        title="a topic that only grows",
        why="It fills the disk in the end.",
        run=endless_retention,
    ),
    Check(
        id="unused-topics",
        severity=Severity.NOTE,
        title="no records for 30 days, and no group",
        why="Each partition costs memory, files and time at elections.",
        run=unused_topics,
    ),
    Check(
        id="future-timestamps",
        severity=Severity.WARNING,
        title="records from the future: clocks that differ, or producers that set wrong timestamps",
        why="Retention by time does not delete a segment before its latest timestamp is old, and lag in time is wrong.",
        run=future_timestamps,
    ),
    Check(
        id="failed-directories",
        severity=Severity.ERROR,
        title="a log directory that failed",
        why="Its replicas are offline until the broker is restarted with a disk that works.",
        run=failed_directories,
    ),
    Check(
        id="disk-space",
        severity=Severity.WARNING,
        title="less than 15 % of a disk free (5 %: error)",
        why="A broker whose disk is full takes its log directory offline.",
        run=disk_space,
    ),
    Check(
        id="retention-against-disk",
        severity=Severity.WARNING,
        title="the disk will be full before retention deletes",
        why="A log that is younger than its retention grows until it is as old, at the rate of what it holds.",
        run=retention_against_disk,
    ),
)
