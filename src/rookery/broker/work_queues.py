"""Queues of work that has to wait before it may change a log, one queue per key.

Stage 1 keeps the order of requests by being synchronous. A request that has to wait before it appends would be
overtaken by the next request of the same producer. So its append is queued under a key (a transactional id, a partition
and connection), and later appends with the same key are queued after it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class WorkQueues:
    """Runs the work of each key in order. If `is_free(key)`, the caller may do its work without `run`."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[Any]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all keys are free."""
        return not self._last

    def is_free(self, key: str) -> bool:
        """Return whether no work of this key is queued or running."""
        return key not in self._last

    def run(self, key: str, work: Callable[[], Awaitable[ResultT]]) -> "asyncio.Task[ResultT]":
        """Run `work` when all earlier work of this key is done, whether it succeeded or failed."""
        task = asyncio.ensure_future(_run_after(self._last.get(key), work))
        self._last[key] = task
        task.add_done_callback(lambda _: self._on_done(key, task))
        return task

    def _on_done(self, key: str, task: "asyncio.Task[Any]") -> None:
        # Only the last task frees the key: later work that is queued after this task is still to come.
        if self._last.get(key) is task:
            del self._last[key]


async def _run_after(before: "asyncio.Task[Any] | None", work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    if before is not None:
        await asyncio.wait([before])
    return await work()
