"""What consumers hand out: records, and the words for positions.

Everything is a plain value. `ConsumerRecord`s are made by the thousand: `consume.decoding` builds them with `map` from
columns, so their order of fields is the order of its columns.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from rookery.base.types import LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client.generics import K, V
from rookery.client.membership.interfaces import ConsumerGroupMetadata, OffsetAndMetadata, RebalanceListener
from rookery.records.record import Headers

__all__ = [
    "BEGINNING",
    "END",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "Deserializer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Position",
    "RebalanceListener",
    "Timestamp",
]


_Read = TypeVar("_Read", covariant=True)

# Values of `timestamp_type`.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """`timestamp_type` is 0 for the producer's time and 1 for the broker's."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs
    timestamp_type: int
    key: K | None
    value: V | None
    headers: Headers
    leader_epoch: LeaderEpoch


class ConsumerRecords(list[ConsumerRecord[K, V]]):
    """The records of one poll: in order within a partition, partition by partition."""

    __slots__ = ()

    def partitions(self) -> set[TopicPartition]:
        return set(self.by_partition())

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        found: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        for record in self:
            found.setdefault(TopicPartition(record[0], record[1]), []).append(record)
        return found


class DeserializerObject(Protocol[_Read]):
    def deserialize(self, topic: TopicName, data: bytes, /) -> _Read: ...


# Not called for keys and values that are None: those stay None.
Deserializer: TypeAlias = DeserializerObject[_Read] | Callable[[TopicName, bytes], _Read]


class ConsumerInterceptor(Protocol):
    """What they raise is logged and changes nothing."""

    def on_consume(self, records: ConsumerRecords[Any, Any], /) -> ConsumerRecords[Any, Any]:
        """Before a poll returns: return the records, or others in their place."""
        ...

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], /) -> None:
        """After a commit that succeeded."""
        ...


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, with that record's own time and leader epoch."""

    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch


class Timestamp(NamedTuple):
    """The position of the first record with this timestamp or a later one; the end if there is none."""

    timestamp_ms: TimestampMs


class _Edge:
    """An end of a partition, wherever it lies when it is asked for."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


BEGINNING: Final = _Edge("BEGINNING")
END: Final = _Edge("END")

# Where to read from or to: an offset, an end of the partition, or a time.
Position: TypeAlias = Offset | Timestamp | _Edge


def partitions_of(partitions: Iterable[TopicPartition | tuple[str, int]]) -> list[TopicPartition]:
    """Plain pairs are as good as `TopicPartition`s."""
    return [TopicPartition(*partition) for partition in partitions]
