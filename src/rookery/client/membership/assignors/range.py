"""`range`: each topic's partitions are cut into as many neighbouring ranges as it has members, the first ones longer.

So partitions with the same number go to the same member in all topics of one size (co-partitioning), which joins need.
Where members and replicas tell their racks, partitions go first to members in a rack that has a replica (KIP-881), as
long as ranges stay as long as they would be and co-partitioned topics stay together; the rest is cut up as always.
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
    in_order,
)


class RangeAssignor(StatelessAssignor):
    name = "range"

    def assign(self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]) -> Assignment:
        order = in_order(members)
        racks = {member: members[member].rack or None for member in order}
        shares = []
        for topic, partition_racks in sorted(topics.items()):
            subscribers = [member for member in order if topic in members[member].topics]
            if subscribers and partition_racks:
                shares.append(_TopicShare(topic, partition_racks, {member: racks[member] for member in subscribers}))
        if any(share.is_rack_aware for share in shares):
            _assign_by_rack(shares)
        for share in shares:
            share.cut_up()
        assignment: Assignment = {member: [] for member in members}
        for share in shares:
            for member, indexes in share.given.items():
                assignment[member] += [TopicPartition(share.topic, index) for index in sorted(indexes)]
        return assignment


class _TopicShare:
    """How far the partitions of one topic are given to its subscribers."""

    def __init__(
        self, topic: TopicName, partition_racks: Sequence[frozenset[str]], subscribers: Mapping[MemberId, str | None]
    ) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.given: dict[MemberId, list[PartitionIndex]] = {member: [] for member in subscribers}
        self.partition_racks = partition_racks
        self._free = dict.fromkeys(range(len(partition_racks)))
        # As many members as there are partitions left over get one more.
        self._least, self._longer_left = divmod(len(partition_racks), len(subscribers))
        self.is_rack_aware = _racks_matter(partition_racks, {rack for rack in subscribers.values() if rack})

    def room(self, member: MemberId) -> int:
        return max(0, self._least + (self._longer_left > 0) - len(self.given[member]))

    def matches(self, member: MemberId, index: PartitionIndex) -> bool:
        """A member without a rack is as near to one replica as to another."""
        rack = self.subscribers[member]
        return rack is None or rack in self.partition_racks[index]

    def give(self, member: MemberId, indexes: Collection[PartitionIndex]) -> None:
        if not indexes:
            return
        self.given[member] += indexes
        if len(self.given[member]) > self._least:
            self._longer_left -= 1
        for index in indexes:
            del self._free[index]

    def cut_up(self, may_give: Callable[[MemberId, PartitionIndex], bool] = lambda member, index: True) -> None:
        for member in self.subscribers:
            indexes = [index for index in self._free if may_give(member, index)]
            self.give(member, indexes[: self.room(member)])


def _racks_matter(partition_racks: Sequence[frozenset[str]], member_racks: set[str]) -> bool:
    """If every partition is in every rack, anyone is as good as anyone."""
    all_racks = frozenset[str]().union(*partition_racks)
    return not member_racks.isdisjoint(all_racks) and any(racks != all_racks for racks in partition_racks)


def _assign_by_rack(shares: Sequence[_TopicShare]) -> None:
    # Topics with the same subscribers and size are co-partitioned.
    alike: dict[tuple[tuple[MemberId, ...], int], list[_TopicShare]] = defaultdict(list)
    for share in shares:
        alike[tuple(share.subscribers), len(share.partition_racks)].append(share)
    for (subscribers, partition_count), group in alike.items():
        if len(group) > 1:
            _assign_together(group, subscribers, partition_count)
        elif group[0].is_rack_aware:
            group[0].cut_up(group[0].matches)


def _assign_together(group: Sequence[_TopicShare], subscribers: Sequence[MemberId], partition_count: int) -> None:
    """Each partition number, in all topics at once, to the first member whose rack has replicas in every topic."""
    if not any(group[0].subscribers.values()):
        return
    for index in range(partition_count):
        for member in subscribers:
            if all(share.matches(member, index) and share.room(member) for share in group):
                for share in group:
                    share.give(member, [index])
                break
