"""Builds samples for the tests of lags."""

from rookery.base.types import TopicPartition
from rookery.lag import ClusterSample, GroupSample, LogSpan, Owner, PartitionSample, Unread

TP = TopicPartition("orders", 0)


def partition(
    committed: int | None,
    end: int,
    *,
    start: int = 0,
    unread: Unread | None = None,
    tp: TopicPartition = TP,
    owner: Owner | None = None,
) -> PartitionSample:
    return PartitionSample(partition=tp, committed=committed, span=LogSpan(start, end), unread=unread, owner=owner)


def cluster(
    at_ms: int, *partitions: PartitionSample, members: int = 1, retention_ms: int | None = None
) -> ClusterSample:
    group = GroupSample(
        group_id="billing", group_type="classic", state="Stable", member_count=members, partitions=partitions
    )
    return ClusterSample(
        at_ms=at_ms,
        groups=(group,),
        spans={each.partition: each.span for each in partitions if each.span is not None},
        retention_ms={} if retention_ms is None else {TP.topic: retention_ms},
    )
