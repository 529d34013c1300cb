"""Offsets of open transactions, by producer: they are in the log, but not visible to OffsetFetch yet.

A producer has one open transaction at a time, so that its id identifies the transaction. Several producers may have
offsets for the same partition of the same group. `OffsetStore` decides which of them become visible.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rookery.base.types import ProducerId, TopicPartition
from rookery.coordinators.group.records import OffsetCommitKey, OffsetCommitValue


class LoggedOffset(NamedTuple):
    """An offset and its position in the log: of two offsets, the one with the higher position was written later."""

    position: int
    value: OffsetCommitValue


class PendingOffsets:
    """Invariant: `_by_group` counts, for each partition of each group, the producers that have an offset for it."""

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[OffsetCommitKey, LoggedOffset]] = {}
        self._by_group: dict[str, Counter[TopicPartition]] = {}

    def of(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions for which open transactions have offsets."""
        return self._by_group.get(group_id, {}).keys()

    def groups(self) -> Collection[str]:
        return self._by_group.keys()

    def put(self, producer_id: ProducerId, key: OffsetCommitKey, offset: LoggedOffset) -> None:
        offsets = self._by_producer.setdefault(producer_id, {})
        if key not in offsets:
            self._by_group.setdefault(key.group_id, Counter())[key.topic_partition] += 1
        offsets[key] = offset

    def drop(self, key: OffsetCommitKey) -> None:
        """Drop the pending offsets of all producers for one partition; their transactions stay open."""
        if key.topic_partition not in self.of(key.group_id):
            return
        for offsets in self._by_producer.values():
            if offsets.pop(key, None) is not None:
                self._discount(key)

    def take(self, producer_id: ProducerId) -> Mapping[OffsetCommitKey, LoggedOffset]:
        """Remove and return the pending offsets of a producer."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            self._discount(key)
        return offsets

    def _discount(self, key: OffsetCommitKey) -> None:
        partitions = self._by_group[key.group_id]
        partitions[key.topic_partition] -= 1
        if not partitions[key.topic_partition]:
            del partitions[key.topic_partition]
        if not partitions:
            del self._by_group[key.group_id]
