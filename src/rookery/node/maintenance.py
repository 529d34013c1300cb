"""The background jobs of a node's logs, and their intervals.

Decisions and changes of logs are made on the event loop; files are synced, removed and rewritten in worker threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from rookery.base.errors import StorageError
from rookery.base.types import Offset, TopicPartition
from rookery.broker.context import Services
from rookery.node.background import Job
from rookery.replication.replica import Replica
from rookery.storage.compaction.cleaner import Cleaner
from rookery.storage.compaction.task import CleanerSettings
from rookery.storage.flush import flush_in_executor
from rookery.storage.manager import LogManager

# `flush.ms` must be effective even if log.flush.scheduler.interval.ms has its default, which is never.
_FLUSH_CHECK_MS = 1000
# The number of logs to check before other coroutines run: it takes about a millisecond.
_LOGS_PER_TURN = 1000


class LogMaintenance:
    """The periodic jobs of one node's logs."""

    def __init__(self, services: Services, logs: LogManager, *, executor: Executor | None) -> None:
        self._services = services
        self._logs = logs
        self._executor = executor
        self._cleaner = Cleaner(
            logs.logs,
            services.clock,
            lambda: CleanerSettings(dedupe_buffer_bytes=services.config().integer("log.cleaner.dedupe.buffer.size")),
            high_watermark=lambda log: self._high_watermark(log.partition) or 0,
        )

    def jobs(self) -> list[Job]:
        jobs = [
            Job("retention", self._interval("log.retention.check.interval.ms"), self._apply_retention),
            Job("flush", self._flush_pause_ms, self._flush_due),
            Job("checkpoint", self._interval("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            Job(
                "high watermarks",
                self._interval("replica.high.watermark.checkpoint.interval.ms"),
                self._services.replicas.checkpoint_high_watermarks,
            ),
        ]
        if self._services.config().boolean("log.cleaner.enable"):
            jobs.append(Job("cleaner", self._interval("log.cleaner.backoff.ms"), self._clean))
        return jobs

    def _interval(self, key: str) -> Callable[[], int]:
        return lambda: self._services.config().integer(key)

    def _flush_pause_ms(self) -> int:
        return min(self._services.config().integer("log.flush.scheduler.interval.ms"), _FLUSH_CHECK_MS)

    async def _apply_retention(self) -> None:
        now_ms = self._services.clock.now_ms()
        for log in self._logs.logs():
            self._logs.apply_retention(log, now_ms, self._high_watermark(log.partition))
            # The check of a log may load an index: with thousands of logs, requests would wait for all of them.
            await asyncio.sleep(0)
        # The log start offsets must be on disk before files disappear. After a crash in between, a log would begin
        # below its first segment, and the start would report the missing segments as damage. A log that is listed
        # although the last traces of its deletion have disappeared would be reported as missing.
        await self._checkpoint()
        self._logs.retire_expired(now_ms)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.purge_deleted, now_ms)

    async def _flush_due(self) -> None:
        logs, now_ms = self._logs.logs(), self._services.clock.now_ms()
        for start in range(0, len(logs), _LOGS_PER_TURN):
            for log in self._logs.flush_due(now_ms, logs[start : start + _LOGS_PER_TURN]):
                try:
                    await flush_in_executor(log, self._executor)
                except StorageError:
                    continue
            await asyncio.sleep(0)

    async def _checkpoint(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.checkpoint)

    async def _clean(self) -> None:
        while await self._cleaner.clean_one(self._executor):
            pass

    def _high_watermark(self, partition: TopicPartition) -> Offset | None:
        replica = self._services.replicas.find(partition)
        return replica.state.high_watermark if isinstance(replica, Replica) else None
