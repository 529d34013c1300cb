"""Responses that report nothing but the error code of each partition of the request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicName, TopicPartition


class _Partition(Protocol):
    @property
    def partition_index(self) -> PartitionIndex: ...


class _Topic(Protocol):
    """A topic of a request, of any API that names topics and partitions so."""

    @property
    def name(self) -> TopicName: ...

    @property
    def partitions(self) -> Sequence[_Partition]: ...


def codes_by_topic(
    topics: Iterable[_Topic], codes: Mapping[TopicPartition, ErrorCode]
) -> Iterator[tuple[TopicName, Iterator[tuple[PartitionIndex, ErrorCode]]]]:
    """Yield the topics of a request with the code of each partition; partitions that have none do not exist."""
    return ((topic.name, _codes(topic, codes)) for topic in topics)


def _codes(topic: _Topic, codes: Mapping[TopicPartition, ErrorCode]) -> Iterator[tuple[PartitionIndex, ErrorCode]]:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    indexes = (partition.partition_index for partition in topic.partitions)
    return ((index, codes.get(TopicPartition(topic.name, index), missing)) for index in indexes)
