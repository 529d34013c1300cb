"""Sets of partitions by topic id: those that a member owns, must revoke, or has as its target.

An assignment is never modified after it is built, has no empty sets, and is compared by value. Targets, records and
responses may share one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from rookery.base.types import PartitionIndex, TopicId

Assignment: TypeAlias = Mapping[TopicId, frozenset[PartitionIndex]]
Partition: TypeAlias = tuple[TopicId, PartitionIndex]

NO_PARTITIONS: Assignment = {}


def collect(partitions: Iterable[Partition]) -> Assignment:
    found: dict[TopicId, set[PartitionIndex]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def partitions_of(assignment: Assignment) -> Iterator[Partition]:
    """Yield every partition, in the order of topic ids and indexes."""
    for topic_id, indexes in in_order(assignment):
        for index in indexes:
            yield topic_id, index


def in_order(assignment: Assignment) -> Iterator[tuple[TopicId, list[PartitionIndex]]]:
    for topic_id in sorted(assignment):
        yield topic_id, sorted(assignment[topic_id])


def size(assignment: Assignment) -> int:
    return sum(len(indexes) for indexes in assignment.values())


def intersection(left: Assignment, right: Assignment) -> Assignment:
    shared = {topic_id: indexes & right.get(topic_id, frozenset()) for topic_id, indexes in left.items()}
    return {topic_id: indexes for topic_id, indexes in shared.items() if indexes}


def difference(left: Assignment, right: Assignment) -> Assignment:
    rest = {topic_id: indexes - right.get(topic_id, frozenset()) for topic_id, indexes in left.items()}
    return {topic_id: indexes for topic_id, indexes in rest.items() if indexes}


def union(left: Assignment, right: Assignment) -> Assignment:
    both = dict(left)
    for topic_id, indexes in right.items():
        both[topic_id] = both.get(topic_id, frozenset()) | indexes
    return both


def is_subset(part: Assignment, whole: Assignment) -> bool:
    return not difference(part, whole)


def overlaps(left: Assignment, right: Assignment) -> bool:
    return bool(intersection(left, right))
