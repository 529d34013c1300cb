"""Work that a node does by itself, again and again: retention, flushes, checkpoints, cleaning.

Each job is a coroutine function that runs to its end before its next pause begins, so that a slow disk makes a job
rarer, never concurrent with itself. A job that fails is logged and tried again after its pause: the failure of one
disk has been dealt with below (its directory is offline), and the others still need the job.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rookery.base.values import value_class

logger = structlog.get_logger(__name__)


@value_class
class Job:
    """`pause_ms` is asked before each pause, because most intervals can be changed at run time."""

    name: str
    pause_ms: Callable[[], int]
    run: Callable[[], Awaitable[None]]


# Longer pauses than this are cut, so that an interval that was shortened takes effect soon enough.
_PAUSE_SECONDS_MAX = 3600.0


class Background:
    """Runs jobs until it is stopped."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *jobs: Job) -> None:
        self._tasks += [asyncio.create_task(self._repeat(job), name=job.name) for job in jobs]

    async def stop(self) -> None:
        """Cancel all jobs and wait until each has let go of what it was doing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(self, job: Job) -> None:
        while True:
            await asyncio.sleep(min(job.pause_ms() / 1000, _PAUSE_SECONDS_MAX))
            try:
                await job.run()
            except Exception as error:
                logger.exception("background job failed", job=job.name, error=str(error))
