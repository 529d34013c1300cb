"""The senders that wait for memory in the buffer: first come, first served, up to `max.block.ms`.

A sender that was woken and still finds too little memory returns to the front, so that small records do not overtake a
large one forever. `producer` and `columns` wait here; `base` calls `offer` when memory is released.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from rookery.base.types import TopicName
from rookery.client.errors import BufferExhaustedError, ClientStateError
from rookery.client.metrics.producer import ProducerMetrics
from rookery.client.settings.producer import ProducerSettings

Result = TypeVar("Result")


class MemoryWaiters:
    """The queue of waiting senders. `on_change` is called when a sender begins or stops waiting."""

    def __init__(self, settings: ProducerSettings, metrics: ProducerMetrics, *, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_change = on_change
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_closed = False

    def __bool__(self) -> bool:
        """Whether a sender waits."""
        return bool(self._waiters)

    async def obtain(
        self, attempt: Callable[[], Result | None], *, topic: TopicName, size_bytes: int, deadline_s: float
    ) -> Result:
        """Return the result of `attempt`, which returns None while there is too little memory.

        It is called when no other sender waits, and again whenever this sender is the first and memory is released.
        """
        has_waited = False
        while True:
            if has_waited or not self._waiters:
                result = attempt()
                if result is not None:
                    return result
            await self._wait(topic, size_bytes, deadline_s=deadline_s, is_again=has_waited)
            has_waited = True

    def offer(self, free_bytes: int) -> None:
        """Wake the first waiting sender if `free_bytes` can be enough for it."""
        if self._waiters:
            size_bytes, waiter = self._waiters[0]
            if not waiter.done() and (free_bytes >= size_bytes or self._is_closed):
                waiter.set_result(None)

    def close(self) -> None:
        """Fail all waiting senders, one after the other, because the producer is closed."""
        self._is_closed = True
        self.offer(0)

    async def _wait(self, topic: TopicName, size_bytes: int, *, deadline_s: float, is_again: bool) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        waiter: tuple[int, asyncio.Future[None]] = (size_bytes, loop.create_future())
        (self._waiters.appendleft if is_again else self._waiters.append)(waiter)
        self._on_count_change()
        try:
            async with asyncio.timeout_at(deadline_s):
                await waiter[1]
        except TimeoutError:
            self._metrics.buffer_exhausted(1)
            raise BufferExhaustedError(
                f"topic {topic}: no free memory in buffer.memory ({self._settings.buffer_memory}) "
                f"within max.block.ms ({self._settings.max_block_ms})"
            ) from None
        finally:
            self._waiters.remove(waiter)
            self._metrics.buffer_waited(loop.time() - started_s)
            self._on_count_change()
        if self._is_closed:
            raise ClientStateError("the producer was closed while a record waited for memory")

    def _on_count_change(self) -> None:
        self._metrics.waiting_threads(len(self._waiters))
        self._on_change()
