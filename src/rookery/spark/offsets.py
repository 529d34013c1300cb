"""Offsets in the JSON of Spark's Kafka source, as options and checkpoints have them, with their checks. Pure.

    {"clicks": {"0": 23, "1": -2}}      offsets (or times in ms) of partitions; -2 is the earliest, -1 the latest
    {"clicks": [0, 1]}                  partitions

A `Bound` says where a read starts or ends; `lookups` asks the cluster and resolves it to offsets.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.spark.option_table import OptionError

EARLIEST: Final = -2
LATEST: Final = -1

Offsets: TypeAlias = dict[TopicPartition, Offset]
# Offsets as Spark handles them and stores them in a checkpoint.
OffsetJson: TypeAlias = dict[str, dict[str, int]]


@value_class
class Edge:
    """EARLIEST or LATEST, for all partitions."""

    offset: Offset


@value_class
class PartitionOffsets:
    option: str
    offsets: Mapping[TopicPartition, Offset]


@value_class
class SameTime:
    option: str
    timestamp_ms: TimestampMs


@value_class
class PartitionTimes:
    option: str
    times_ms: Mapping[TopicPartition, TimestampMs]


Bound: TypeAlias = Edge | PartitionOffsets | SameTime | PartitionTimes


@value_class
class NamedTopics:
    names: tuple[TopicName, ...]


@value_class
class MatchingTopics:
    pattern: str


@value_class
class NamedPartitions:
    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = NamedTopics | MatchingTopics | NamedPartitions


def offsets_to_json(offsets: Mapping[TopicPartition, Offset]) -> OffsetJson:
    """Return `offsets` ordered by topic and partition: Spark compares them as text."""
    found: OffsetJson = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return found


def offsets_from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(option: str, text: str) -> Offsets:
    """Parse the value of startingOffsets and similar options. Raises OptionError."""
    form = f'option {option} must be JSON such as {{"topic": {{"0": 23, "1": -2}}}}'
    value = _parse_json(form, text)
    if not isinstance(value, dict) or not all(isinstance(rows, dict) for rows in value.values()):
        raise OptionError(f"{form}, not {text}")
    for topic, rows in value.items():
        for partition, number in rows.items():
            if not partition.isdecimal() or not _is_whole(number):
                raise OptionError(f"{form}; partition {partition} of {topic} has {json.dumps(number)}")
    return offsets_from_json(value)


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse the value of the option assign. Raises OptionError."""
    form = f'option {option} must be JSON such as {{"topic": [0, 1]}}'
    value = _parse_json(form, text)
    if not isinstance(value, dict):
        raise OptionError(f"{form}, not {text}")
    found: set[TopicPartition] = set()
    for topic, partitions in value.items():
        if not isinstance(partitions, list) or not all(_is_whole(index) and index >= 0 for index in partitions):
            raise OptionError(f"{form}; {topic} has {json.dumps(partitions)}")
        found.update(TopicPartition(topic, index) for index in partitions)
    if not found:
        raise OptionError(f"option {option} names no partition")
    return tuple(sorted(found))


def _parse_json(form: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{form}: {error}") from None


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and -(2**63) <= number < 2**63


def check_all_named(option: str, given: Collection[TopicPartition], existing: Collection[TopicPartition]) -> None:
    """Raise OptionError unless `given` and `existing` are the same partitions, as in Spark's Kafka source."""
    missing, unknown = set(existing) - set(given), set(given) - set(existing)
    if missing:
        raise OptionError(
            f"option {option} must name all partitions that are read; it lacks {describe(missing)} "
            f"(-1 stands for the latest, -2 for the earliest)"
        )
    if unknown:
        raise OptionError(f"option {option} names {describe(unknown)}, which are not read: remove them from it")


def describe(partitions: Iterable[TopicPartition]) -> str:
    """Return a text such as `clicks-0, clicks-1`, with at most ten partitions."""
    names = [f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)]
    rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + rest
