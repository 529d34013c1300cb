"""The image that the controller decides on: the published one, and the records that were appended since.

A decision does not wait until the one before it is committed. It is based on a draft, which has the records of all
earlier decisions of this epoch, committed or not. If this node stops to lead, records that are not committed may be
removed from the log: the draft is dropped, and the next decision, in a later epoch, is based on what is published then.

Draft and published image have the same content once all appended records are published; then the draft is forgotten.
"""

from typing import Protocol

from rookery.metadata.image import ClusterImage


class Images(Protocol):
    """The source of the newest published image: `metadata.publisher`, which follows the same log."""

    @property
    def image(self) -> ClusterImage: ...


class Draft:
    """The draft of one active controller, in one epoch at a time."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._newest: ClusterImage | None = None

    @property
    def image(self) -> ClusterImage:
        return self._images.image if self._newest is None else self._newest

    @property
    def is_published(self) -> bool:
        """Whether the draft has no records beyond the published image."""
        return self._newest is None

    def advance(self, image: ClusterImage) -> None:
        """Continue with `image`, whose last records were just appended."""
        self._newest = image

    def settle(self, image: ClusterImage) -> None:
        """Forget the draft if `image`, whose records are published, is the newest one.

        The object counts, not its offset: in a later epoch, other records may be at the same offset.
        """
        if self._newest is image:
            self._newest = None

    def drop(self) -> None:
        """Forget the records that are not published.

        If they stayed, a decision of a later epoch could be based on records that no log has: the topics of a broker
        that was never unfenced, an id that was never allocated.
        """
        self._newest = None
