"""Long work on the event loop, done in slices.

A coroutine whose work grows with a request (partitions to create, topics to describe, names to match) calls
`await slices.pause()` after each slice. Of all coroutines that wait in `pause`, one resumes per turn of the loop, in
the order of their calls: however many long requests arrive at the same time, the other connections wait for one slice
per turn. A slice is measured in items, never in seconds, so that a run can be repeated (`rookery.base.bounds` has the
sizes).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


class Slices:
    """The long work of one node. All methods must be called on the node's event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def pause(self) -> None:
        """Let the event loop serve other coroutines; returns when it is this coroutine's turn again."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._resume_one, loop)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    async def of(self, items: Iterable[Item], size: int) -> AsyncIterator[Sequence[Item]]:
        """Yield `items` in slices of `size`, with a pause between one slice and the next."""
        remaining = iter(items)
        some = list(islice(remaining, size))
        while some:
            yield some
            some = list(islice(remaining, size))
            if some:
                await self.pause()

    def _resume_one(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            # A coroutine that was cancelled while it waited must not use up the turn.
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._resume_one, loop)
