"""Checks of partitions, replicas and leaders. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator

from rookery.base.types import NodeId
from rookery.doctor.findings import Check, Seen, Severity, some
from rookery.doctor.snapshot import ClusterSnapshot, SeenPartition, SeenTopic

_MIN_ISR = "min.insync.replicas"
# A share that is so much larger than the mean counts as skew, from this many on.
_SKEW_FACTOR = 1.5
_SKEW_COUNT_MIN = 10
_MOVED_LEADERS = 0.1
_REPLICAS_MAX = 4000
_HOT_FACTOR = 3
_HOT_BYTES_MIN = 100_000_000


def offline(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    yield from _by_topic(
        snapshot,
        lambda topic, each: each.leader not in snapshot.live,
        "no leader: {}; neither reads nor writes",
        "rookery topics describe {topic} --unavailable",
        "then start the brokers that have its replicas",
    )


def under_min_isr(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    # A minimum that the replicas can never reach has its own check.
    yield from _by_topic(
        snapshot,
        lambda topic, each: (
            each.leader in snapshot.live and len(each.in_sync) < min(topic.number(_MIN_ISR) or 0, len(each.replicas))
        ),
        "fewer replicas in sync than min.insync.replicas: {}",
        "rookery topics describe {topic} --under-min-isr",
        "then start the brokers that are missing",
    )


def under_replicated(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    yield from _by_topic(
        snapshot,
        lambda topic, each: each.leader in snapshot.live and len(each.in_sync) < len(each.replicas),
        "replicas that are not in sync: {}",
        "rookery topics describe {topic} --under-replicated",
        "then start the brokers that are missing",
    )


def _by_topic(
    snapshot: ClusterSnapshot,
    applies: Callable[[SeenTopic, SeenPartition], bool],
    text: str,
    command: str,
    advice: str,
) -> Iterator[Seen]:
    for topic in snapshot.topics:
        found = [each.partition for each in topic.partitions if applies(topic, each)]
        if found:
            yield Seen(
                subject=f"topic {topic.name}",
                text=text.format(some(found)),
                command=command.format(topic=topic.name),
                advice=advice,
            )


def min_isr_above_replicas(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.topics:
        minimum = topic.number(_MIN_ISR)
        if minimum is not None and topic.partitions and minimum > topic.replication:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"min.insync.replicas={minimum}, but {topic.replication} replica(s)",
                command=f"rookery topics alter {topic.name} --set {_MIN_ISR}={max(1, topic.replication - 1)}",
            )


def min_isr_equals_replicas(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.topics:
        if topic.replication > 1 and topic.number(_MIN_ISR) == topic.replication:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"min.insync.replicas={topic.replication} with {topic.replication} replicas",
                command=f"rookery topics alter {topic.name} --set {_MIN_ISR}={topic.replication - 1}",
            )


def min_isr_one(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.user_topics:
        if topic.replication >= 3 and topic.number(_MIN_ISR) == 1:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"min.insync.replicas=1 with {topic.replication} replicas",
                command=f"rookery topics alter {topic.name} --set {_MIN_ISR}=2",
            )


def single_replica(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    if len(snapshot.live) < 2:
        return
    wanted = min(3, len(snapshot.live))
    for topic in snapshot.topics:
        if topic.replication == 1:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"1 replica, in a cluster of {len(snapshot.live)} brokers",
                command=f"rookery reassign execute --topics {topic.name} --replication-factor {wanted}",
            )


def unclean_election(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for topic in snapshot.topics:
        if topic.replication > 1 and topic.configs.get("unclean.leader.election.enable") == "true":
            yield Seen(
                subject=f"topic {topic.name}",
                text="unclean.leader.election.enable=true",
                command=f"rookery topics alter {topic.name} --set unclean.leader.election.enable=false",
            )


def fenced_brokers(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for broker in snapshot.brokers:
        if broker.is_fenced:
            yield Seen(
                subject=f"broker {broker.node_id}",
                text=f"{broker.address} is registered, and sends no heartbeats",
                command=f"rookery brokers describe {broker.node_id}",
                advice=f"then start it, or rookery brokers unregister {broker.node_id} if it will not return",
            )


def leader_skew(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    yield from _skew(
        snapshot, Counter(each.leader for each in snapshot.partitions), "leaders", "rookery partitions elect --all"
    )


def replica_skew(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    counts = Counter(node for each in snapshot.partitions for node in each.replicas)
    yield from _skew(snapshot, counts, "replicas", "rookery reassign execute")


def _skew(snapshot: ClusterSnapshot, counts: Counter[NodeId], what: str, command: str) -> Iterator[Seen]:
    live = snapshot.live
    if len(live) < 2:
        return
    mean = sum(counts[node] for node in live) / len(live)
    for node in sorted(live):
        if counts[node] > mean * _SKEW_FACTOR and counts[node] - mean >= _SKEW_COUNT_MIN:
            yield Seen(subject=f"broker {node}", text=f"{counts[node]} {what}, {mean:.0f} on average", command=command)


def moved_leaders(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    led = [each for each in snapshot.partitions if each.leader in snapshot.live and each.replicas]
    moved = [each for each in led if each.leader != each.replicas[0] and each.replicas[0] in each.in_sync]
    if len(moved) > max(1, _MOVED_LEADERS * len(led)):
        yield Seen(
            subject="cluster",
            text=f"{len(moved)} of {len(led)} partitions are not led by their preferred replica, though it is in sync: "
            f"{some(each.partition for each in moved)}",
            command="rookery partitions elect --all",
        )


def single_rack(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    racks = {broker.node_id: broker.rack for broker in snapshot.brokers}
    if len(set(racks.values()) - {None}) < 2:
        return
    for topic in snapshot.topics:
        found = [
            each.partition
            for each in topic.partitions
            if len(each.replicas) > 1 and len({racks.get(node) for node in each.replicas}) == 1
        ]
        if found:
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"all replicas are in one rack: {some(found)}",
                command=f"rookery reassign execute --topics {topic.name}",
            )


def too_many_replicas(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    counts = Counter(node for each in snapshot.partitions for node in each.replicas)
    for node, count in sorted(counts.items()):
        if count > _REPLICAS_MAX:
            yield Seen(
                subject=f"broker {node}",
                text=f"{count:,} replicas; up to {_REPLICAS_MAX:,} are known to work well",
                command="rookery reassign execute",
                advice="after adding brokers, or deleting topics",
            )


def hot_partitions(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    sizes: dict[object, int] = {}
    for directory in snapshot.log_dirs:
        for tp, size_bytes in directory.partition_sizes.items():
            sizes[tp] = max(sizes.get(tp, 0), size_bytes)
    for topic in snapshot.user_topics:
        of_topic = {each.partition: sizes[each.partition] for each in topic.partitions if each.partition in sizes}
        mean = sum(of_topic.values()) / max(1, len(of_topic))
        hot = [tp for tp, size_bytes in of_topic.items() if size_bytes > max(_HOT_FACTOR * mean, _HOT_BYTES_MIN)]
        if hot:
            largest = max(hot, key=lambda tp: of_topic[tp])
            yield Seen(
                subject=f"topic {topic.name}",
                text=f"{largest} has {of_topic[largest] / 1e6:,.0f} MB, {mean / 1e6:,.0f} MB on average: {some(hot)}",
                command=f"rookery consume {topic.name} --partition {largest.partition} --count 100 --json",
                advice="which keys are frequent? Choose others, or let the producer spread them",
            )


CHECKS = (
    Check(
        id="offline-partitions",
        severity=Severity.ERROR,
        title="partitions without a leader",
        why="They cannot be read or written until a broker with an in-sync replica is back.",
        run=offline,
    ),
    Check(
        id="under-min-isr",
        severity=Severity.ERROR,
        title="fewer replicas in sync than min.insync.replicas",
        why="Producers with acks=all are refused (NOT_ENOUGH_REPLICAS).",
        run=under_min_isr,
    ),
    Check(
        id="under-replicated",
        severity=Severity.WARNING,
        title="replicas that are not in sync",
        why="The next failure may take the partition offline, or below min.insync.replicas.",
        run=under_replicated,
    ),
    Check(
        id="min-isr-above-replicas",
        severity=Severity.ERROR,
        title="min.insync.replicas larger than the number of replicas",
        why="Producers with acks=all can never write.",
        run=min_isr_above_replicas,
    ),
    Check(
        id="min-isr-equals-replicas",
        severity=Severity.WARNING,
        title="min.insync.replicas equal to the number of replicas",
        why="The loss of any one broker, or its restart, stops producers with acks=all.",
        run=min_isr_equals_replicas,
    ),
    Check(
        id="min-isr-one",
        severity=Severity.WARNING,
        title="min.insync.replicas=1 with three replicas or more",
        why="acks=all may acknowledge a record that only the leader has; it is lost with the leader.",
        run=min_isr_one,
    ),
    Check(
        id="single-replica",
        severity=Severity.WARNING,
        title="one replica in a cluster",
        why="The partition is offline while its broker is, and lost with its disk.",
        run=single_replica,
    ),
    Check(
        id="unclean-election",
        severity=Severity.WARNING,
        title="unclean leader election is on",
        why="A replica that is behind may become the leader: acknowledged records are lost without an error.",
        run=unclean_election,
    ),
    Check(
        id="fenced-brokers",
        severity=Severity.ERROR,
        title="registered brokers that are not alive",
        why="Their replicas are not in sync, and cannot take over.",
        run=fenced_brokers,
    ),
    Check(
        id="leader-skew",
        severity=Severity.WARNING,
        title="a broker leads many more partitions than others",
        why="Leaders do most of the work: this broker is the first to be overloaded.",
        run=leader_skew,
    ),
    Check(
        id="replica-skew",
        severity=Severity.WARNING,
        title="a broker has many more replicas than others",
        why="Its disk and network fill first.",
        run=replica_skew,
    ),
    Check(
        id="moved-leaders",
        severity=Severity.WARNING,
        title="more than 10 % of the leaders are not the preferred ones",
        why="After restarts, leaders stay where they moved to, and the load is uneven.",
        run=moved_leaders,
    ),
    Check(
        id="single-rack",
        severity=Severity.WARNING,
        title="all replicas of a partition in one rack",
        why="The partition is offline if that rack is, though there are others.",
        run=single_rack,
    ),
    Check(
        id="too-many-replicas",
        severity=Severity.WARNING,
        title="more than 4,000 replicas on a broker",
        why="Starts, stops and elections take long, and memory is used for each.",
        run=too_many_replicas,
    ),
    Check(
        id="hot-partitions",
        severity=Severity.WARNING,
        title="a partition three times as large as its topic's average",
        why="Keys are unevenly spread: one consumer and one broker get most of the work. More partitions do not help.",
        run=hot_partitions,
    ),
)
