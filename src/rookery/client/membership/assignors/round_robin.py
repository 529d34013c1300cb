"""`roundrobin`: assigns the partitions of all topics one by one to the next member that subscribes to the topic."""

from collections.abc import Mapping

from rookery.client.membership.assignors.base import (
    Assignment,
    MemberId,
    MemberSubscription,
    PartitionRacks,
    StatelessAssignor,
    partitions_of,
    sorted_members,
)


class RoundRobinAssignor(StatelessAssignor):
    name = "roundrobin"

    def assign(self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]) -> Assignment:
        assignment: Assignment = {member: [] for member in members}
        order = sorted_members(members)
        subscribed = frozenset[str]().union(*(member.topics for member in members.values()))
        turn = 0
        for topic in sorted(subscribed & topics.keys()):
            for partition in partitions_of(topic, topics):
                while topic not in members[order[turn]].topics:
                    turn = (turn + 1) % len(order)
                assignment[order[turn]].append(partition)
                turn = (turn + 1) % len(order)
        return assignment
