"""The committed offsets of a shard's groups, as the log tells them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rookery.base.types import TopicPartition
from rookery.coordinators.group.records import GroupRecord, OffsetCommitKey, OffsetCommitValue

_NONE: Mapping[TopicPartition, OffsetCommitValue] = MappingProxyType({})


class OffsetStore:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        return self._by_group.get(group_id, _NONE)

    def __iter__(self) -> Iterator[tuple[str, Mapping[TopicPartition, OffsetCommitValue]]]:
        return iter(self._by_group.items())

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if value is not None:
            self._by_group.setdefault(key.group_id, {})[partition] = value
            return
        offsets = self._by_group.get(key.group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._by_group[key.group_id]


def tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, partition.topic, partition.partition), None)
