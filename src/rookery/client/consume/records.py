"""The values that a consumer returns and accepts: records, offsets, positions.

`consume.decoder` builds `ConsumerRecord`s with `map` from columns, so the order of their fields is the order of its
columns. They are structs that the garbage collector does not track (`gc=False`), which costs less than half of what a
tuple does. That is safe: a record is part of a reference cycle only if its own key or value refers to it.
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
    """One record. `timestamp_type` is 0 if the producer set the timestamp (CreateTime), 1 if the broker did."""

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
    """The records of one poll: grouped by partition, in the order of offsets within a partition."""

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


# A deserializer is not called for keys and values that are None: those stay None.
Deserializer: TypeAlias = DeserializerObject[_Read] | Callable[[TopicName, bytes], _Read]


class ConsumerInterceptor(Protocol):
    """Sees the records of every poll and every successful commit. Its exceptions are logged and otherwise ignored."""

    def on_consume(self, records: ConsumerRecords[Any, Any], /) -> ConsumerRecords[Any, Any]:
        """Called before a poll returns. The poll returns the result instead of `records`."""
        ...

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], /) -> None:
        """Called after a successful commit."""
        ...


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a requested time, with the timestamp and leader epoch of the record there."""

    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch


class Timestamp(NamedTuple):
    """The position of the first record with this timestamp or a later one; the end if there is no such record."""

    timestamp_ms: TimestampMs


class _Edge:
    """The first or last position of a partition, resolved to an offset when it is used."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


BEGINNING: Final = _Edge("BEGINNING")
END: Final = _Edge("END")

# Where to read from or to: an offset, BEGINNING, END, or a timestamp.
Position: TypeAlias = Offset | Timestamp | _Edge


# A (topic, index) pair is accepted wherever a `TopicPartition` is.
OnePartition: TypeAlias = TopicPartition | tuple[TopicName, PartitionIndex]
# One partition, or several.
SomePartitions: TypeAlias = OnePartition | Iterable[OnePartition]


def partition_of(partition: object) -> TopicPartition:
    if not _is_partition(partition):
        raise TypeError(f"{partition!r} is not a partition: pass a TopicPartition or a (topic, index) pair")
    return TopicPartition(*partition)


def partitions_of(partitions: SomePartitions | Iterable[SomePartitions]) -> list[TopicPartition]:
    """Return the partitions in `partitions`: one, several, or positional arguments of which each is one or several."""
    if _is_partition(partitions):
        return [TopicPartition(*partitions)]
    found: list[TopicPartition] = []
    for item in _checked_iterable(partitions):
        found += [partition_of(item)] if _is_partition(item) else map(partition_of, _checked_iterable(item))
    return found


def _is_partition(given: object) -> TypeGuard[tuple[TopicName, PartitionIndex]]:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    topic, index = given
    return isinstance(topic, str) and isinstance(index, int) and not isinstance(index, bool)


def _checked_iterable(given: object) -> Iterable[object]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        # A string is iterable, too: without this check a topic name would be read as a list of one-letter partitions.
        partition_of(given)
        return ()
    return given


def checked_offset(partition: TopicPartition, offset: object) -> Offset:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(f"partition {partition} has no offset {offset!r}: offsets are integers from 0 on")
    return offset


def check_listener(listener: object) -> None:
    names = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
    missing = [name for name in names if not callable(getattr(listener, name, None))]
    if missing:
        raise TypeError(f"{listener!r} is not a RebalanceListener: it has no {missing[0]}")
