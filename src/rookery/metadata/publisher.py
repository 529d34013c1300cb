"""The cluster image of a node, and the components of the node that follow it.

The quorum passes committed records to `MetadataPublisher.commit`, on every node, whether it is the active controller or
not. The loader builds an image from them, and the listeners get it in the order in which they were added: replicas
before coordinators, because a coordinator reads the log of a partition that must exist.

A change of many partitions is published in slices. Records are decoded and applied in slices, and listeners do the
work that grows with the partitions before the image becomes visible (`prepare`) or after it (`finish`). Making it
visible is one step: a request sees either the old image everywhere or the new one. `commit` calls must not overlap.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeAlias

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.slices import Slices
from rookery.base.types import Offset, TopicId, TopicName
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta, ImageChanges
from rookery.metadata.loader import Loaded, MetadataLoader
from rookery.metadata.records import decode_record

Apply: TypeAlias = Callable[[ClusterImage, Delta], None]
Prepare: TypeAlias = Callable[[ClusterImage, Delta], Awaitable[None]]
Finish: TypeAlias = Callable[[], Awaitable[None]]


class ImageListener(NamedTuple):
    """A component of the node that follows the image.

    `prepare` is awaited before an image becomes visible, for the work that can be done in advance. `apply` is called
    when the image becomes visible, and must not block. `finish` is awaited after all listeners have the image, and
    before `commit` returns.
    """

    name: str
    apply: Apply
    prepare: Prepare | None = None
    finish: Finish | None = None


class MetadataPublisher:
    """Owns the image that this node uses."""

    def __init__(self, slices: Slices | None = None) -> None:
        self._loader = MetadataLoader()
        self._slices = slices or Slices()
        self._image = self._finished_image = EMPTY_IMAGE
        self._listeners: list[ImageListener] = []
        # Held while an image is published, and while a listener begins with one.
        self._turn = asyncio.Lock()

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def finished_image(self) -> ClusterImage:
        """The newest image that all listeners have finished: logs of topics that it no longer has are removed."""
        return self._finished_image

    @property
    def removed_topics(self) -> Mapping[TopicId, TopicName]:
        """The topics that the log after the snapshot had deleted when it was replayed by `start`."""
        return self._loader.removed_topics

    @property
    def listener_names(self) -> list[str]:
        return [listener.name for listener in self._listeners]

    def add(self, listener: ImageListener) -> None:
        """Publish every later image to `listener` as well, after the listeners that were added before it."""
        assert listener.name not in self.listener_names, f"the listener {listener.name} was added twice"
        self._listeners.append(listener)

    async def join(self, begin: Callable[[ClusterImage], Awaitable[None]], *listeners: ImageListener) -> None:
        """Call `begin` with the image, and publish every later one to `listeners`.

        `begin` may take many turns of the loop. No image is published meanwhile: the listeners would never learn of
        the changes in it.
        """
        async with self._turn:
            await begin(self._image)
            for listener in listeners:
                self.add(listener)

    async def start(
        self,
        batches: Iterable[tuple[Offset, Iterable[bytes]]],
        *,
        snapshot: Sequence[bytes] = (),
        snapshot_end: Offset = 0,
    ) -> None:
        """Replay a snapshot and the log after it; see `MetadataLoader.replay`.

        Listeners get it as one change of the empty cluster, without `prepare` and `finish`.
        """
        steps = self._loader.replay(batches, snapshot=snapshot, snapshot_end=snapshot_end)
        for step_count in count(1):
            try:
                next(steps)
            except StopIteration as end:
                self._make_visible(end.value)
                break
            if step_count % METADATA_RECORDS_PER_SLICE == 0:
                await self._slices.pause()
        self._finished_image = self._image

    async def commit(self, base_offset: Offset, values: Sequence[bytes]) -> None:
        """Load the records of a committed batch and publish the image; returns when all listeners have finished."""
        async with self._turn:
            changes = self._loader.begin()
            await self._apply(changes, values)
            await self._publish(self._loader.finish(changes, last_offset=base_offset + len(values) - 1))

    async def replace(self, snapshot: Sequence[bytes], end_offset: Offset) -> None:
        """Load the records of a snapshot that replaces the log before `end_offset`, and publish its image.

        A follower that was away for long downloads a snapshot in place of the records it missed. Listeners get the
        difference from the image before as one change.
        """
        async with self._turn:
            changes = self._loader.begin_snapshot()
            await self._apply(changes, snapshot)
            await self._publish(self._loader.finish_snapshot(changes, last_offset=end_offset - 1))

    async def _apply(self, changes: ImageChanges, values: Sequence[bytes]) -> None:
        async for some in self._slices.of(values, METADATA_RECORDS_PER_SLICE):
            for value in some:
                changes.apply(decode_record(value))

    async def _publish(self, loaded: Loaded) -> None:
        for listener in self._listeners:
            if listener.prepare is not None:
                await listener.prepare(*loaded)
        self._make_visible(loaded)
        for listener in self._listeners:
            if listener.finish is not None:
                await listener.finish()
        self._finished_image = loaded.image

    def _make_visible(self, loaded: Loaded) -> None:
        # No await in here: between two listeners a request would see the new image in one component and the old one in
        # the next.
        self._image = loaded.image
        for listener in self._listeners:
            listener.apply(*loaded)
