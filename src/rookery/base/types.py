"""Names for the plain integers and strings that would otherwise be confused.

They are aliases, not wrappers: arithmetic on offsets is everywhere, and a cast at each step would hide more
than it shows.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
NodeId: TypeAlias = int
PartitionIndex: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
TimestampMs: TypeAlias = int
TopicName: TypeAlias = str
TopicId: TypeAlias = UUID

# A bytes-like object; a memoryview of a receive buffer in the hot path.
Buffer: TypeAlias = bytes | bytearray | memoryview

NO_TOPIC_ID = UUID(int=0)
NO_PRODUCER_ID: ProducerId = -1
NO_PRODUCER_EPOCH: ProducerEpoch = -1
NO_TIMESTAMP: TimestampMs = -1
NO_LEADER_EPOCH: LeaderEpoch = -1
NO_LEADER: NodeId = -1
# The broker epoch of a broker that is not registered, or of a request that does not state one.
NO_BROKER_EPOCH = -1
NO_OFFSET: Offset = -1


class TopicPartition(NamedTuple):
    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, list[PartitionIndex]]:
    """Group partitions by topic, as messages and records do; both sorted, so that equal sets give equal results."""
    topics: dict[TopicName, list[PartitionIndex]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def encode_uuid(value: UUID) -> str:
    """Encode a UUID as Kafka does for cluster, topic and directory ids: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Decode what `encode_uuid` writes; raises ValueError for anything that is not 16 bytes of base64."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
