"""What the client knows of the cluster: an immutable picture, read from a Metadata response.

Pure. `cluster` keeps the newest picture and routes by it.
"""

from dataclasses import field

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName
from rookery.base.values import value_class
from rookery.client.address import Address
from rookery.protocol.message import Message

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
    """`partitions` are in the order of their index."""

    name: TopicName
    topic_id: TopicId
    is_internal: bool
    error: ErrorCode
    partitions: tuple[Partition, ...]


@value_class(kw_only=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: NodeId = NO_NODE
    brokers: dict[NodeId, Broker] = field(default_factory=dict)
    topics: dict[TopicName, Topic] = field(default_factory=dict)

    def leader(self, topic: TopicName, partition: PartitionIndex) -> NodeId | None:
        """The node that leads a partition, or None where we know of none."""
        known = self.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        leader = known.partitions[partition].leader
        return leader if leader in self.brokers else None

    def topic_id(self, topic: TopicName) -> TopicId:
        return self.topics[topic].topic_id if topic in self.topics else NO_TOPIC_ID

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def merged(self, newer: "ClusterMetadata", *, complete: bool) -> "ClusterMetadata":
        """The newer picture; topics that it was not asked about stay known unless it is complete."""
        topics = newer.topics if complete else {**self.topics, **newer.topics}
        return ClusterMetadata(
            cluster_id=newer.cluster_id, controller_id=newer.controller_id, brokers=newer.brokers, topics=topics
        )


def read_metadata(response: Message) -> ClusterMetadata:
    brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.get("rack")) for b in response.brokers}
    topics = {topic.name: _read_topic(topic) for topic in response.topics if topic.name is not None}
    return ClusterMetadata(
        cluster_id=response.get("cluster_id"),
        controller_id=response.get("controller_id", NO_NODE),
        brokers=brokers,
        topics=topics,
    )


def _read_topic(topic: Message) -> Topic:
    partitions = sorted((_read_partition(partition) for partition in topic.partitions), key=lambda p: p.index)
    return Topic(
        name=topic.name,
        topic_id=topic.get("topic_id", NO_TOPIC_ID),
        is_internal=topic.get("is_internal", False),
        error=ErrorCode(topic.error_code),
        partitions=tuple(partitions),
    )


def _read_partition(partition: Message) -> Partition:
    return Partition(
        index=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=partition.get("leader_epoch", -1),
        replicas=tuple(partition.replica_nodes),
        in_sync_replicas=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.get("offline_replicas") or ()),
        error=ErrorCode(partition.error_code),
    )
