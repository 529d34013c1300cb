"""Fsyncs that acknowledgements wait for: in worker threads, and one at a time per log.

While a log's fsync runs, more records arrive; they share the next one. So a busy partition with `flush.messages=1` does
one fsync per disk round trip, whatever the number of producers.
"""

import asyncio
from concurrent.futures import Executor

import structlog

from rookery.base.errors import StorageError
from rookery.base.types import Offset
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)


class Flusher:
    """Runs the flushes that replicas ask for. The event loop that calls `request` runs them."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, replica: Replica) -> None:
        """Flush a replica's log soon; what is asked for while a flush runs is done by the next one."""
        if replica.is_flushing:
            return
        replica.is_flushing = True
        task = asyncio.get_running_loop().create_task(self._flush(replica))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait for the flushes under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _flush(self, replica: Replica) -> None:
        try:
            end_offset = await self._run(replica)
        except StorageError as error:
            logger.error("flush failed", partition=str(replica.state.topic_partition), error=str(error))
            replica.is_flushing = False
            replica.failed()
            return
        replica.is_flushing = False
        replica.flushed(end_offset)

    async def _run(self, replica: Replica) -> Offset:
        log = replica.log
        job = log.prepare_flush()
        if job is None:
            return log.recovery_point
        await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        log.finish_flush(job)
        return job.up_to
