"""Reads dead-letter topics with the client.

Readers see committed dead letters only, from the first that exists up to the end of the topic when the reading starts.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicName, TopicPartition
from rookery.client import Admin, Consumer
from rookery.client.metadata import Topic
from rookery.dead_letters.letters import DeadLetter, read_letter
from rookery.dead_letters.progress import Progress, read_progress
from rookery.dead_letters.standard import SUFFIX

_POLL_S: Final = 0.5

READER_CONFIG: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
}


def redrive_group(topic: TopicName) -> str:
    """Return the group that stores the redrive's progress on a topic. It is also the redrive's transactional id."""
    return f"rookery-redrive.{topic}"


class Span:
    """The offsets to read of a dead-letter topic: for each partition from `first` up to, but not including, `end`."""

    def __init__(self, first: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset]) -> None:
        self.first = dict(first)
        self.end = dict(end)

    @property
    def size(self) -> int:
        """The number of offsets. Some may hold no dead letter (compacted records, transaction markers)."""
        return sum(self.end[tp] - first for tp, first in self.first.items())


async def measure(consumer: "Consumer[bytes, bytes]", topic: TopicName) -> Span:
    partitions = [TopicPartition(topic, partition.index) for partition in await consumer.partitions_for(topic)]
    return Span(await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions))


async def read_letters(consumer: "Consumer[bytes, bytes]", span: Span) -> AsyncIterator[list[DeadLetter]]:
    """Yield the dead letters of `span` in batches, in order within each partition. A batch may be empty."""
    left = {tp for tp, first in span.first.items() if first < span.end[tp]}
    consumer.assign(left)
    # An earlier call on the same consumer paused the partitions that it had read to the end.
    consumer.resume(left)
    for tp in left:
        consumer.seek(tp, span.first[tp])
    while left:
        records = await consumer.poll(_POLL_S)
        yield [
            read_letter(record)
            for record in records
            if record.offset < span.end[TopicPartition(record.topic, record.partition)]
        ]
        for tp in [tp for tp in left if await consumer.position(tp) >= span.end[tp]]:
            left.remove(tp)
            consumer.pause(tp)


async def read_progresses(admin: Admin, topic: TopicName) -> dict[TopicPartition, Progress]:
    """Return the progress that the redrive's group committed for each partition of `topic`."""
    committed = await admin.committed_offsets(redrive_group(topic), require_stable=True)
    return {tp: read_progress(found.offset, found.metadata) for tp, found in committed.items() if tp.topic == topic}


async def find_topics(admin: Admin, names: Iterable[TopicName] = ()) -> list[TopicName]:
    """Return `names`, which must exist; if empty, all topics whose name has the suffix of dead-letter topics."""
    wanted = list(names)
    if not wanted:
        return sorted(topic.name for topic in await admin.list_topics() if topic.name.endswith(SUFFIX))
    for topic in await admin.describe_topics(wanted):
        _check(topic)
    return wanted


def _check(topic: Topic) -> None:
    if topic.error != ErrorCode.NONE:
        raise ApiError(topic.error, f"topic {topic.name}")
