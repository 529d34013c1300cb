"""Builds images and deltas from committed metadata records, in the order of the log. Every node has one loader.

The loader is pure. It holds the newest image that it built, and `publisher` makes it visible: the loader is at most one
change ahead of the image that the other components of the node see.

At start the newest snapshot and the log after it are replayed, as one change of the empty cluster. Later changes are
loaded batch by batch.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from rookery.base.types import Offset, TopicId, TopicName
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta, ImageChanges, difference
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
        changes = self.begin()
        for record in records:
            changes.apply(record)
        return self.finish(changes, last_offset=last_offset)

    def begin(self) -> ImageChanges:
        """Begin to load a batch. The caller applies its records, in slices if there are many, then calls `finish`."""
        return ImageChanges(self.image)

    def finish(self, changes: ImageChanges, *, last_offset: Offset) -> Loaded:
        loaded = Loaded(*changes.build(last_offset))
        self.image = loaded.image
        return loaded

    def begin_snapshot(self) -> ImageChanges:
        """Begin to load a snapshot that replaces the image, as `begin` does; `finish_snapshot` ends it."""
        return ImageChanges(EMPTY_IMAGE)

    def finish_snapshot(self, changes: ImageChanges, *, last_offset: Offset) -> Loaded:
        """Continue with the image of the snapshot. The delta is the difference from the image before."""
        before = self.image
        self.image = changes.build_image(last_offset)
        return Loaded(self.image, difference(before, self.image))

    def replay(
        self,
        batches: Iterable[tuple[Offset, Iterable[bytes]]],
        *,
        snapshot: Sequence[bytes] = (),
        snapshot_end: Offset = 0,
    ) -> Generator[None, None, Loaded]:
        """Apply the records of a snapshot, and all batches of the log after it, as one change; one step per record.

        A batch is the offset of its first record, and its records. The snapshot replaces the log before
        `snapshot_end`.
        """
        changes, next_offset = self.begin(), snapshot_end
        names: dict[TopicId, TopicName] = {}
        removed: dict[TopicId, TopicName] = {}
        for base_offset, values in chain([(None, snapshot)], batches):
            if base_offset is not None:
                next_offset = base_offset
            for value in values:
                record = decode_record(value)
                changes.apply(record)
                if isinstance(record, TopicRecord):
                    names[record.topic_id] = record.name
                elif isinstance(record, RemoveTopicRecord):
                    removed[record.topic_id] = names[record.topic_id]
                if base_offset is not None:
                    next_offset += 1
                yield
        self.removed_topics = removed
        return self.finish(changes, last_offset=next_offset - 1)
