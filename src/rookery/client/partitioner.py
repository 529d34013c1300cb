"""Which partition a record goes to: the Java client's rules, so that both clients send a key to the same place.

Pure: randomness is injected. `producer` asks here once per record that names no partition itself.
"""

from collections.abc import Callable

from rookery.base.types import Buffer, PartitionIndex, TopicName

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: Buffer) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients share; an unsigned number."""
    length = len(data)
    value = _SEED ^ length
    words = length & ~3
    for position in range(0, words, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if length > words:
        value = (value ^ int.from_bytes(data[words:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: Buffer, partition_count: int) -> PartitionIndex:
    return (murmur2(key) & _POSITIVE) % partition_count


class Partitioner:
    """Keys by their hash; records without a key stick to one partition until its batch is sent, then to another.

    `choose(n)` returns a number below n, as `random.randrange` does.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._sticky: dict[TopicName, PartitionIndex] = {}

    def partition(self, topic: TopicName, key: Buffer | None, partition_count: int) -> PartitionIndex:
        if key is not None:
            return partition_for_key(key, partition_count)
        if topic not in self._sticky or self._sticky[topic] >= partition_count:
            self._sticky[topic] = self._choose(partition_count)
        return self._sticky[topic]

    def on_batch_sent(self, topic: TopicName, partition: PartitionIndex) -> None:
        """Let the next record without a key choose anew, so that batches spread over the partitions."""
        if self._sticky.get(topic) == partition:
            del self._sticky[topic]
