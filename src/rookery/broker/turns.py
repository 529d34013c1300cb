"""Work that has to wait, in the order in which it came.

Stage 1 keeps the order of requests by being synchronous. A request that has to wait before it may change a log would
lose its place: the next one of the same producer must not pass it. So it takes a turn under the producer's name, and
whoever comes while a turn is taken goes behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Turns:
    """`is_free(name)`: nobody has to be waited for, and the work can be done at once; otherwise `take` a turn."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[Any]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all names are free."""
        return not self._last

    def is_free(self, name: str) -> bool:
        return name not in self._last

    def take(self, name: str, work: Callable[[], Awaitable[ResultT]]) -> "asyncio.Task[ResultT]":
        """Run `work` when all that took a turn under this name before are done, however they ended."""
        task = asyncio.ensure_future(_run_after(self._last.get(name), work))
        self._last[name] = task
        task.add_done_callback(lambda _: self._leave(name, task))
        return task

    def _leave(self, name: str, task: "asyncio.Task[Any]") -> None:
        if self._last.get(name) is task:
            del self._last[name]


async def _run_after(before: "asyncio.Task[Any] | None", work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    if before is not None:
        await asyncio.wait([before])
    return await work()
