"""Which partition a record goes to: the Java client's rules, so that both clients send a key to the same place.

    explicit      the record says it
    with a key    murmur2 of the serialized key, modulo the topic's partitions
    without one   one partition until about `batch.size` bytes went there, then another at random (KIP-794)

A custom partitioner is an object with `partition`, or any function with the same arguments; `RoundRobinPartitioner` is
one. `producer` knows the default's rules itself, since they are in its hot path: `KeyHashes` and `StickyPartition`.

Pure: randomness is injected.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import count
from operator import index
from typing import Any, Protocol, TypeAlias

from rookery.base.types import Buffer, PartitionIndex, TopicName
from rookery.client.errors import SerializationError

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
# Hashes that are remembered: keys that come again cost a look-up only.
_REMEMBERED_KEYS_MAX = 16_384
_REMEMBERED_KEY_BYTES_MAX = 64
# How to read the whole words of short keys at once.
_SHORT_WORDS = [struct.Struct(f"<{words}I") for words in range(33)]


class Partitioner(Protocol):
    def partition(
        self,
        topic: TopicName,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        *,
        available: Sequence[PartitionIndex],
    ) -> PartitionIndex:
        """A partition below `partition_count`; key and value are serialized, `available` partitions have a leader."""
        ...


PartitionerLike: TypeAlias = Partitioner | Callable[..., PartitionIndex]


def partition_function(partitioner: PartitionerLike) -> Callable[..., PartitionIndex]:
    """The partitioner as a function. What it raises, or returns instead of a number, concerns one record."""
    choose: Any = getattr(partitioner, "partition", partitioner)

    def partition(topic: TopicName, *record: Any, available: Sequence[PartitionIndex]) -> PartitionIndex:
        try:
            return index(choose(topic, *record, available=available))
        except Exception as error:
            raise SerializationError(f"topic {topic}: the partitioner failed: {error!r}") from error

    return partition


def murmur2(data: Buffer) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients share; an unsigned number."""
    length = len(data)
    value = _SEED ^ length
    word_count = length >> 2
    reader = _SHORT_WORDS[word_count] if word_count < 33 else struct.Struct(f"<{word_count}I")
    for word in reader.unpack_from(data):
        word = word * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ ((word ^ word >> 24) * _MULTIPLIER & _MASK)
    if length & 3:
        value = (value ^ int.from_bytes(data[word_count << 2 :], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: Buffer, partition_count: int) -> PartitionIndex:
    return (murmur2(key) & _POSITIVE) % partition_count


class KeyHashes(dict[bytes, int]):
    """The positive murmur2 hash of each key that was asked for: `hashes[key] % partition_count`."""

    def __missing__(self, key: bytes) -> int:
        hashed = murmur2(key) & _POSITIVE
        if len(key) <= _REMEMBERED_KEY_BYTES_MAX:
            if len(self) >= _REMEMBERED_KEYS_MAX:
                self.clear()
            self[key] = hashed
        return hashed


class StickyPartition:
    """Where a topic's records without a key go now. `choose(n)` returns a number below n, as `random.randrange`."""

    __slots__ = ("_batch_size_bytes", "_choose", "partition", "switch_at_bytes")

    def __init__(self, choose: Callable[[int], int], batch_size_bytes: int) -> None:
        self._choose = choose
        self._batch_size_bytes = batch_size_bytes
        self.partition: PartitionIndex = -1
        self.switch_at_bytes = 0

    def switch(self, available: Sequence[PartitionIndex], partition_count: int) -> PartitionIndex:
        """Another partition at random, of those that have a leader if there are any."""
        # Looked at again, a partition may be the same: with one that is all there is, and Kafka does not mind either.
        self.partition = available[self._choose(len(available))] if available else self._choose(partition_count)
        return self.partition

    def start(self, appended_bytes: int) -> None:
        """Stay until a batch's worth more than `appended_bytes` was appended to the partition."""
        self.switch_at_bytes = appended_bytes + self._batch_size_bytes

    def is_due(self, appended_bytes: int, available: Sequence[PartitionIndex]) -> bool:
        """Whether enough went there, or it has lost its leader while others have one."""
        return appended_bytes >= self.switch_at_bytes or (bool(available) and self.partition not in available)


class RoundRobinPartitioner:
    """One partition after the other, keys or not, as Java's class of that name does."""

    def __init__(self) -> None:
        self._turns: dict[TopicName, count[int]] = {}

    def partition(
        self,
        topic: TopicName,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        *,
        available: Sequence[PartitionIndex],
    ) -> PartitionIndex:
        turn = next(self._turns.setdefault(topic, count()))
        return available[turn % len(available)] if available else turn % partition_count
