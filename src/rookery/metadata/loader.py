"""Builds images and deltas from committed metadata records, in the order of the log. Every node has one loader.

The loader is pure. It holds the newest image that it built, and `publisher` makes it visible: the loader is at most one
change ahead of the image that the other components of the node see.

At start the newest snapshot and the log after it are replayed, as one change of the empty cluster. Later changes are
loaded batch by batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rookery.base.types import Offset, TopicId, TopicName
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta
from rookery.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord, decode_record


class Loaded(NamedTuple):
    """A new image, and its differences from the one before."""

    image: ClusterImage
    delta: Delta


class MetadataLoader:
    """Builds each image from the one before. `image` is the newest."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        # The topics that the replayed part of the log deleted. A partition's directory with such an id is left over
        # from an interrupted deletion, and may be renamed; a directory with an id that is unknown may not. Deletions
        # before the snapshot are not known here, and need not be: a node takes a snapshot only after the directories of
        # all topics that it no longer has were renamed, and the new names synced (decision 29).
        self.removed_topics: Mapping[TopicId, TopicName] = {}

    def load(self, records: Iterable[MetadataRecord], *, last_offset: Offset) -> Loaded:
        """Apply the records of one batch; `last_offset` is the offset of its last record."""
        loaded = Loaded(*self.image.apply(records, last_offset=last_offset))
        self.image = loaded.image
        return loaded

    def replay(
        self,
        batches: Iterable[tuple[Offset, Sequence[bytes]]],
        *,
        snapshot: Iterable[bytes] = (),
        snapshot_end: Offset = 0,
    ) -> Loaded:
        """Apply the records of a snapshot, and all batches of the log after it, as one change.

        A batch is the offset of its first record, and its records. The snapshot replaces the log before
        `snapshot_end`.
        """
        records = list(map(decode_record, snapshot))
        last_offset = snapshot_end - 1
        for base_offset, values in batches:
            records.extend(map(decode_record, values))
            last_offset = base_offset + len(values) - 1
        self.removed_topics = _find_removed(records)
        return self.load(records, last_offset=last_offset)


def _find_removed(records: Iterable[MetadataRecord]) -> dict[TopicId, TopicName]:
    names: dict[TopicId, TopicName] = {}
    removed: dict[TopicId, TopicName] = {}
    for record in records:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            removed[record.topic_id] = names[record.topic_id]
    return removed
