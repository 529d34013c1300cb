"""The client's metadata of the cluster: an immutable snapshot, read from a Metadata response.

Pure. `cluster` holds the newest snapshot and routes by it. Brokers learn of changes at different times, so a later
response may be older than an earlier one: of two leaders of a partition, the one with the higher epoch is kept.
"""

from collections.abc import Iterable
from dataclasses import field, replace

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.net.address import Address
from rookery.protocol.messages import (
    DescribeClusterResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_NODE: NodeId = -1


@value_class
class Broker:
    node_id: NodeId
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@value_class(kw_only=True)
class Partition:
    index: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    in_sync_replicas: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]
    error: ErrorCode


@value_class(kw_only=True)
class Topic:
    """A topic with its partitions in the order of their index."""

    name: TopicName
    topic_id: TopicId
    is_internal: bool
    error: ErrorCode
    partitions: tuple[Partition, ...]

    @property
    def is_incomplete(self) -> bool:
        """Whether the broker reported a retriable error for the topic or a partition, so a new request may help."""
        return self.error.retriable or any(partition.error.retriable for partition in self.partitions)


@value_class(kw_only=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: NodeId = NO_NODE
    brokers: dict[NodeId, Broker] = field(default_factory=dict)
    topics: dict[TopicName, Topic] = field(default_factory=dict)
    _names: dict[TopicId, TopicName] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._names.update(
            {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id != NO_TOPIC_ID}
        )

    def leader(self, topic: TopicName, partition: PartitionIndex) -> NodeId | None:
        """Return the leader of a partition, or None if it is not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        leader = known.partitions[partition].leader
        return leader if leader in self.brokers else None

    def leader_or_error(self, partition: TopicPartition) -> NodeId | ApiError:
        """Return the leader of a partition, or the error why it is not known."""
        leader = self.leader(*partition)
        if leader is not None:
            return leader
        topic = self.topics.get(partition.topic)
        if topic is None or topic.error != ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            return ApiError(code, f"topic {partition.topic}")
        if not 0 <= partition.partition < len(topic.partitions):
            return ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic} has {len(topic.partitions)} partitions, there is no {partition.partition}",
            )
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")

    def topic_id(self, topic: TopicName) -> TopicId:
        return self.topics[topic].topic_id if topic in self.topics else NO_TOPIC_ID

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        return self._names.get(topic_id)

    def merged(self, newer: "ClusterMetadata", *, complete: bool) -> "ClusterMetadata":
        """Return the newer snapshot. Unless it is `complete`, topics that it does not contain are kept."""
        topics = {} if complete else dict(self.topics)
        for name, topic in newer.topics.items():
            known = self.topics.get(name)
            topics[name] = topic if known is None else _newest(known, topic)
        return replace(newer, topics=topics)

    def with_leader(
        self, partition: TopicPartition, leader: NodeId, leader_epoch: LeaderEpoch, endpoints: Iterable[Broker] = ()
    ) -> "ClusterMetadata":
        """Return the snapshot with the leader that a broker reported (KIP-951), or `self` if that is not newer."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return self
        known = topic.partitions[partition.partition]
        brokers = self.brokers | {broker.node_id: broker for broker in endpoints}
        if leader not in brokers or leader_epoch <= known.leader_epoch:
            return self
        partitions = list(topic.partitions)
        partitions[partition.partition] = replace(known, leader=leader, leader_epoch=leader_epoch, error=ErrorCode.NONE)
        changed = replace(topic, partitions=tuple(partitions))
        return replace(self, brokers=brokers, topics={**self.topics, topic.name: changed})


def _newest(known: Topic, newer: Topic) -> Topic:
    if known.topic_id != newer.topic_id or not known.partitions:
        # The topic was deleted and created again, and its epochs start at zero: comparing them would keep the leaders
        # of the deleted topic.
        return newer
    epochs = {partition.index: partition for partition in known.partitions}
    kept = [_newest_partition(epochs.get(partition.index), partition) for partition in newer.partitions]
    return replace(newer, partitions=tuple(kept))


def _newest_partition(known: Partition | None, newer: Partition) -> Partition:
    is_older = known is not None and 0 <= newer.leader_epoch < known.leader_epoch
    return known if known is not None and is_older else newer


def read_metadata(response: MetadataResponse) -> ClusterMetadata:
    brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.get("rack")) for b in response.brokers}
    topics = {topic.name: _read_topic(topic.name, topic) for topic in response.topics if topic.name is not None}
    return ClusterMetadata(
        cluster_id=response.get("cluster_id"),
        controller_id=response.get("controller_id", NO_NODE),
        brokers=brokers,
        topics=topics,
    )


def read_controllers(response: DescribeClusterResponse) -> ClusterMetadata:
    """Read the controllers of a cluster as its nodes; there are no topics."""
    nodes = {row.broker_id: Broker(row.broker_id, row.host, row.port, row.rack) for row in response.brokers}
    return ClusterMetadata(cluster_id=response.cluster_id, controller_id=response.controller_id, brokers=nodes)


def _read_topic(name: TopicName, topic: MetadataResponseTopic) -> Topic:
    partitions = sorted((_read_partition(partition) for partition in topic.partitions), key=lambda p: p.index)
    return Topic(
        name=name,
        topic_id=topic.get("topic_id", NO_TOPIC_ID),
        is_internal=topic.get("is_internal", False),
        error=ErrorCode(topic.error_code),
        partitions=tuple(partitions),
    )


def _read_partition(partition: MetadataResponsePartition) -> Partition:
    return Partition(
        index=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=partition.get("leader_epoch", -1),
        replicas=tuple(partition.replica_nodes),
        in_sync_replicas=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.get("offline_replicas") or ()),
        error=ErrorCode(partition.error_code),
    )
