"""Describes the quorum to operators: the response to DescribeQuorum. Pure.

Only the leader knows how far the others are. The core counts milliseconds of a monotonic clock; the response has times
of day.
"""

from collections.abc import Mapping
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.protocol import messages
from rookery.quorum.core import QuorumCore
from rookery.quorum.progress import ReplicaProgress
from rookery.quorum.roles import Leader
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter
from rookery.quorum.wire import NO_NODE
from rookery.storage.names import METADATA_PARTITION

_UNKNOWN = -1


def describe_quorum(
    request: messages.DescribeQuorumRequest,
    core: QuorumCore,
    *,
    now_ms: float,
    wall_ms: TimestampMs,
    endpoints: Mapping[str, Endpoint],
) -> messages.DescribeQuorumResponse:
    """Return the response; `endpoints` are those of this node."""
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            is_known = (topic.topic_name, partition.partition_index) == tuple(METADATA_PARTITION)
            error = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_known and not isinstance(core.role, Leader):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            partitions.append(_partition(core, partition.partition_index, error, now_ms, wall_ms))
        topics.append(messages.DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
    nodes = [_node(voter, endpoints if voter.key.matches(core.me) else {}) for voter in core.voters]
    return messages.DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics, nodes=nodes)


def _partition(
    core: QuorumCore, index: int, error: ErrorCode, now_ms: float, wall_ms: TimestampMs
) -> messages.DescribeQuorumResponsePartitionData:
    leader = core.role if error is ErrorCode.NONE else None
    voters, observers, high_watermark = [], [], _UNKNOWN
    if isinstance(leader, Leader):
        mine = ReplicaProgress(core.log.end_offset, now_ms, now_ms)
        high_watermark = core.high_watermark if leader.has_committed else _UNKNOWN
        for key in core.voters.keys:
            progress = mine if key.matches(core.me) else leader.progress.of(key)
            directory = core.me if key.matches(core.me) else key
            voters.append(_replica(directory, progress, wall_ms - now_ms))
        for key, progress in leader.progress.observers(core.voters, now_ms=now_ms).items():
            observers.append(_replica(key, progress, wall_ms - now_ms))
    return messages.DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=error,
        error_message=None,
        leader_id=NO_NODE if core.leader_id is None else core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=high_watermark,
        current_voters=voters,
        observers=observers,
    )


def _replica(
    key: ReplicaKey, progress: ReplicaProgress | None, wall_offset_ms: float
) -> messages.DescribeQuorumResponseReplicaState:
    fetched_ms = progress.last_fetch_ms if progress is not None else None
    caught_up_ms = progress.caught_up_ms if progress is not None else None
    return messages.DescribeQuorumResponseReplicaState(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset if progress is not None else _UNKNOWN,
        last_fetch_timestamp=_UNKNOWN if fetched_ms is None else int(fetched_ms + wall_offset_ms),
        last_caught_up_timestamp=_UNKNOWN if caught_up_ms is None else int(caught_up_ms + wall_offset_ms),
    )


def _node(voter: Voter, mine: Mapping[str, Endpoint]) -> Any:
    rows = [
        messages.DescribeQuorumResponseListener(name=name, host=at.host, port=at.port)
        for name, at in (voter.endpoints or mine).items()
    ]
    return messages.Node(node_id=voter.key.node_id, listeners=rows)
