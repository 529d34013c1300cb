"""The offsets of a shard's groups, as the log tells them: committed ones, and those of open transactions.

Of all that was committed for a partition, the record that stands last in the log counts. A transaction's records count
once it is committed, but in the place where they stand: a commit that was written after them, and before the end of
their transaction, stays. That is also what compaction keeps. A tombstone takes pending offsets along.
"""

from collections.abc import Collection, Mapping
from itertools import count
from types import MappingProxyType

from rookery.base.types import ProducerId, TopicPartition
from rookery.coordinators.group.offsets.pending import PendingOffsets, PlacedOffset
from rookery.coordinators.group.records import GroupRecord, OffsetCommitKey, OffsetCommitValue

_NONE: Mapping[TopicPartition, PlacedOffset] = MappingProxyType({})


class OffsetStore:
    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._by_group: dict[str, dict[TopicPartition, PlacedOffset]] = {}
        # Records are replayed in the order of the log; which numbers they get does not matter.
        self._positions = count()

    def of(self, group_id: str) -> Mapping[TopicPartition, PlacedOffset]:
        """What is committed."""
        return self._by_group.get(group_id, _NONE)

    def groups(self) -> Collection[str]:
        """All that have offsets, be they only pending."""
        return dict.fromkeys((*self._by_group, *self.pending.groups()))

    def partitions_of(self, group_id: str) -> Collection[TopicPartition]:
        """What has to be forgotten if the group's offsets are: also what is about to be committed."""
        return dict.fromkeys((*self.of(group_id), *self.pending.of(group_id)))

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._put(key, PlacedOffset(next(self._positions), value))
            return
        self.pending.drop(key)
        offsets = self._by_group.get(key.group_id)
        if offsets is not None:
            offsets.pop(key.topic_partition, None)
            if not offsets:
                del self._by_group[key.group_id]

    def replay_pending(self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: ProducerId) -> None:
        self.pending.put(producer_id, key, PlacedOffset(next(self._positions), value))

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> Collection[str]:
        """The groups that have new offsets by it."""
        offsets = self.pending.take(producer_id)
        if not committed:
            return ()
        newest = {key: offset for key, offset in offsets.items() if self._is_newest(key, offset)}
        for key, offset in newest.items():
            self._put(key, offset)
        return {key.group_id for key in newest}

    def _is_newest(self, key: OffsetCommitKey, offset: PlacedOffset) -> bool:
        known = self.of(key.group_id).get(key.topic_partition)
        return known is None or offset.position > known.position

    def _put(self, key: OffsetCommitKey, offset: PlacedOffset) -> None:
        self._by_group.setdefault(key.group_id, {})[key.topic_partition] = offset


def tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, partition.topic, partition.partition), None)
