"""The cluster image of a node, and the parts of the node that follow it.

Committed records come in from the quorum (`MetadataPublishing.commit`), on every node and whether it is the active
controller or not. The loader makes an image of them, and the publishers get it in the order in which they were added:
replicas before coordinators, because a coordinator reads the log of a partition that must exist.

A change of many partitions is published in slices. Records are decoded in slices, and publishers do the work that grows
with the partitions before the image becomes visible (`prepare`) or after it (`settle`). Making it visible is one step:
a request sees either the old image everywhere or the new one. `commit` calls must not overlap.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.slices import Slices
from rookery.base.types import Offset, TopicId, TopicName
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta
from rookery.metadata.loader import Loaded, MetadataLoader
from rookery.metadata.records import MetadataRecord, decode_record

Publish: TypeAlias = Callable[[ClusterImage, Delta], None]
Prepare: TypeAlias = Callable[[ClusterImage, Delta], Awaitable[None]]
Settle: TypeAlias = Callable[[], Awaitable[None]]


class Publisher(NamedTuple):
    """A part of the node that follows the image.

    `prepare` is awaited before an image becomes visible, and does what can be done ahead of it. `publish` is called
    when it does, and must not wait. `settle` is awaited after all publishers have the image, before the change counts
    as done.
    """

    name: str
    publish: Publish
    prepare: Prepare | None = None
    settle: Settle | None = None


class MetadataPublishing:
    """Owns the image that this node works with."""

    def __init__(self, slices: Slices | None = None) -> None:
        self._loader = MetadataLoader()
        self._slices = slices or Slices()
        self._image = EMPTY_IMAGE
        self._publishers: list[Publisher] = []

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def removed_topics(self) -> Mapping[TopicId, TopicName]:
        """The topics that the log deleted before the start."""
        return self._loader.removed_topics

    @property
    def publisher_names(self) -> list[str]:
        return [publisher.name for publisher in self._publishers]

    def add(self, publisher: Publisher) -> None:
        """Publish every later image to `publisher` too, after those that were added before it."""
        assert publisher.name not in self.publisher_names, f"the publisher {publisher.name} was added twice"
        self._publishers.append(publisher)

    def start(self, batches: Iterable[tuple[Offset, Sequence[bytes]]]) -> None:
        """Replay a log. Publishers get it as one change of the empty cluster; nothing is prepared or settled."""
        self._make_visible(self._loader.replay(batches))

    async def commit(self, base_offset: Offset, values: Sequence[bytes]) -> None:
        """Load the records of a committed batch and publish the image; returns when all publishers have settled."""
        records: list[MetadataRecord] = []
        async for some in self._slices.of(values, METADATA_RECORDS_PER_SLICE):
            records.extend(map(decode_record, some))
        loaded = self._loader.load(records, last_offset=base_offset + len(values) - 1)
        for publisher in self._publishers:
            if publisher.prepare is not None:
                await publisher.prepare(*loaded)
        self._make_visible(loaded)
        for publisher in self._publishers:
            if publisher.settle is not None:
                await publisher.settle()

    def _make_visible(self, loaded: Loaded) -> None:
        self._image = loaded.image
        for publisher in self._publishers:
            publisher.publish(*loaded)
