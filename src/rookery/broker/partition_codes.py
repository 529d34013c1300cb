"""Responses that say nothing but how each partition of the request fared."""

from collections.abc import Iterable, Mapping

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.protocol.message import Message


def topics_with_codes(topics: Iterable[Message], codes: Mapping[TopicPartition, ErrorCode]) -> list[Message]:
    """The topics of a request with each partition's code; partitions that have none do not exist."""
    return [Message(name=topic.name, partitions=_partitions(topic, codes)) for topic in topics]


def _partitions(topic: Message, codes: Mapping[TopicPartition, ErrorCode]) -> list[Message]:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    indexes = [partition.partition_index for partition in topic.partitions]
    return [
        Message(partition_index=index, error_code=codes.get(TopicPartition(topic.name, index), missing))
        for index in indexes
    ]
