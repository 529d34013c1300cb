"""Runs the periodic jobs of a node: retention, flushes, checkpoints, cleaning.

The pause of a job begins when its run has ended: on a slow disk a job runs less often, but never concurrently with
itself. A failure is logged, and the job runs again after its pause: storage has already taken the failed directory
offline, and the other directories still need the job.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rookery.base.values import value_class

logger = structlog.get_logger(__name__)


@value_class
class Job:
    """A periodic job. `pause_ms` is called before each pause, because most intervals can change at run time."""

    name: str
    pause_ms: Callable[[], int]
    run: Callable[[], Awaitable[None]]


# The longest pause. A change from a very long interval to a shorter one takes effect after at most this time.
_PAUSE_SECONDS_MAX = 3600.0


class Background:
    """Runs jobs until it is stopped."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *jobs: Job) -> None:
        self._tasks += [asyncio.create_task(self._repeat(job), name=job.name) for job in jobs]

    async def stop(self) -> None:
        """Cancel all jobs and wait until they have ended."""
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
