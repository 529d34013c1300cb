"""The image of the whole cluster, and the delta between two images.

`ClusterImage.apply` returns a new image and its difference from the old one. A reader keeps a consistent view for as
long as it holds an image, and applying records one by one gives the same image as applying all of them in one call. The
mappings of an image never change after it was built; unchanged ones are shared with the image before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import TypeVar
from uuid import UUID

from rookery.base.codes import ResourceType
from rookery.base.quota_entities import QuotaEntity
from rookery.base.types import NodeId, Offset, PartitionIndex, ProducerId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.metadata import records
from rookery.metadata.image.acls import acl_of
from rookery.metadata.image.brokers import BrokerChanges, BrokerImage, ControllerImage, new_controller
from rookery.metadata.image.configs import ConfigChanges, ConfigResource
from rookery.metadata.image.entries import EntryChanges
from rookery.metadata.image.quotas import QuotaChanges
from rookery.metadata.image.scram import ScramKey, scram_credential_of, scram_key_of
from rookery.metadata.image.tokens import token_of
from rookery.metadata.image.topics import TopicChanges, TopicImage, TopicImages, topic_differences
from rookery.metadata.records import MetadataRecord, SecurityRecord
from rookery.security.acls import AclBinding
from rookery.security.delegation_tokens import DelegationToken
from rookery.security.scram_credentials import ScramCredential

_Key = TypeVar("_Key")


@value_class(kw_only=True)
class Delta:
    """The differences between the images before and after a call of `apply`.

    A topic that was deleted and created again under its name is in both `deleted` and `created`, with its two ids.
    """

    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    # The new partitions of existing topics, and those with a new leader, epoch, ISR or replicas.
    changed: Mapping[TopicId, frozenset[PartitionIndex]]
    configs: frozenset[ConfigResource]
    brokers: frozenset[NodeId]
    features: frozenset[str]
    acls: frozenset[UUID] = frozenset()
    scram: frozenset[ScramKey] = frozenset()
    client_quotas: frozenset[QuotaEntity] = frozenset()
    tokens: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, each.name) for each in fields(self))


@value_class(kw_only=True)
class ClusterImage:
    topics: Mapping[TopicName, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, TopicName] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[NodeId, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[NodeId, ControllerImage] = field(default_factory=dict)
    # A feature at level 0 has an entry: it was switched off. Without the entry, the next active controller would switch
    # it on again.
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: ProducerId = 0
    acls: Mapping[UUID, AclBinding] = field(default_factory=dict)
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    # The offset of the last record in this image; -1 if no offset was given.
    offset: Offset = -1

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_config(self, name: TopicName) -> Mapping[str, str]:
        """Return the configs that were set for a topic, without the broker's defaults."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, name), {})

    def broker_config(self, node_id: NodeId) -> Mapping[str, str]:
        """Return the configs that were set for one broker at run time."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, str(node_id)), {})

    def broker_default_config(self) -> Mapping[str, str]:
        """Return the configs that were set for all brokers at run time."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, ""), {})

    def feature_level(self, name: str) -> int:
        return self.features.get(name, 0)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def apply(
        self, changes: Iterable[MetadataRecord], *, last_offset: Offset | None = None
    ) -> tuple["ClusterImage", Delta]:
        """Return the image with the records applied, and the differences.

        Raises CorruptionError for a record that contradicts the image: no controller writes such a log.
        """
        pending = ImageChanges(self)
        for change in changes:
            pending.apply(change)
        return pending.build(self.offset if last_offset is None else last_offset)


EMPTY_IMAGE = ClusterImage()


def difference(before: ClusterImage, after: ClusterImage) -> Delta:
    """Return the delta between any two images, for example before and after a node loaded a snapshot."""
    created, deleted, changed = topic_differences(
        TopicImages(before.topics, before.topic_names),
        TopicImages(after.topics, after.topic_names),
        before.topic_names.keys() | after.topic_names.keys(),
    )
    return Delta(
        created=created,
        deleted=deleted,
        changed=changed,
        configs=_differing(before.configs, after.configs),
        brokers=_differing(before.brokers, after.brokers),
        features=_differing(before.features, after.features),
        acls=_differing(before.acls, after.acls),
        scram=_differing(before.scram, after.scram),
        client_quotas=_differing(before.client_quotas, after.client_quotas),
        tokens=_differing(before.tokens, after.tokens),
    )


def _differing(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> frozenset[_Key]:
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


class ImageChanges:
    """Applies records to an image, one by one. Each part copies a mapping when a record first changes it.

    `ClusterImage.apply` does the same in one call. The image is not changed.
    """

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._topics = TopicChanges(TopicImages(before.topics, before.topic_names))
        self._configs = ConfigChanges(before.configs)
        self._brokers = BrokerChanges(before.brokers)
        self._controllers: dict[NodeId, ControllerImage] = {}
        self._features: dict[str, int] = {}
        self._next_producer_id = before.next_producer_id
        self._acls = EntryChanges(before.acls, "ACL")
        self._scram = EntryChanges(before.scram, "SCRAM credential")
        self._quotas = QuotaChanges(before.client_quotas)
        self._tokens = EntryChanges(before.tokens, "delegation token")

    def apply(self, record: MetadataRecord) -> None:
        match record:
            # The most frequent records first.
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
            case records.RegisterControllerRecord():
                self._controllers[record.controller_id] = new_controller(record)
            case records.ClearElrRecord():
                self._topics.clear_elr(record.topic_name)
            case records.FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case records.ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case records.NoOpRecord():
                pass
            case _:
                self._apply_security(record)

    def _apply_security(self, record: SecurityRecord) -> None:
        match record:
            case records.AccessControlEntryRecord():
                self._acls.set(record.id, acl_of(record))
            case records.RemoveAccessControlEntryRecord():
                self._acls.remove(record.id)
            case records.UserScramCredentialRecord():
                self._scram.set(scram_key_of(record), scram_credential_of(record))
            case records.RemoveUserScramCredentialRecord():
                self._scram.remove(scram_key_of(record))
            case records.ClientQuotaRecord():
                self._quotas.change(record)
            case records.DelegationTokenRecord():
                self._tokens.set(record.token_id, token_of(record))
            case records.RemoveDelegationTokenRecord():
                self._tokens.remove(record.token_id)

    def build_image(self, offset: Offset) -> ClusterImage:
        """Return the image after the records so far."""
        topics, features_before = self._topics.build(), self._before.features
        return ClusterImage(
            topics=topics.topics,
            topic_names=topics.names,
            configs=self._configs.build(),
            brokers=self._brokers.build(),
            controllers=(
                {**self._before.controllers, **self._controllers} if self._controllers else self._before.controllers
            ),
            features={**features_before, **self._features} if self._features else features_before,
            next_producer_id=self._next_producer_id,
            acls=self._acls.build(),
            scram=self._scram.build(),
            client_quotas=self._quotas.build(),
            tokens=self._tokens.build(),
            offset=offset,
        )

    def build(self, offset: Offset) -> tuple[ClusterImage, Delta]:
        """Return the image after the records so far, and its differences from the image before."""
        after, features_before = self.build_image(offset), self._before.features
        created, deleted, changed = self._topics.differences(TopicImages(after.topics, after.topic_names))
        return after, Delta(
            created=created,
            deleted=deleted,
            changed=changed,
            configs=self._configs.differences(after.configs),
            brokers=self._brokers.differences(after.brokers),
            features=frozenset(key for key in self._features if features_before.get(key) != after.features.get(key)),
            acls=self._acls.differences(after.acls),
            scram=self._scram.differences(after.scram),
            client_quotas=self._quotas.differences(after.client_quotas),
            tokens=self._tokens.differences(after.tokens),
        )
