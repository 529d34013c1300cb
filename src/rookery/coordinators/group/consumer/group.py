"""A consumer group as the log defines it: state that changes only by `apply` of its records.

Three epochs drive a group (KIP-848). The group's epoch is incremented with every change that an assignment depends on:
members, subscriptions, topics. The target's epoch is the group's epoch for which the newest target assignment was
computed. A member's epoch is that of the target to which it has been moved. The group's state follows from them:

    EMPTY        it has no members
    ASSIGNING    the group's epoch is ahead of the target's
    RECONCILING  a member is not yet at the target
    STABLE       every member owns its target

Invariant: a partition has at most one owner, the member to which it is assigned or that must still revoke it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from rookery.base.types import TopicId, TopicName
from rookery.base.values import value_class
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment, Partition
from rookery.coordinators.group.consumer.member import (
    LEAVE_EPOCH,
    ClassicMembership,
    ClassicProtocol,
    Member,
    MemberState,
)
from rookery.coordinators.group.consumer_records import (
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    TopicPartitions,
    TopicsKey,
    TopicsValue,
)
from rookery.coordinators.group.records import GroupRecord, Key
from rookery.metadata.image import TopicImage

# The target was deleted by the tombstones of the group.
NO_TARGET_EPOCH = -1


class GroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Subscription(NamedTuple):
    """A subscribed topic that exists."""

    topic_id: TopicId
    partition_count: int


@value_class(kw_only=True)
class VolatileState:
    """State that the log does not carry; a loaded group starts without it and collects it again."""

    # The topics that `subscriptions` and `regexes` were last computed from.
    seen_topics: Mapping[TopicName, TopicImage] | None = None
    # The version of the visible topics that `regexes` were last restricted to.
    seen_version: int | None = None
    # Classic members that got REBALANCE_IN_PROGRESS and whose rejoin timers run.
    rejoining: frozenset[str] = frozenset()


class VolatileChange(NamedTuple):
    """A group's new volatile state, as the result of a decision."""

    group_id: str
    state: VolatileState


class ConsumerGroup:
    """`members` are in the order in which they joined; `targets` and `subscriptions` were computed from them."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.subscriptions: dict[TopicName, Subscription] = {}
        self.regexes: dict[str, frozenset[TopicName]] = {}
        self._owners: dict[Partition, str] = {}
        self.volatile = VolatileState()

    def copy(self) -> "ConsumerGroup":
        """Return a copy to which a draft applies its records."""
        other = ConsumerGroup(self.group_id)
        other.epoch, other.target_epoch = self.epoch, self.target_epoch
        other.members, other.static_members = dict(self.members), dict(self.static_members)
        other.targets, other.subscriptions = dict(self.targets), dict(self.subscriptions)
        other.regexes, other._owners = dict(self.regexes), dict(self._owners)
        other.volatile = self.volatile
        return other

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    def has_capacity_for(self, member_id: str, instance_id: str | None, size_max: int) -> bool:
        """Whether a member may join; one that is in the group, or replaces one that is, always may."""
        is_known = member_id in self.members or self.static_member(instance_id) is not None
        return is_known or len(self.members) < size_max

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free(self, partition: Partition) -> bool:
        return partition not in self._owners

    def topics_of(self, member: Member) -> frozenset[TopicName]:
        """The topics to which a member subscribes, by name and by pattern."""
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def subscribed_topics(self) -> set[TopicName]:
        return {name for member in self.members.values() for name in self.topics_of(member)}

    def used_regexes(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    @property
    def has_consumer_members(self) -> bool:
        """Whether a member uses the new protocol."""
        return any(member.classic is None for member in self.members.values())

    def assignor_name(self, default: str) -> str:
        """Return the assignor that most members request; of several, the first in alphabetical order."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=default)

    def apply(self, record: GroupRecord) -> None:
        """Apply a record of this group to its state."""
        match record.key, record.value:
            case GroupKey(), GroupValue() as value:
                self.epoch = value.epoch
            case TopicsKey(), TopicsValue() as value:
                self.subscriptions = {
                    topic.name: Subscription(topic.topic_id, topic.partition_count) for topic in value.topics
                }
            case MemberKey() as key, MemberValue() as value:
                self._put(_with_metadata(self._member(key.member_id), value))
            case TargetEpochKey(), TargetEpochValue() as value:
                self.target_epoch = value.epoch
            case TargetKey() as key, TargetValue() as value:
                self.targets[key.member_id] = from_topics(value.topics)
            case CurrentKey() as key, CurrentValue() as value:
                self._put(_with_current(self._member(key.member_id), value))
            case RegexKey() as key, RegexValue() as value:
                self.regexes[key.pattern] = frozenset(value.topics)
            case key, None:
                self._delete(key)

    def _delete(self, key: Key) -> None:
        match key:
            case TopicsKey():
                self.subscriptions = {}
            case TargetEpochKey():
                self.target_epoch = NO_TARGET_EPOCH
            case TargetKey():
                self.targets.pop(key.member_id, None)
            case RegexKey():
                self.regexes.pop(key.pattern, None)
            case CurrentKey() if key.member_id in self.members:
                self._put(_without_current(self.members[key.member_id]))
            case MemberKey() if key.member_id in self.members:
                self._remove(self.members[key.member_id])

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id=member_id)

    def _put(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        for owned in (member.assigned, member.pending_revocation):
            for partition in assignment.partitions_of(owned):
                self._owners[partition] = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _remove(self, member: Member) -> None:
        self._release(member)
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: Member) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for partition in assignment.partitions_of(owned):
                if self._owners.get(partition) == member.member_id:
                    del self._owners[partition]


def _with_metadata(member: Member, value: MemberValue) -> Member:
    classic = None
    if value.classic is not None:
        protocols = tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in value.classic.protocols)
        classic = ClassicMembership(value.classic.session_timeout_ms, protocols)
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.topic_names),
        topic_regex=value.topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def _with_current(member: Member, value: CurrentValue) -> Member:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=from_topics(value.assigned),
        pending_revocation=from_topics(value.pending_revocation),
    )


def _without_current(member: Member) -> Member:
    return replace(
        member,
        member_epoch=LEAVE_EPOCH,
        previous_member_epoch=LEAVE_EPOCH,
        assigned=NO_PARTITIONS,
        pending_revocation=NO_PARTITIONS,
    )


def from_topics(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def to_topics(partitions: Assignment) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in assignment.in_order(partitions))


def tombstones(group: ConsumerGroup) -> Iterator[GroupRecord]:
    """Yield the tombstones of a group, in an order that leaves a valid group after each of them."""
    for member_id in group.members:
        yield from member_tombstones(group.group_id, member_id)
    for pattern in group.regexes:
        yield GroupRecord(RegexKey(group.group_id, pattern), None)
    for key in (TargetEpochKey(group.group_id), TopicsKey(group.group_id), GroupKey(group.group_id)):
        yield GroupRecord(key, None)


def member_tombstones(group_id: str, member_id: str) -> Iterator[GroupRecord]:
    for key in (CurrentKey(group_id, member_id), TargetKey(group_id, member_id), MemberKey(group_id, member_id)):
        yield GroupRecord(key, None)
