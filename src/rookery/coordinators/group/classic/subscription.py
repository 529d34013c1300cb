"""What a consumer subscribes to, out of the metadata that it sends with JoinGroup.

The bytes are the client's and are of no concern to the coordinator, except that offsets of subscribed topics neither
expire nor can be deleted. They may be anything: what does not look like Kafka's ConsumerProtocolSubscription is None.
"""

import struct

from rookery.base.errors import ProtocolError
from rookery.base.types import TopicName
from rookery.protocol import wire

_VERSION_SIZE = 2


def read_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """All versions begin with a version and the topics."""
    try:
        (version,) = struct.unpack_from(">h", metadata)
        if version < 0:
            return None
        count, position = wire.read_array_size(metadata, _VERSION_SIZE, 2)
        topics = set()
        for _ in range(count):
            topic, position = wire.read_string(metadata, position)
            topics.add(topic)
    except (ProtocolError, *wire.MALFORMED):
        return None
    return frozenset(topics)
