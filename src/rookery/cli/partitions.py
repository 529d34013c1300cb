"""How commands write down several partitions: by topic, in JSON as lists and in tables as `orders:0,1 payments:4`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rookery.base.types import TopicPartition


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """`partitions` are in order."""
    return {topic: [tp.partition for tp in group] for topic, group in groupby(partitions, key=lambda tp: tp.topic)}


def indexes_text(indexes: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, of_topic))}" for topic, of_topic in indexes.items()) or "-"
