"""The topics of an image, and their partitions."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.codes import RecoveryState
from rookery.base.errors import CorruptionError
from rookery.base.types import LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName
from rookery.base.values import value_class
from rookery.metadata.records import (
    SAME_LEADER,
    SAME_RECOVERY_STATE,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)


@value_class(kw_only=True)
class PartitionImage:
    """A partition. `leader` is `NO_LEADER` if no replica can lead.

    `elr` are replicas outside the ISR that have all committed records: they left when the ISR had fewer members than
    `min.insync.replicas`, so nothing was committed without them (KIP-966). `last_known_elr` is the last leader of a
    partition whose ISR is empty.
    """

    index: PartitionIndex
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[UUID, ...] = ()
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()
    recovery_state: int = RecoveryState.RECOVERED

    def directory_of(self, node_id: NodeId) -> UUID:
        """Return the log directory of a replica, if the controller was informed of it."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == node_id:
                return directory
        return UNASSIGNED_DIRECTORY


@value_class
class TopicImage:
    name: TopicName
    topic_id: TopicId
    partitions: Mapping[PartitionIndex, PartitionImage] = field(default_factory=dict)


class TopicImages(NamedTuple):
    """All topics by name, and their names by id."""

    topics: Mapping[TopicName, TopicImage]
    names: Mapping[TopicId, TopicName]

    def by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]


class TopicDifferences(NamedTuple):
    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    changed: Mapping[TopicId, frozenset[PartitionIndex]]


_Partitions: TypeAlias = dict[PartitionIndex, PartitionImage]


class TopicChanges:
    """Applies records to the topics of an image."""

    def __init__(self, before: TopicImages) -> None:
        self._before = before
        # None for a topic that was removed.
        self._topics: dict[TopicId, TopicImage | None] = {}
        self._partitions: dict[TopicId, _Partitions] = {}
        self._new_names: dict[TopicName, TopicId] = {}
        # The topic whose partitions were changed last.
        self._latest_id: TopicId | None = None
        self._latest_partitions: _Partitions = {}

    def create(self, record: TopicRecord) -> None:
        holder = self._new_names.get(record.name) or self._id_before(record.name)
        if (holder and self._find(holder)) or self._find(record.topic_id):
            raise CorruptionError(f"the metadata log creates the topic {record.name} twice")
        self._topics[record.topic_id] = TopicImage(record.name, record.topic_id)
        self._new_names[record.name] = record.topic_id

    def remove(self, topic_id: TopicId) -> TopicName:
        topic = self._existing(topic_id)
        self._topics[topic_id] = None
        self._partitions.pop(topic_id, None)
        self._latest_id = None
        return topic.name

    def add_partition(self, record: PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = _new_partition(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        before = partitions.get(record.partition_id)
        if before is None:
            raise CorruptionError(f"the metadata log changes an unknown partition of topic id {record.topic_id}")
        partitions[record.partition_id] = changed_partition(before, record)

    def clear_elr(self, name: TopicName) -> None:
        """Empty the eligible leader replicas of a topic; of all topics if the name is empty."""
        for topic_id in [self._id_of(name)] if name else self._all_ids():
            partitions = self._partitions.get(topic_id) or self._existing(topic_id).partitions
            for partition in [each for each in partitions.values() if each.elr or each.last_known_elr]:
                self.change_partition(
                    PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id, elr=(), last_known_elr=())
                )

    def build(self) -> TopicImages:
        touched = self._touched()
        if not touched:
            return self._before
        topics, names = dict(self._before.topics), dict(self._before.names)
        for topic_id in [topic_id for topic_id in touched if topic_id in names]:
            del topics[names.pop(topic_id)]
        for topic_id in touched:
            topic = self._find(topic_id)
            if topic:
                topics[topic.name] = replace(topic, partitions=self._partitions.get(topic_id, topic.partitions))
                names[topic_id] = topic.name
        return TopicImages(topics, names)

    def differences(self, after: TopicImages) -> TopicDifferences:
        """Compare with the image before. Only topics that a record has changed are looked at."""
        return topic_differences(self._before, after, self._touched())

    def _touched(self) -> set[TopicId]:
        return self._topics.keys() | self._partitions.keys()

    def _find(self, topic_id: TopicId) -> TopicImage | None:
        if topic_id in self._topics:
            return self._topics[topic_id]
        return self._before.by_id(topic_id)

    def _existing(self, topic_id: TopicId) -> TopicImage:
        topic = self._find(topic_id)
        if topic is None:
            raise CorruptionError(f"the metadata log has a record for the unknown topic id {topic_id}")
        return topic

    def _all_ids(self) -> list[TopicId]:
        return [topic_id for topic_id in {**self._before.names, **self._topics} if self._find(topic_id)]

    def _id_of(self, name: TopicName) -> TopicId:
        topic_id = self._new_names.get(name) or self._id_before(name)
        if topic_id is None:
            raise CorruptionError(f"the metadata log has a record for the unknown topic {name}")
        return topic_id

    def _id_before(self, name: TopicName) -> TopicId | None:
        topic = self._before.topics.get(name)
        return topic.topic_id if topic else None

    def _partitions_of(self, topic_id: TopicId) -> _Partitions:
        # Usually the records of one topic's partitions are consecutive, and the lookup of an id is slow.
        if topic_id is not self._latest_id:
            topic = self._existing(topic_id)
            if topic_id not in self._partitions:
                self._partitions[topic_id] = dict(topic.partitions)
            self._latest_id, self._latest_partitions = topic_id, self._partitions[topic_id]
        return self._latest_partitions


def topic_differences(before: TopicImages, after: TopicImages, topic_ids: Iterable[TopicId]) -> TopicDifferences:
    """Compare the given topics of two images."""
    created, deleted = [], []
    changed: dict[TopicId, frozenset[PartitionIndex]] = {}
    for topic_id in topic_ids:
        old, new = before.by_id(topic_id), after.by_id(topic_id)
        if old and not new:
            deleted.append(old)
        elif new and not old:
            created.append(new)
        elif old and new:
            differing = _differing(old.partitions, new.partitions)
            if differing:
                changed[topic_id] = differing
    return TopicDifferences(
        created=tuple(sorted(created, key=lambda topic: topic.name)),
        deleted=tuple(sorted(deleted, key=lambda topic: topic.name)),
        changed=changed,
    )


def _differing(
    before: Mapping[PartitionIndex, PartitionImage], after: Mapping[PartitionIndex, PartitionImage]
) -> frozenset[PartitionIndex]:
    # Usually few of a topic's partitions have changed: the others are the same objects. A change has a new epoch. To
    # compare all fields of thousands of partitions would be slow.
    return frozenset(
        index
        for index, new in after.items()
        if (old := before.get(index)) is not new
        and (old is None or old.partition_epoch != new.partition_epoch or old != new)
    )


def _new_partition(record: PartitionRecord) -> PartitionImage:
    return PartitionImage(
        index=record.partition_id,
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories,
        elr=record.elr or (),
        last_known_elr=record.last_known_elr or (),
        recovery_state=record.leader_recovery_state,
    )


def changed_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change. A record with a leader, even the same one, begins a new leader epoch."""
    new_leader = record.leader != SAME_LEADER
    new_state = record.leader_recovery_state != SAME_RECOVERY_STATE
    return PartitionImage(
        index=before.index,
        replicas=before.replicas if record.replicas is None else record.replicas,
        isr=before.isr if record.isr is None else record.isr,
        removing_replicas=(before.removing_replicas if record.removing_replicas is None else record.removing_replicas),
        adding_replicas=before.adding_replicas if record.adding_replicas is None else record.adding_replicas,
        leader=record.leader if new_leader else before.leader,
        leader_epoch=before.leader_epoch + new_leader,
        partition_epoch=before.partition_epoch + 1,
        directories=before.directories if record.directories is None else record.directories,
        elr=before.elr if record.elr is None else record.elr,
        last_known_elr=before.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        recovery_state=record.leader_recovery_state if new_state else before.recovery_state,
    )
