"""A consumer group while a request or timer is decided: records are collected, and applied to a copy of the group.

The shard's own group changes only when the records have been written and are replayed. Most heartbeats change nothing,
so that the copy is made with the first record.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rookery.coordinators.group.consumer.assignment import Assignment
from rookery.coordinators.group.consumer.environment import cancel_timers
from rookery.coordinators.group.consumer.group import (
    ConsumerGroup,
    Subscription,
    VolatileChange,
    member_tombstones,
    to_topics,
)
from rookery.coordinators.group.consumer.member import Member
from rookery.coordinators.group.consumer_records import (
    ClassicMemberValue,
    ClassicProtocolValue,
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    RegexKey,
    RegexValue,
    SubscribedTopic,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    TopicsKey,
    TopicsValue,
)
from rookery.coordinators.group.records import GroupRecord
from rookery.coordinators.result import Completion, CoordinatorResult, Timer


class Draft:
    """`group` reflects all collected records. `records` may start with tombstones of another group of the id."""

    def __init__(self, group: ConsumerGroup, records: Iterable[GroupRecord] = ()) -> None:
        self._original = group
        self.group = group
        self.records: list[GroupRecord] = list(records)
        self.timers: list[Timer] = []
        self.completions: list[Completion] = []
        self.volatile = group.volatile

    def result(self, response: Any) -> CoordinatorResult[Any]:
        is_changed = self.volatile is not self._original.volatile
        return CoordinatorResult(
            response=response,
            records=self.records,
            completions=self.completions,
            timers=self.timers,
            volatile_changes=(VolatileChange(self.group.group_id, self.volatile),) if is_changed else (),
        )

    def set_volatile(self, **changes: Any) -> None:
        self.volatile = replace(self.volatile, **changes)

    @property
    def had_consumer_members(self) -> bool:
        """Whether a member used the new protocol before this draft."""
        return self._original.has_consumer_members

    def emit(self, records: Iterable[GroupRecord]) -> None:
        for record in records:
            if self.group is self._original:
                self.group = self._original.copy()
            self.group.apply(record)
            self.records.append(record)

    def _put(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        self.emit((GroupRecord(key, value),))

    def set_epoch(self, epoch: int) -> None:
        self._put(GroupKey(self.group.group_id), GroupValue(epoch))

    def set_target_epoch(self, epoch: int) -> None:
        self._put(TargetEpochKey(self.group.group_id), TargetEpochValue(epoch))

    def set_target(self, member_id: str, target: Assignment) -> None:
        self._put(TargetKey(self.group.group_id, member_id), TargetValue(to_topics(target)))

    def set_subscriptions(self, subscriptions: dict[str, Subscription]) -> None:
        topics = [
            SubscribedTopic(found.topic_id, name, found.partition_count)
            for name, found in sorted(subscriptions.items())
        ]
        self._put(TopicsKey(self.group.group_id), TopicsValue(tuple(topics)))

    def set_regex(self, pattern: str, topics: frozenset[str], *, now_ms: int) -> None:
        self._put(RegexKey(self.group.group_id, pattern), RegexValue(tuple(sorted(topics)), 0, now_ms))

    def delete_regex(self, pattern: str) -> None:
        self._put(RegexKey(self.group.group_id, pattern), None)

    def set_member(self, member: Member) -> None:
        """Write a member's metadata: its ids, its client and its subscription."""
        self._put(MemberKey(self.group.group_id, member.member_id), _member_value(member))

    def set_current(self, member: Member) -> None:
        """Write a member's current assignment: its epochs, state and partitions."""
        value = CurrentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned=to_topics(member.assigned),
            pending_revocation=to_topics(member.pending_revocation),
        )
        self._put(CurrentKey(self.group.group_id, member.member_id), value)

    def remove_member(self, member_id: str) -> None:
        self.emit(member_tombstones(self.group.group_id, member_id))

    def replace_member(self, old: Member, member_id: str) -> Member:
        """Replace a static member by its next incarnation `member_id`, which keeps the partitions and the target.

        It starts at epoch 0, as every member that joins.
        """
        target = self.group.target_of(old.member_id)
        new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.remove_member(old.member_id)
        self.timers += cancel_timers(self.group.group_id, old.member_id)
        self.set_member(new)
        self.set_target(member_id, target)
        self.set_current(new)
        return new


def _member_value(member: Member) -> MemberValue:
    classic = None
    if member.classic is not None:
        protocols = tuple(ClassicProtocolValue(offered.name, offered.metadata) for offered in member.classic.protocols)
        classic = ClassicMemberValue(member.classic.session_timeout_ms, protocols)
    return MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(member.topic_names)),
        topic_regex=member.topic_regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic=classic,
    )
