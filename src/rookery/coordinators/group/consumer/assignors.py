"""Server-side assignors: they compute which member of a group shall own which partition.

Both assign every partition of every subscribed topic to exactly one of the topic's subscribers. Racks are ignored, as
in Kafka 4.

`range` sorts the members, static ones first, and cuts each topic into one range per subscriber. The ranges have equal
lengths; if the division leaves a remainder, the first ones are one longer. Members with equal subscriptions get the
same partitions of equally large topics.

`uniform` balances the number of partitions over all topics, and within that moves as few partitions as it can. If all
members subscribe to the same topics, their sizes differ by at most one, and a member loses only its surplus. If they do
not, the result is such that no partition could move to a subscriber that has at least two partitions fewer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from rookery.base.types import TopicId
from rookery.base.values import value_class
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import Assignment, Partition


@value_class
class Subscriber:
    """A member as the input of an assignor; `current` is its present target."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[TopicId]
    current: Assignment


Targets: TypeAlias = dict[str, Assignment]
Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[TopicId, int]], Targets]


def assign_range(subscribers: Sequence[Subscriber], partition_counts: Mapping[TopicId, int]) -> Targets:
    targets: dict[str, dict[TopicId, frozenset[int]]] = {subscriber.member_id: {} for subscriber in subscribers}
    ordered = sorted(subscribers, key=_range_order)
    for topic_id, count in partition_counts.items():
        members = [subscriber.member_id for subscriber in ordered if topic_id in subscriber.topic_ids]
        start = 0
        for position, member_id in enumerate(members):
            end = start + count // len(members) + (position < count % len(members))
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {**targets}


def _range_order(subscriber: Subscriber) -> tuple[bool, str]:
    return subscriber.instance_id is None, subscriber.instance_id or subscriber.member_id


def assign_uniform(subscribers: Sequence[Subscriber], partition_counts: Mapping[TopicId, int]) -> Targets:
    balance = _Balance(subscribers, partition_counts)
    balance.keep_current()
    balance.assign_unowned()
    while balance.improve():
        pass
    return {member_id: assignment.collect(owned) for member_id, owned in balance.owned.items()}


class _Balance:
    """An assignment under construction. Topics with the same subscribers form a class and are balanced together."""

    def __init__(self, subscribers: Iterable[Subscriber], partition_counts: Mapping[TopicId, int]) -> None:
        self._subscribers = sorted(subscribers, key=lambda subscriber: subscriber.member_id)
        self._counts = partition_counts
        self._classes = self._group_topics()
        self._class_of = {topic_id: members for members, topic_ids in self._classes for topic_id in topic_ids}
        self._taken: set[Partition] = set()
        # The dictionaries are used as ordered sets.
        self.owned: dict[str, dict[Partition, None]] = {subscriber.member_id: {} for subscriber in self._subscribers}

    def _group_topics(self) -> list[tuple[tuple[str, ...], list[TopicId]]]:
        """Return the classes, those with the fewest subscribers first: they have the least choice."""
        subscribers_of: dict[TopicId, list[str]] = {topic_id: [] for topic_id in sorted(self._counts)}
        for subscriber in self._subscribers:
            for topic_id in subscriber.topic_ids & subscribers_of.keys():
                subscribers_of[topic_id].append(subscriber.member_id)
        classes: dict[tuple[str, ...], list[TopicId]] = {}
        for topic_id, members in subscribers_of.items():
            if members:
                classes.setdefault(tuple(members), []).append(topic_id)
        return sorted(classes.items(), key=lambda item: (len(item[0]), item))

    def keep_current(self) -> None:
        for subscriber in self._subscribers:
            for partition in assignment.partitions_of(subscriber.current):
                topic_id, index = partition
                exists = topic_id in subscriber.topic_ids and index < self._counts.get(topic_id, 0)
                if exists and partition not in self._taken:
                    self._taken.add(partition)
                    self.owned[subscriber.member_id][partition] = None

    def assign_unowned(self) -> None:
        for members, topic_ids in self._classes:
            sizes = [(len(self.owned[member_id]), member_id) for member_id in members]
            heapify(sizes)
            for topic_id in topic_ids:
                for index in range(self._counts[topic_id]):
                    if (topic_id, index) not in self._taken:
                        size, member_id = heappop(sizes)
                        self.owned[member_id][topic_id, index] = None
                        heappush(sizes, (size + 1, member_id))

    def improve(self) -> bool:
        """Balance every class by itself; return whether a partition moved.

        Each move makes the sizes more even, so that repeated calls come to an end.
        """
        moved = False
        for members, _topic_ids in self._classes:
            moved |= self._balance_class(members)
        return moved

    def _balance_class(self, members: tuple[str, ...]) -> bool:
        movable = {
            member_id: [partition for partition in self.owned[member_id] if self._class_of[partition[0]] == members]
            for member_id in members
        }
        sizes = {member_id: len(self.owned[member_id]) for member_id in members}
        donors = [(-sizes[member_id], member_id) for member_id in members if movable[member_id]]
        recipients = [(sizes[member_id], member_id) for member_id in members]
        heapify(donors)
        heapify(recipients)
        moved = False
        while donors:
            # Heap entries are not updated in place: an entry whose size is no longer the member's is dropped.
            if sizes[donors[0][1]] != -donors[0][0] or not movable[donors[0][1]]:
                heappop(donors)
            elif sizes[recipients[0][1]] != recipients[0][0]:
                heappop(recipients)
            elif sizes[donors[0][1]] - sizes[recipients[0][1]] < 2:
                break
            else:
                donor, recipient = donors[0][1], recipients[0][1]
                partition = movable[donor].pop()
                del self.owned[donor][partition]
                self.owned[recipient][partition] = None
                movable[recipient].append(partition)
                for member_id, change in ((donor, -1), (recipient, 1)):
                    sizes[member_id] += change
                    heappush(donors, (-sizes[member_id], member_id))
                    heappush(recipients, (sizes[member_id], member_id))
                moved = True
        return moved


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
