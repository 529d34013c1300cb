"""The partitions of a cluster and what is wrong with them: offline, under-replicated, under the minimum of replicas.

`load_partitions` requests everything that the judgement needs: leaders, replicas, running reassignments, and each
topic's `min.insync.replicas`. `topics describe`, `cluster describe`, `brokers` and `reassign` use it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rookery.base.codes import ResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.admin import Admin, ConfigResource, PartitionDetails, Reassignment, TopicDetails

_MIN_ISR = "min.insync.replicas"
_TOPICS_PER_REQUEST = 500


class PartitionState(NamedTuple):
    """`min_in_sync` is None if the topic's configs cannot be read; `alive` are the brokers that are not fenced."""

    partition: TopicPartition
    details: PartitionDetails
    min_in_sync: int | None
    reassignment: Reassignment | None
    alive: frozenset[NodeId]

    @property
    def is_offline(self) -> bool:
        """Whether no client can use it: it has no leader, or the leader is not alive."""
        return self.details.leader not in self.alive

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing. Replicas that a reassignment adds do not count until they are in sync."""
        adding = () if self.reassignment is None else self.reassignment.adding
        wanted = sum(node not in adding for node in self.details.replicas)
        return len(self.details.in_sync_replicas) < wanted

    @property
    def is_under_min_in_sync(self) -> bool:
        """Whether producers with acks=all are refused."""
        return self.min_in_sync is not None and len(self.details.in_sync_replicas) < self.min_in_sync

    @property
    def is_at_min_in_sync(self) -> bool:
        """Whether producers with acks=all are refused when one more replica is lost."""
        return self.min_in_sync is not None and len(self.details.in_sync_replicas) == self.min_in_sync

    def problems(self) -> list[str]:
        """Return what is wrong, the worst first; empty for a healthy partition."""
        words = {
            "offline": self.is_offline,
            "under min ISR": self.is_under_min_in_sync,
            "under-replicated": self.is_under_replicated,
        }
        return [word for word, applies in words.items() if applies]

    def as_json(self) -> dict[str, Any]:
        details = self.details
        return {
            "partition": details.index,
            "leader": details.leader if details.leader >= 0 else None,
            "leader_epoch": details.leader_epoch,
            "replicas": list(details.replicas),
            "in_sync_replicas": list(details.in_sync_replicas),
            "eligible_leader_replicas": _as_list(details.eligible_leaders),
            "last_known_eligible_leader_replicas": _as_list(details.last_known_eligible_leaders),
            "adding_replicas": [] if self.reassignment is None else list(self.reassignment.adding),
            "removing_replicas": [] if self.reassignment is None else list(self.reassignment.removing),
            "problems": self.problems(),
        }


class TopicState(NamedTuple):
    details: TopicDetails
    partitions: tuple[PartitionState, ...]


async def load_partitions(admin: Admin, names: Sequence[TopicName] = ()) -> list[TopicState]:
    """Return topics in the given order, or all topics by name. Raises ApiError if one does not exist."""
    topics = await describe_topics(admin, names)
    alive = frozenset(broker.node_id for broker in (await admin.describe_cluster()).brokers)
    reassignments = await running_reassignments(admin)
    minima = await _min_in_sync(admin, [topic.name for topic in topics])
    return [
        TopicState(
            topic,
            tuple(
                _state(TopicPartition(topic.name, details.index), details, minima, reassignments, alive)
                for details in topic.partitions
            ),
        )
        for topic in topics
    ]


def _state(
    tp: TopicPartition,
    details: PartitionDetails,
    minima: dict[TopicName, int],
    reassignments: dict[TopicPartition, Reassignment],
    alive: frozenset[NodeId],
) -> PartitionState:
    return PartitionState(tp, details, minima.get(tp.topic), reassignments.get(tp), alive)


async def describe_topics(admin: Admin, names: Sequence[TopicName]) -> list[TopicDetails]:
    """Describe topics with their eligible leader replicas, or without them if the broker is too old."""
    try:
        found = await admin.describe_topic_partitions(names)
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        found = await _describe_without_eligible(admin, names)
    by_name = {topic.name: topic for topic in found}
    ordered = [by_name[name] for name in dict.fromkeys(names)] if names else found
    for topic in ordered:
        if topic.error is not ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {topic.name}")
    return ordered


async def running_reassignments(admin: Admin) -> dict[TopicPartition, Reassignment]:
    """Return the running reassignments; none if the broker cannot move replicas at all."""
    try:
        return await admin.list_partition_reassignments()
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}


def partitions_of(topics: Iterable[TopicState]) -> list[PartitionState]:
    return [partition for topic in topics for partition in topic.partitions]


def nodes_text(nodes: Iterable[NodeId] | None) -> str | None:
    """Return node ids as text for a table; None if there are none, which a table shows as a dash."""
    return ",".join(map(str, nodes or ())) or None


async def _describe_without_eligible(admin: Admin, names: Sequence[TopicName]) -> list[TopicDetails]:
    topics = await (admin.describe_topics(names) if names else admin.list_topics())
    return [
        TopicDetails(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            error=topic.error,
            partitions=tuple(
                PartitionDetails(
                    index=partition.index,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replicas=partition.replicas,
                    in_sync_replicas=partition.in_sync_replicas,
                    offline_replicas=partition.offline_replicas,
                    eligible_leaders=None,
                    last_known_eligible_leaders=None,
                    error=partition.error,
                )
                for partition in topic.partitions
            ),
        )
        for topic in topics
    ]


async def _min_in_sync(admin: Admin, names: Sequence[TopicName]) -> dict[TopicName, int]:
    found: dict[TopicName, int] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + _TOPICS_PER_REQUEST]]
        for described in await admin.describe_configs(resources, names=[_MIN_ISR]):
            value = described.values().get(_MIN_ISR)
            # The topic may have been deleted since, or the user may not read its configuration.
            if described.error is ErrorCode.NONE and value is not None:
                found[described.resource.name] = int(value)
    return found


def _as_list(nodes: Collection[NodeId] | None) -> list[NodeId] | None:
    return None if nodes is None else list(nodes)
