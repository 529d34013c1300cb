"""What consumers hand out: records, and the words for positions.

Everything is a plain value. `ConsumerRecord`s are made by the thousand: `consume.decoding` builds them with `map` from
columns, so their order of fields is the order of its columns. They are structs that the garbage collector does not look
at, which costs less than half of what a tuple does: a record is in no cycle unless its own key or value refers to it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

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


class ConsumerRecord(Struct, Generic[K, V], frozen=True, gc=False):
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
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
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


# Plain pairs are as good as `TopicPartition`s.
OnePartition: TypeAlias = TopicPartition | tuple[TopicName, PartitionIndex]
# One partition, or several.
SomePartitions: TypeAlias = OnePartition | Iterable[OnePartition]


def partition_of(partition: object) -> TopicPartition:
    if not _is_partition(partition):
        raise TypeError(f"{partition!r} is no partition: give a TopicPartition, or a pair of topic and number")
    return TopicPartition(*partition)


def partitions_of(partitions: SomePartitions | Iterable[SomePartitions]) -> list[TopicPartition]:
    """Of one partition, of several, or of a call's arguments, each of which may be one or several."""
    if _is_partition(partitions):
        return [TopicPartition(*partitions)]
    found: list[TopicPartition] = []
    for item in _several(partitions):
        found += [partition_of(item)] if _is_partition(item) else map(partition_of, _several(item))
    return found


def _is_partition(given: object) -> TypeGuard[tuple[TopicName, PartitionIndex]]:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    topic, index = given
    return isinstance(topic, str) and isinstance(index, int) and not isinstance(index, bool)


def _several(given: object) -> Iterable[object]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        partition_of(given)
        return ()
    return given


def checked_offset(partition: TopicPartition, offset: object) -> Offset:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(f"partition {partition} has no offset {offset!r}: offsets are whole numbers from 0 on")
    return offset


def check_listener(listener: object) -> None:
    names = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
    missing = [name for name in names if not callable(getattr(listener, name, None))]
    if missing:
        raise TypeError(f"{listener!r} is no RebalanceListener: it has no {missing[0]}")
