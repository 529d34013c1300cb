"""Parses the options of `rookery groups reset-offsets` and computes the new offsets. Pure.

The new offset is always within the log: an offset before the log's start becomes the start, one after its end the end.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition


class TopicChoice(NamedTuple):
    """A topic, with some of its partitions; an empty tuple means all."""

    topic: TopicName
    partitions: tuple[PartitionIndex, ...]


class ToEarliest(NamedTuple):
    pass


class ToLatest(NamedTuple):
    pass


class ToTimestamp(NamedTuple):
    timestamp_ms: TimestampMs


class ToOffset(NamedTuple):
    offset: Offset


class ShiftBy(NamedTuple):
    records: int


class ToGiven(NamedTuple):
    """Offsets from a file."""

    offsets: Mapping[TopicPartition, Offset]


Reset = ToEarliest | ToLatest | ToTimestamp | ToOffset | ShiftBy | ToGiven


class PartitionFacts(NamedTuple):
    """The offsets of a partition. `at_timestamp` is None if no time was requested, or no record is that late."""

    committed: Offset | None
    earliest: Offset
    latest: Offset
    at_timestamp: Offset | None = None


class Change(NamedTuple):
    partition: TopicPartition
    old: Offset | None
    new: Offset


def parse_topic(text: str) -> TopicChoice:
    """Parse `topic` or `topic:0,2`. Raises ValueError with a sentence."""
    topic, colon, indexes = text.partition(":")
    words = indexes.split(",") if colon else []
    if not topic or not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"'{text}' must have the form TOPIC or TOPIC:PARTITION,PARTITION")
    return TopicChoice(topic, tuple(sorted({int(word) for word in words})))


def parse_file(text: str, group_id: str) -> dict[TopicPartition, Offset]:
    """Parse offsets by partition from JSON or CSV. Raises ValueError with a sentence.

    JSON is a list of objects with topic, partition and offset, or what `reset-offsets --json` prints. CSV has the
    columns topic, partition, offset, with group before them in the files of Kafka's tool; lines of other groups are
    skipped.
    """
    if text.lstrip().startswith(("[", "{")):
        return dict(map(_read_item, _read_items(text)))
    found: dict[TopicPartition, Offset] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or row[0].startswith("#") or [cell.strip().lower() for cell in row[-3:]] == _HEADING:
            continue
        if len(row) == 4 and row[0].strip() != group_id:
            continue
        found.update([_read_row(row, number)])
    return found


_HEADING = ["topic", "partition", "offset"]


def _read_row(row: list[str], number: int) -> tuple[TopicPartition, Offset]:
    try:
        topic, partition, offset = (cell.strip() for cell in row[-3:])
        if len(row) > 4:
            raise ValueError
        return TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        raise ValueError(f"line {number} must have the form topic,partition,offset") from None


def _read_items(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the file is not valid JSON: {error}") from None
    items = value.get("offsets") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise ValueError("the file has no list of offsets")
    return items


def _read_item(item: Any) -> tuple[TopicPartition, Offset]:
    try:
        offset = item["offset"] if "offset" in item else item["new_offset"]
        return TopicPartition(str(item["topic"]), int(item["partition"])), int(offset)
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{json.dumps(item)} must have topic, partition and offset") from None


def plan(reset: Reset, facts: Mapping[TopicPartition, PartitionFacts]) -> list[Change]:
    """Return the new offset of each partition. Raises ValueError with a sentence if one cannot be computed."""
    return [Change(tp, fact.committed, _new_offset(reset, tp, fact)) for tp, fact in sorted(facts.items())]


def _new_offset(reset: Reset, tp: TopicPartition, fact: PartitionFacts) -> Offset:
    match reset:
        case ToEarliest():
            wanted = fact.earliest
        case ToLatest():
            wanted = fact.latest
        case ToTimestamp():
            wanted = fact.latest if fact.at_timestamp is None else fact.at_timestamp
        case ToOffset(offset):
            wanted = offset
        case ShiftBy(records):
            if fact.committed is None:
                raise ValueError(f"{tp} has no committed offset to shift")
            wanted = fact.committed + records
        case ToGiven(offsets):
            wanted = offsets[tp]
    return min(max(wanted, fact.earliest), fact.latest)


def choose(
    choices: Iterable[TopicChoice], counts: Mapping[TopicName, int], committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions to reset: the chosen ones or, without a choice, all for which the group has offsets."""
    chosen: set[TopicPartition] = set()
    for topic, partitions in choices:
        missing = [index for index in partitions if index >= counts[topic]]
        if missing:
            raise ValueError(f"topic {topic} has {counts[topic]} partitions, and no partition {missing[0]}")
        chosen.update(TopicPartition(topic, index) for index in partitions or range(counts[topic]))
    return sorted(chosen or committed)
