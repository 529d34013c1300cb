"""The consumer protocol inside the classic one: the bytes by which classic consumers tell each other their topics.

JoinGroup carries a ConsumerProtocolSubscription per protocol, SyncGroup a ConsumerProtocolAssignment. Both begin with
their version as int16 and are never flexible; a newer version than is known is read as the newest known one. The bytes
come from clients: what is malformed is None.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from rookery.base.errors import ProtocolError
from rookery.base.types import PartitionIndex, TopicName, TopicPartition
from rookery.protocol import wire

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NEWEST_VERSION = 3


class Subscription(NamedTuple):
    """`owned` is empty in versions that do not tell it, which is what an eager consumer owns when it joins."""

    version: int
    topics: frozenset[TopicName]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription | None:
    try:
        version, position = _read_version(data)
        topics, position = _read_topics(data, position)
        _user_data, position = wire.read_bytes_view(data, position)
        owned: list[TopicPartition] = []
        rack_id = None
        if version >= 1:
            owned, position = _read_partitions(data, position)
        if version >= 3:
            rack_id, position = wire.read_nullable_string(data, position + _INT32.size)
    except (ProtocolError, *wire.MALFORMED):
        return None
    return Subscription(version, frozenset(topics), tuple(owned), rack_id or None)


def read_topics(data: bytes) -> frozenset[TopicName] | None:
    """The topics of a subscription alone, whatever follows them."""
    try:
        return frozenset(_read_topics(data, _read_version(data)[1])[0])
    except (ProtocolError, *wire.MALFORMED):
        return None


def read_assignment(data: bytes) -> list[TopicPartition] | None:
    """No bytes at all are no partitions: the member was not given any yet."""
    if not data:
        return []
    try:
        _version, position = _read_version(data)
        partitions, position = _read_partitions(data, position)
    except (ProtocolError, *wire.MALFORMED):
        return None
    return partitions


def write_assignment(version: int, topics: Iterable[tuple[TopicName, Iterable[PartitionIndex]]]) -> bytes:
    """`version` is that of the member's subscription, so that the member can read it."""
    out = bytearray(_INT16.pack(version))
    listed = list(topics)
    wire.write_array_size(out, len(listed))
    for topic, indexes in listed:
        wire.write_string(out, topic)
        partitions = list(indexes)
        wire.write_array_size(out, len(partitions))
        for index in partitions:
            out += _INT32.pack(index)
    wire.write_nullable_bytes(out, None)
    return bytes(out)


def _read_version(data: bytes) -> tuple[int, int]:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise ProtocolError("a negative version")
    return min(version, _NEWEST_VERSION), _INT16.size


def _read_topics(data: bytes, position: int) -> tuple[list[TopicName], int]:
    count, position = wire.read_array_size(data, position, 2)
    topics = []
    for _ in range(count):
        topic, position = wire.read_string(data, position)
        topics.append(topic)
    return topics, position


def _read_partitions(data: bytes, position: int) -> tuple[list[TopicPartition], int]:
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
