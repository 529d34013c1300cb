"""The cluster as the metadata log tells it: an immutable image, changed only by applying records.

`ClusterImage.apply` returns a new image and what changed in it, so readers keep a consistent view for as long as they
hold one, and applying records one by one gives the same image as applying all at once. Mappings in an image are never
changed after it was built; what did not change is shared with the image before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import NamedTuple
from uuid import UUID

from rookery.base.config_codes import ResourceType
from rookery.base.errors import CorruptionError
from rookery.base.types import LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.metadata import records
from rookery.metadata.records import BrokerEndpoint, BrokerFeature, MetadataRecord


class ConfigResource(NamedTuple):
    """A topic's name, a broker's id as text, or the empty name for all brokers."""

    type: int
    name: str


@value_class(kw_only=True)
class PartitionImage:
    index: PartitionIndex
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[UUID, ...] = ()


@value_class
class TopicImage:
    name: TopicName
    topic_id: TopicId
    partitions: Mapping[PartitionIndex, PartitionImage] = field(default_factory=dict)


@value_class(kw_only=True)
class BrokerImage:
    broker_id: NodeId
    incarnation_id: UUID
    broker_epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_directories: tuple[UUID, ...]


@value_class(kw_only=True)
class Delta:
    """What a call of `apply` changed, by comparing the image before with the image after.

    A topic that was deleted and created again under its name is in both `deleted` and `created`, with its two ids.
    """

    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    # Partitions of topics that were there before: new ones, and those with a new leader, epoch, ISR or replicas.
    changed: Mapping[TopicId, frozenset[PartitionIndex]]
    configs: frozenset[ConfigResource]
    brokers: frozenset[NodeId]
    features: frozenset[str]

    @property
    def is_empty(self) -> bool:
        return not (self.created or self.deleted or self.changed or self.configs or self.brokers or self.features)


@value_class(kw_only=True)
class ClusterImage:
    topics: Mapping[TopicName, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, TopicName] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[NodeId, BrokerImage] = field(default_factory=dict)
    # Level 0 is a level like any other: the feature was switched off, and a restart must not raise it again.
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: ProducerId = 0
    # Of the last record that is in this image; -1 as long as nobody said it.
    offset: Offset = -1

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_config(self, name: TopicName) -> Mapping[str, str]:
        """A topic's own settings, without what it gets from the broker."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, name), {})

    def broker_config(self, node_id: NodeId) -> Mapping[str, str]:
        """What was set at run time for one broker."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, str(node_id)), {})

    def broker_default_config(self) -> Mapping[str, str]:
        """What was set at run time for all brokers."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, ""), {})

    def feature_level(self, name: str) -> int:
        return self.features.get(name, 0)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def apply(
        self, changes: Iterable[MetadataRecord], *, last_offset: Offset | None = None
    ) -> tuple["ClusterImage", Delta]:
        """CorruptionError for a record that cannot follow what came before: the log is not one of ours."""
        builder = _Builder(self)
        for change in changes:
            builder.apply(change)
        after = builder.build(self.offset if last_offset is None else last_offset)
        return after, _compare(self, after, builder)


EMPTY_IMAGE = ClusterImage()


class _Builder:
    """Copies of an image's mappings, made when they are first touched and changed by records."""

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self.topics: dict[TopicId, TopicImage | None] = {}
        self.partitions: dict[TopicId, dict[PartitionIndex, PartitionImage]] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.brokers: dict[NodeId, BrokerImage | None] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = before.next_producer_id
        self._new_names: dict[TopicName, TopicId] = {}
        # The topic whose partitions were touched last.
        self._latest_id: TopicId | None = None
        self._latest_partitions: dict[PartitionIndex, PartitionImage] = {}

    def apply(self, change: MetadataRecord) -> None:
        match change:
            # The most frequent first.
            case records.PartitionChangeRecord():
                self._change_partition(change)
            case records.PartitionRecord():
                self._partitions(change.topic_id)[change.partition_id] = _new_partition(change)
            case records.TopicRecord():
                self._create_topic(change)
            case records.RemoveTopicRecord():
                self._remove_topic(change.topic_id)
            case records.ConfigRecord():
                self._change_config(change)
            case records.RegisterBrokerRecord():
                self.brokers[change.broker_id] = _new_broker(change)
            case records.UnregisterBrokerRecord():
                self._broker(change.broker_id, change.broker_epoch)
                self.brokers[change.broker_id] = None
            case records.FenceBrokerRecord() | records.UnfenceBrokerRecord():
                broker = self._broker(change.broker_id, change.broker_epoch)
                fenced = isinstance(change, records.FenceBrokerRecord)
                self.brokers[change.broker_id] = replace(broker, fenced=fenced)
            case records.BrokerRegistrationChangeRecord():
                self._change_registration(change)
            case records.FeatureLevelRecord():
                self.features[change.name] = change.feature_level
            case records.ProducerIdsRecord():
                self.next_producer_id = change.next_producer_id
            case records.NoOpRecord():
                pass

    def build(self, offset: Offset) -> ClusterImage:
        before = self._before
        topics, names = before.topics, before.topic_names
        touched = self.topics.keys() | self.partitions.keys()
        if touched:
            topics, names = self._build_topics(touched)
        configs, brokers, features = before.configs, before.brokers, before.features
        if self.configs:
            configs = {resource: values for resource, values in {**configs, **self.configs}.items() if values}
        if self.brokers:
            brokers = {node: broker for node, broker in {**brokers, **self.brokers}.items() if broker}
        if self.features:
            features = {**features, **self.features}
        return ClusterImage(
            topics=topics,
            topic_names=names,
            configs=configs,
            brokers=brokers,
            features=features,
            next_producer_id=self.next_producer_id,
            offset=offset,
        )

    def _build_topics(self, touched: Iterable[TopicId]) -> tuple[dict[TopicName, TopicImage], dict[TopicId, TopicName]]:
        topics, names = dict(self._before.topics), dict(self._before.topic_names)
        for topic_id in [topic_id for topic_id in touched if topic_id in names]:
            del topics[names.pop(topic_id)]
        for topic_id in touched:
            topic = self._topic(topic_id)
            if topic:
                topics[topic.name] = replace(topic, partitions=self.partitions.get(topic_id, topic.partitions))
                names[topic_id] = topic.name
        return topics, names

    def _topic(self, topic_id: TopicId) -> TopicImage | None:
        if topic_id in self.topics:
            return self.topics[topic_id]
        return self._before.topic_by_id(topic_id)

    def _existing_topic(self, topic_id: TopicId) -> TopicImage:
        topic = self._topic(topic_id)
        if topic is None:
            raise CorruptionError(f"the metadata log has a record for the unknown topic id {topic_id}")
        return topic

    def _create_topic(self, change: records.TopicRecord) -> None:
        holder = self._new_names.get(change.name) or self._id_before(change.name)
        if (holder and self._topic(holder)) or self._topic(change.topic_id):
            raise CorruptionError(f"the metadata log creates the topic {change.name} twice")
        self.topics[change.topic_id] = TopicImage(change.name, change.topic_id)
        self._new_names[change.name] = change.topic_id

    def _id_before(self, name: TopicName) -> TopicId | None:
        topic = self._before.topics.get(name)
        return topic.topic_id if topic else None

    def _remove_topic(self, topic_id: TopicId) -> None:
        topic = self._existing_topic(topic_id)
        self.topics[topic_id] = None
        self.partitions.pop(topic_id, None)
        self._latest_id = None
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if resource in self.configs or resource in self._before.configs:
            self.configs[resource] = {}

    def _partitions(self, topic_id: TopicId) -> dict[PartitionIndex, PartitionImage]:
        # The records of one topic's partitions follow each other, and looking up an id is slow.
        if topic_id is not self._latest_id:
            topic = self._existing_topic(topic_id)
            if topic_id not in self.partitions:
                self.partitions[topic_id] = dict(topic.partitions)
            self._latest_id, self._latest_partitions = topic_id, self.partitions[topic_id]
        return self._latest_partitions

    def _change_partition(self, change: records.PartitionChangeRecord) -> None:
        partitions = self._partitions(change.topic_id)
        before = partitions.get(change.partition_id)
        if before is None:
            raise CorruptionError(f"the metadata log changes an unknown partition of topic id {change.topic_id}")
        partitions[change.partition_id] = _changed_partition(before, change)

    def _change_config(self, change: records.ConfigRecord) -> None:
        resource = ConfigResource(change.resource_type, change.resource_name)
        if resource not in self.configs:
            self.configs[resource] = dict(self._before.configs.get(resource, {}))
        if change.value is None:
            self.configs[resource].pop(change.name, None)
        else:
            self.configs[resource][change.name] = change.value

    def _broker(self, node_id: NodeId, epoch: int) -> BrokerImage:
        broker = self.brokers[node_id] if node_id in self.brokers else self._before.brokers.get(node_id)
        if broker is None or broker.broker_epoch != epoch:
            raise CorruptionError(
                f"the metadata log has a record for node {node_id} in epoch {epoch}, which is not known"
            )
        return broker

    def _change_registration(self, change: records.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(change.broker_id, change.broker_epoch)
        self.brokers[change.broker_id] = replace(
            broker,
            fenced=change.fenced > 0 if change.fenced else broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown or change.in_controlled_shutdown > 0,
            log_directories=change.log_directories or broker.log_directories,
        )


def _new_partition(change: records.PartitionRecord) -> PartitionImage:
    return PartitionImage(
        index=change.partition_id,
        replicas=change.replicas,
        isr=change.isr,
        removing_replicas=change.removing_replicas,
        adding_replicas=change.adding_replicas,
        leader=change.leader,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        directories=change.directories,
    )


def _changed_partition(before: PartitionImage, change: records.PartitionChangeRecord) -> PartitionImage:
    """Naming a leader, even the same one, begins a new leader epoch."""
    new_leader = change.leader != records.SAME_LEADER
    return PartitionImage(
        index=before.index,
        replicas=before.replicas if change.replicas is None else change.replicas,
        isr=before.isr if change.isr is None else change.isr,
        removing_replicas=(before.removing_replicas if change.removing_replicas is None else change.removing_replicas),
        adding_replicas=before.adding_replicas if change.adding_replicas is None else change.adding_replicas,
        leader=change.leader if new_leader else before.leader,
        leader_epoch=before.leader_epoch + new_leader,
        partition_epoch=before.partition_epoch + 1,
        directories=before.directories if change.directories is None else change.directories,
    )


def _new_broker(change: records.RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=change.broker_id,
        incarnation_id=change.incarnation_id,
        broker_epoch=change.broker_epoch,
        endpoints=change.endpoints,
        features=change.features,
        rack=change.rack,
        fenced=change.fenced,
        in_controlled_shutdown=change.in_controlled_shutdown,
        log_directories=change.log_directories,
    )


def _compare(before: ClusterImage, after: ClusterImage, builder: _Builder) -> Delta:
    """Only what the builder touched can differ."""
    created, deleted = [], []
    changed: dict[TopicId, frozenset[PartitionIndex]] = {}
    for topic_id in builder.topics.keys() | builder.partitions.keys():
        old, new = before.topic_by_id(topic_id), after.topic_by_id(topic_id)
        if old and not new:
            deleted.append(old)
        elif new and not old:
            created.append(new)
        elif old and new:
            differing = {i for i, partition in new.partitions.items() if old.partitions.get(i) != partition}
            if differing:
                changed[topic_id] = frozenset(differing)
    return Delta(
        created=tuple(sorted(created, key=lambda topic: topic.name)),
        deleted=tuple(sorted(deleted, key=lambda topic: topic.name)),
        changed=changed,
        configs=frozenset(key for key in builder.configs if before.configs.get(key) != after.configs.get(key)),
        brokers=frozenset(key for key in builder.brokers if before.brokers.get(key) != after.brokers.get(key)),
        features=frozenset(key for key in builder.features if before.features.get(key) != after.features.get(key)),
    )
