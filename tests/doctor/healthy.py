"""A snapshot without faults, from which tests plant one at a time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import LogDirectory
from rookery.doctor import ClusterSnapshot
from rookery.doctor.snapshot import Mount, SeenBroker, SeenMachine, SeenPartition, SeenProcess, SeenTopic
from rookery.lag import ClusterSample, GroupSample, LagHistory, LagReport, LogSpan, Owner, PartitionSample, Unread

NOW_MS = 1_750_000_000_000
DAY_MS = 86_400_000
TOPIC_CONFIGS: Mapping[str, str | None] = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "retention.bytes": "-1",
    "retention.ms": str(7 * DAY_MS),
    "unclean.leader.election.enable": "false",
}
BROKER_CONFIGS: Mapping[str, str | None] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "socket.request.max.bytes": "104857600",
}


def partition(index: int = 0, *, topic: str = "orders", **changes: Any) -> SeenPartition:
    replicas = tuple((index + shift) % 3 + 1 for shift in range(3))
    made = SeenPartition(
        partition=TopicPartition(topic, index),
        leader=replicas[0],
        replicas=replicas,
        in_sync=replicas,
        newest_ms=NOW_MS - 1000,
        oldest_ms=NOW_MS - 8 * DAY_MS,
    )
    return replace(made, **changes)


def topic(name: str = "orders", *partitions: SeenPartition, **configs: str) -> SeenTopic:
    found = partitions or tuple(partition(index, topic=name) for index in range(6))
    changed = {key.replace("_", "."): value for key, value in configs.items()}
    return SeenTopic(name=name, partitions=found, configs={**TOPIC_CONFIGS, **changed}, is_internal=name[:2] == "__")


def broker(node_id: int, **changes: Any) -> SeenBroker:
    return replace(
        SeenBroker(node_id=node_id, address=f"kafka{node_id}:9092", rack=f"r{node_id}", configs=BROKER_CONFIGS),
        **changes,
    )


def directory(node_id: int, **changes: Any) -> LogDirectory:
    made = LogDirectory(
        node_id=node_id,
        path="/data",
        error=ErrorCode.NONE,
        total_bytes=1000 * 10**9,
        usable_bytes=500 * 10**9,
        partition_sizes={TopicPartition("orders", index): 10**9 for index in range(6)},
    )
    return replace(made, **changes)


def lags(
    *offsets: int,
    members: int = 1,
    start: int = 0,
    unread_ms: int | None = None,
    topic_name: str = "orders",
    idle: int = 0,
) -> LagReport:
    """Looks at a group of `orders` whose committed offset and end (pairs in `offsets`) change in 60 seconds."""
    history = LagHistory(60_000)
    tp = TopicPartition(topic_name, 0)
    pairs = list(zip(offsets[::2], offsets[1::2], strict=True))
    step_ms = 60_000 // max(1, len(pairs) - 1)
    for index, (committed, end) in enumerate(pairs):
        at_ms = NOW_MS - (len(pairs) - 1 - index) * step_ms
        unread = None if unread_ms is None else Unread(committed, unread_ms)
        owner = Owner("m", "c", "/h") if members else None
        sample = PartitionSample(
            partition=tp, committed=committed, span=LogSpan(start, end), unread=unread, owner=owner
        )
        group = GroupSample(
            group_id="billing",
            group_type="classic",
            state="Stable" if members else "Empty",
            member_count=members + idle,
            partitions=(sample,),
        )
        report = history.add(
            ClusterSample(
                at_ms=at_ms, groups=(group,), spans={tp: LogSpan(start, end)}, retention_ms={topic_name: 7 * DAY_MS}
            )
        )
    return report


def healthy(**changes: Any) -> ClusterSnapshot:
    snapshot = ClusterSnapshot(
        at_ms=NOW_MS,
        brokers=(broker(1), broker(2), broker(3)),
        topics=(topic(), topic("__consumer_offsets")),
        log_dirs=(directory(1), directory(2), directory(3)),
        lags=lags(90, 100, 95, 105, 110, 110),
        machine=SeenMachine(
            vm={"swappiness": 1, "dirty_background_ratio": 5, "dirty_ratio": 60},
            processes=(SeenProcess(pid=7, open_files=500, open_files_max=100_000),),
            mounts=(Mount(path="/data", file_system="ext4"),),
        ),
    )
    return replace(snapshot, **changes)
