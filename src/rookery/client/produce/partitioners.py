"""The choice of a record's partition, by the Java client's rules, so that both clients send a key to the same one.

    explicit      the partition of the record
    with a key    murmur2 of the serialized key, modulo the topic's partitions
    without one   one partition for about `batch.size` bytes, then another at random (KIP-794)

A custom partitioner is an object with `partition`, or any function with the same arguments; `RoundRobinPartitioner` is
one. `producer` applies the default rules itself, in its hot path, with `KeyHashes` and `StickyPartition`.

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
# The limits of the cache of hashes: a repeated key costs a look-up instead of a hash.
_REMEMBERED_KEYS_MAX = 16_384
_REMEMBERED_KEY_BYTES_MAX = 64
# Struct `n` reads the `n` whole words of a short key in one call.
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
        """Return a partition below `partition_count`. Key and value are serialized.

        `available` are the partitions that have a leader.
        """
        ...


PartitionerLike: TypeAlias = Partitioner | Callable[..., PartitionIndex]


def partition_function(partitioner: PartitionerLike) -> Callable[..., PartitionIndex]:
    """Return the partitioner as a function that raises SerializationError if it fails or returns no number."""
    choose: Any = getattr(partitioner, "partition", partitioner)

    def partition(topic: TopicName, *record: Any, available: Sequence[PartitionIndex]) -> PartitionIndex:
        try:
            return index(choose(topic, *record, available=available))
        except Exception as error:
            raise SerializationError(f"topic {topic}: the partitioner failed: {error!r}") from error

    return partition


def murmur2(data: Buffer) -> int:
    """Return the 32-bit MurmurHash2 with the seed of Kafka's clients, as an unsigned number."""
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
    """A cache of the positive murmur2 hashes of keys: `hashes[key] % partition_count` is the partition."""

    def __missing__(self, key: bytes) -> int:
        hashed = murmur2(key) & _POSITIVE
        if len(key) <= _REMEMBERED_KEY_BYTES_MAX:
            if len(self) >= _REMEMBERED_KEYS_MAX:
                self.clear()
            self[key] = hashed
        return hashed


class StickyPartition:
    """The current partition of a topic's records without a key.

    `choose(n)` returns a number below n, as `random.randrange` does.
    """

    __slots__ = ("_batch_size_bytes", "_choose", "partition", "switch_at_bytes")

    def __init__(self, choose: Callable[[int], int], batch_size_bytes: int) -> None:
        self._choose = choose
        self._batch_size_bytes = batch_size_bytes
        self.partition: PartitionIndex = -1
        self.switch_at_bytes = 0

    def switch(self, available: Sequence[PartitionIndex], partition_count: int) -> PartitionIndex:
        """Choose a partition at random, of those that have a leader if there are any."""
        # The choice may be the same partition again, as in Kafka.
        self.partition = available[self._choose(len(available))] if available else self._choose(partition_count)
        return self.partition

    def start(self, appended_bytes: int) -> None:
        """Stay until `batch.size` bytes more than `appended_bytes` were appended to the partition."""
        self.switch_at_bytes = appended_bytes + self._batch_size_bytes

    def is_due(self, appended_bytes: int, available: Sequence[PartitionIndex]) -> bool:
        """Whether enough bytes were appended, or the partition has lost its leader while others have one."""
        return appended_bytes >= self.switch_at_bytes or (bool(available) and self.partition not in available)


class RoundRobinPartitioner:
    """Chooses the partitions in turn and ignores keys, as Java's class of that name does."""

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
