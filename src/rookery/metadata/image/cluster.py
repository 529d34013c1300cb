"""The whole cluster: an immutable image, and what a change of it changed.

`ClusterImage.apply` returns a new image and its difference from the old one, so readers keep a consistent view for as
long as they hold an image, and applying records one by one gives the same image as applying all at once. Mappings in an
image are never changed after it was built; what did not change is shared with the image before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field

from rookery.base.codes import ResourceType
from rookery.base.types import NodeId, Offset, PartitionIndex, ProducerId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.metadata import records
from rookery.metadata.image.brokers import BrokerChanges, BrokerImage
from rookery.metadata.image.configs import ConfigChanges, ConfigResource
from rookery.metadata.image.topics import TopicChanges, TopicImage, TopicImages
from rookery.metadata.records import MetadataRecord


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
    # Of the last record that is in this image; -1 if no record's offset was given.
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
        pending = _Changes(self)
        for change in changes:
            pending.apply(change)
        return pending.build(self.offset if last_offset is None else last_offset)


EMPTY_IMAGE = ClusterImage()


class _Changes:
    """Changes of an image by records: each kind of thing copies what it changes when it is first touched."""

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._topics = TopicChanges(TopicImages(before.topics, before.topic_names))
        self._configs = ConfigChanges(before.configs)
        self._brokers = BrokerChanges(before.brokers)
        self._features: dict[str, int] = {}
        self._next_producer_id = before.next_producer_id

    def apply(self, record: MetadataRecord) -> None:
        match record:
            # The most frequent first.
            case records.PartitionChangeRecord():
                self._topics.change_partition(record)
            case records.PartitionRecord():
                self._topics.add_partition(record)
            case records.TopicRecord():
                self._topics.create(record)
            case records.RemoveTopicRecord():
                name = self._topics.remove(record.topic_id)
                self._configs.remove_all(ConfigResource(ResourceType.TOPIC, name))
            case records.ConfigRecord():
                self._configs.change(record)
            case records.RegisterBrokerRecord():
                self._brokers.register(record)
            case records.UnregisterBrokerRecord():
                self._brokers.remove(record.broker_id, record.broker_epoch)
            case records.FenceBrokerRecord():
                self._brokers.fence(record.broker_id, record.broker_epoch, fenced=True)
            case records.UnfenceBrokerRecord():
                self._brokers.fence(record.broker_id, record.broker_epoch, fenced=False)
            case records.BrokerRegistrationChangeRecord():
                self._brokers.change(record)
            case records.FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case records.ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case records.NoOpRecord():
                pass

    def build(self, offset: Offset) -> tuple[ClusterImage, Delta]:
        topics, configs, brokers = self._topics.build(), self._configs.build(), self._brokers.build()
        features_before = self._before.features
        after = ClusterImage(
            topics=topics.topics,
            topic_names=topics.names,
            configs=configs,
            brokers=brokers,
            features={**features_before, **self._features} if self._features else features_before,
            next_producer_id=self._next_producer_id,
            offset=offset,
        )
        created, deleted, changed = self._topics.differences(topics)
        return after, Delta(
            created=created,
            deleted=deleted,
            changed=changed,
            configs=self._configs.differences(configs),
            brokers=self._brokers.differences(brokers),
            features=frozenset(key for key in self._features if features_before.get(key) != after.features.get(key)),
        )
