"""A pass over all partitions of an image, in steps."""

from collections.abc import Callable, Generator
from typing import TypeAlias

from rookery.controller.elections import Rules, TopicRules
from rookery.metadata.image import ClusterImage, PartitionImage, TopicImage
from rookery.metadata.records import PartitionChangeRecord

# A partition that changes takes about 30 microseconds. A step is as long as the description of a topic's configs, by
# which the steps of decisions are counted.
_PARTITIONS_PER_STEP = 10

Change: TypeAlias = Callable[[TopicImage, PartitionImage, Rules], PartitionChangeRecord | None]


def scan_partitions(
    image: ClusterImage, rules: TopicRules, change: Change
) -> Generator[None, None, list[PartitionChangeRecord]]:
    """Return the records of the partitions for which `change` returns one. Yields between steps."""
    records: list[PartitionChangeRecord] = []
    count = 0
    for topic in image.topics.values():
        topic_rules = rules.of(topic.name)
        for partition in topic.partitions.values():
            record = change(topic, partition, topic_rules)
            if record is not None:
                records.append(record)
            count += 1
            if count % _PARTITIONS_PER_STEP == 0:
                yield
    return records
