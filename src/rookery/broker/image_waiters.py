"""Waits until this node's image has what the active controller has already committed."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher

Predicate: TypeAlias = Callable[[ClusterImage], bool]


class ImageWaiters:
    """The coroutines that wait for an image. It follows the publisher from its creation on."""

    def __init__(self, metadata: MetadataPublisher) -> None:
        self._metadata = metadata
        self._waiters: dict[asyncio.Future[None], Predicate] = {}
        metadata.add(ImageListener("image waiters", self._apply))

    async def wait(self, is_reached: Predicate, *, timeout_s: float) -> bool:
        """Return True when `is_reached(image)` holds, False if it does not within `timeout_s`."""
        if is_reached(self._metadata.image):
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = is_reached
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True

    def _apply(self, image: ClusterImage, _: Delta) -> None:
        for waiter, is_reached in self._waiters.items():
            if not waiter.done() and is_reached(image):
                waiter.set_result(None)
