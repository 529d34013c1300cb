"""The assignment that a classic group's leader gave to a member, out of the bytes that the coordinator keeps.

The bytes are the clients' own (ConsumerProtocolAssignment: version, topics with partitions, user data) and may be
anything in a group that is not one of consumers.
"""

import struct

from rookery.base.errors import ProtocolError
from rookery.base.types import TopicPartition
from rookery.protocol import wire

_VERSION_SIZE = 2
_INT32 = struct.Struct(">i")


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Empty where the bytes are none, or not a consumer's."""
    try:
        return _read(data) if data else []
    except (ProtocolError, *wire.MALFORMED):
        return []


def _read(data: bytes) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    count, position = wire.read_array_size(data, _VERSION_SIZE, 6)
    for _ in range(count):
        topic, position = wire.read_string(data, position)
        size, position = wire.read_array_size(data, position, _INT32.size)
        for _ in range(size):
            (index,) = _INT32.unpack_from(data, position)
            found.append(TopicPartition(topic, index))
            position += _INT32.size
    return found
