"""`range`: splits each topic's partitions into contiguous ranges, one per subscribed member, the first ones longer.

So partitions with the same index go to the same member in all topics of one size (co-partitioning), which joins need.
If the racks of members and replicas are known, partitions first go to members in a rack with a replica (KIP-881), as
long as the sizes of the ranges stay the same and co-partitioned topics stay together; the rest is split as usual.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from rookery.base.types import PartitionIndex, TopicName, TopicPartition
from rookery.client.membership.assignors.base import (
    Assignment,
    MemberId,
    MemberSubscription,
    PartitionRacks,
    StatelessAssignor,
    sorted_members,
)


class RangeAssignor(StatelessAssignor):
    name = "range"

    def assign(self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]) -> Assignment:
        order = sorted_members(members)
        racks = {member: members[member].rack or None for member in order}
        shares = []
        for topic, partition_racks in sorted(topics.items()):
            subscribers = [member for member in order if topic in members[member].topics]
            if subscribers and partition_racks:
                shares.append(_TopicShare(topic, partition_racks, {member: racks[member] for member in subscribers}))
        if any(share.is_rack_aware for share in shares):
            _assign_by_rack(shares)
        for share in shares:
            share.distribute()
        assignment: Assignment = {member: [] for member in members}
        for share in shares:
            for member, indexes in share.given.items():
                assignment[member] += [TopicPartition(share.topic, index) for index in sorted(indexes)]
        return assignment


class _TopicShare:
    """The assignment of one topic's partitions to its subscribers, so far."""

    def __init__(
        self, topic: TopicName, partition_racks: Sequence[frozenset[str]], subscribers: Mapping[MemberId, str | None]
    ) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.given: dict[MemberId, list[PartitionIndex]] = {member: [] for member in subscribers}
        self.partition_racks = partition_racks
        self._free = dict.fromkeys(range(len(partition_racks)))
        # The remainder of the division: so many members get one partition more than the others.
        self._min_count, self._extra_left = divmod(len(partition_racks), len(subscribers))
        self.is_rack_aware = _racks_matter(partition_racks, {rack for rack in subscribers.values() if rack})

    def capacity_left(self, member: MemberId) -> int:
        return max(0, self._min_count + (self._extra_left > 0) - len(self.given[member]))

    def matches(self, member: MemberId, index: PartitionIndex) -> bool:
        """Return whether a replica of the partition is in the member's rack; a member without a rack matches all."""
        rack = self.subscribers[member]
        return rack is None or rack in self.partition_racks[index]

    def give(self, member: MemberId, indexes: Collection[PartitionIndex]) -> None:
        if not indexes:
            return
        self.given[member] += indexes
        if len(self.given[member]) > self._min_count:
            self._extra_left -= 1
        for index in indexes:
            del self._free[index]

    def distribute(self, may_give: Callable[[MemberId, PartitionIndex], bool] = lambda member, index: True) -> None:
        for member in self.subscribers:
            indexes = [index for index in self._free if may_give(member, index)]
            self.give(member, indexes[: self.capacity_left(member)])


def _racks_matter(partition_racks: Sequence[frozenset[str]], member_racks: set[str]) -> bool:
    """Return whether the choice of member matters: not if every partition has a replica in every rack."""
    all_racks = frozenset[str]().union(*partition_racks)
    return not member_racks.isdisjoint(all_racks) and any(racks != all_racks for racks in partition_racks)


def _assign_by_rack(shares: Sequence[_TopicShare]) -> None:
    # Topics with the same subscribers and the same number of partitions are co-partitioned.
    co_partitioned: dict[tuple[tuple[MemberId, ...], int], list[_TopicShare]] = defaultdict(list)
    for share in shares:
        co_partitioned[tuple(share.subscribers), len(share.partition_racks)].append(share)
    for (subscribers, partition_count), group in co_partitioned.items():
        if len(group) > 1:
            _assign_together(group, subscribers, partition_count)
        elif group[0].is_rack_aware:
            group[0].distribute(group[0].matches)


def _assign_together(group: Sequence[_TopicShare], subscribers: Sequence[MemberId], partition_count: int) -> None:
    """Assign each partition index, in all topics of `group`, to the first member whose rack matches in every topic."""
    if not any(group[0].subscribers.values()):
        return
    for index in range(partition_count):
        for member in subscribers:
            if all(share.matches(member, index) and share.capacity_left(member) for share in group):
                for share in group:
                    share.give(member, [index])
                break
