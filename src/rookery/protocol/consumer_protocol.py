"""The consumer protocol, embedded in the classic group protocol: consumers exchange subscriptions and assignments.

JoinGroup has a ConsumerProtocolSubscription per protocol, SyncGroup a ConsumerProtocolAssignment. Both begin with their
version as int16 and are never flexible; a version that is newer than the newest known one is read as that one. The
bytes come from clients: the readers return None for malformed ones.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from rookery.base.errors import ProtocolError
from rookery.base.types import PartitionIndex, TopicName, TopicPartition, indexes_by_topic
from rookery.protocol import wire

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
NEWEST_VERSION = 3
NO_GENERATION = -1


class Subscription(NamedTuple):
    """The subscription of a member.

    `owned` is empty in version 0, which has no such field: an eager consumer owns nothing when it joins. `generation`
    is the one in which `owned` was assigned, from version 2 on (KIP-792). `rack_id` exists from version 3 on (KIP-881).
    `user_data` belongs to the assignor.
    """

    version: int
    topics: frozenset[TopicName]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None
    generation: int = NO_GENERATION
    user_data: bytes | None = None


def read_subscription(data: bytes) -> Subscription | None:
    try:
        version, position = _read_version(data)
        topics, position = _read_topics(data, position)
        user_data, position = wire.read_bytes_view(data, position)
        owned: list[TopicPartition] = []
        generation, rack_id = NO_GENERATION, None
        if version >= 1:
            owned, position = read_partitions(data, position)
        if version >= 2:
            (generation,) = _INT32.unpack_from(data, position)
            position += _INT32.size
        if version >= 3:
            rack_id, position = wire.read_nullable_string(data, position)
    except (ProtocolError, *wire.MALFORMED):
        return None
    raw = None if user_data is None else bytes(user_data)
    return Subscription(version, frozenset(topics), tuple(owned), rack_id or None, generation, raw)


def write_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription in its `version`, without the fields that this version does not have."""
    version = subscription.version
    out = bytearray(_INT16.pack(version))
    wire.write_array_size(out, len(subscription.topics))
    for topic in sorted(subscription.topics):
        wire.write_string(out, topic)
    wire.write_nullable_bytes(out, subscription.user_data)
    if version >= 1:
        write_partitions(out, indexes_by_topic(subscription.owned).items())
    if version >= 2:
        out += _INT32.pack(subscription.generation)
    if version >= 3:
        wire.write_nullable_string(out, subscription.rack_id)
    return bytes(out)


def read_topics(data: bytes) -> frozenset[TopicName] | None:
    """Return only the topics of a subscription; the bytes after them may be malformed."""
    try:
        return frozenset(_read_topics(data, _read_version(data)[1])[0])
    except (ProtocolError, *wire.MALFORMED):
        return None


def read_assignment(data: bytes) -> list[TopicPartition] | None:
    """Return the partitions of an assignment. Empty bytes are an empty one: the member has no partitions yet."""
    if not data:
        return []
    try:
        _version, position = _read_version(data)
        partitions, position = read_partitions(data, position)
    except (ProtocolError, *wire.MALFORMED):
        return None
    return partitions


def write_assignment(version: int, topics: Iterable[tuple[TopicName, Iterable[PartitionIndex]]]) -> bytes:
    """Encode an assignment in the version of the member's subscription, so that the member can read it."""
    out = bytearray(_INT16.pack(version))
    write_partitions(out, topics)
    wire.write_nullable_bytes(out, None)
    return bytes(out)


def _read_version(data: bytes) -> tuple[int, int]:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise ProtocolError("a negative version")
    return min(version, NEWEST_VERSION), _INT16.size


def _read_topics(data: bytes, position: int) -> tuple[list[TopicName], int]:
    count, position = wire.read_array_size(data, position, 2)
    topics = []
    for _ in range(count):
        topic, position = wire.read_string(data, position)
        topics.append(topic)
    return topics, position


def write_partitions(out: bytearray, topics: Iterable[tuple[TopicName, Iterable[PartitionIndex]]]) -> None:
    """Write partitions by topic: the format of subscriptions, assignments and the user data of some assignors."""
    listed = list(topics)
    wire.write_array_size(out, len(listed))
    for topic, indexes in listed:
        wire.write_string(out, topic)
        partitions = list(indexes)
        wire.write_array_size(out, len(partitions))
        for index in partitions:
            out += _INT32.pack(index)


def read_partitions(data: bytes, position: int) -> tuple[list[TopicPartition], int]:
    """Read the partitions that `write_partitions` wrote. Raises ProtocolError, or one of `wire.MALFORMED`."""
    count, position = wire.read_array_size(data, position, 6)
    partitions = []
    for _ in range(count):
        topic, position = wire.read_string(data, position)
        size, position = wire.read_array_size(data, position, _INT32.size)
        for _ in range(size):
            (index,) = _INT32.unpack_from(data, position)
            partitions.append(TopicPartition(topic, index))
            position += _INT32.size
    return partitions, position
