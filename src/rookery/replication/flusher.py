"""The fsyncs that acknowledgements wait for. They run in worker threads, one at a time per log.

Records that arrive while a log's fsync runs share the next one. So a busy partition with `flush.messages=1` does one
fsync per disk round trip, whatever the number of producers.
"""

import asyncio
from concurrent.futures import Executor

import structlog

from rookery.base.errors import StorageError
from rookery.base.types import Offset
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)


class Flusher:
    """Runs the flushes that replicas request, as tasks of the event loop that calls `request`."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, replica: Replica) -> None:
        """Start to flush a replica's log. A request during a flush does nothing: `Replica.flushed` repeats it."""
        if replica.is_flushing:
            return
        replica.is_flushing = True
        task = asyncio.get_running_loop().create_task(self._flush(replica))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until no flush is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _flush(self, replica: Replica) -> None:
        try:
            end_offset = await self._run(replica)
        except StorageError as error:
            logger.error("flush failed", partition=str(replica.state.topic_partition), error=str(error))
            replica.is_flushing = False
            replica.notify_failure()
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
        # Not the offset of the job: a truncation during the fsync may have removed records that it counts.
        return log.recovery_point
