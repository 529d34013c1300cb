"""The offsets of a shard's groups, as the log defines them: committed ones, and those of open transactions.

A partition's offset is the one that is last in the log. The records of a transaction take effect when it commits, but
at their own position in the log: a commit that was written after them, and before the end of their transaction, stays.
Compaction keeps the same record. A tombstone also drops pending offsets.
"""

from collections.abc import Collection, Mapping
from itertools import count
from types import MappingProxyType

from rookery.base.types import ProducerId, TopicPartition
from rookery.coordinators.group.offsets.pending import LoggedOffset, PendingOffsets
from rookery.coordinators.group.records import GroupRecord, OffsetCommitKey, OffsetCommitValue

_NONE: Mapping[TopicPartition, LoggedOffset] = MappingProxyType({})


class OffsetStore:
    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._by_group: dict[str, dict[TopicPartition, LoggedOffset]] = {}
        # Records are replayed in the order of the log; only the order of these numbers matters.
        self._positions = count()

    def __len__(self) -> int:
        """The number of committed offsets."""
        return sum(map(len, self._by_group.values()))

    def of(self, group_id: str) -> Mapping[TopicPartition, LoggedOffset]:
        """The committed offsets of a group."""
        return self._by_group.get(group_id, _NONE)

    def groups(self) -> Collection[str]:
        """The groups that have offsets, including those that have only pending ones."""
        return dict.fromkeys((*self._by_group, *self.pending.groups()))

    def partitions_of(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions that need a tombstone to delete the group's offsets: also those with pending offsets."""
        return dict.fromkeys((*self.of(group_id), *self.pending.of(group_id)))

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._put(key, LoggedOffset(next(self._positions), value))
            return
        # A transaction that commits after the tombstone must not bring a deleted offset back.
        self.pending.drop(key)
        offsets = self._by_group.get(key.group_id)
        if offsets is not None:
            offsets.pop(key.topic_partition, None)
            if not offsets:
                del self._by_group[key.group_id]

    def replay_pending(self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: ProducerId) -> None:
        self.pending.put(producer_id, key, LoggedOffset(next(self._positions), value))

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> Collection[str]:
        """End the transaction of a producer; return the groups that got new offsets by it."""
        offsets = self.pending.take(producer_id)
        if not committed:
            return ()
        newest = {key: offset for key, offset in offsets.items() if self._is_newest(key, offset)}
        for key, offset in newest.items():
            self._put(key, offset)
        return {key.group_id for key in newest}

    def _is_newest(self, key: OffsetCommitKey, offset: LoggedOffset) -> bool:
        # A transaction may end long after its offsets were written. Without the comparison it would replace a commit
        # that was made meanwhile, and the group would process records again; a reload after compaction, which keeps
        # the last record, would yield the other offset.
        known = self.of(key.group_id).get(key.topic_partition)
        return known is None or offset.position > known.position

    def _put(self, key: OffsetCommitKey, offset: LoggedOffset) -> None:
        self._by_group.setdefault(key.group_id, {})[key.topic_partition] = offset


def tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, partition.topic, partition.partition), None)
