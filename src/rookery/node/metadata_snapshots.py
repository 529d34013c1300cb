"""When a node takes a snapshot of its metadata, and removes what older ones replace.

A snapshot is taken when `metadata.log.max.record.bytes.between.snapshots` were written since the last one, or when
`metadata.log.max.snapshot.interval.ms` have passed and something was written. Every node takes its own.

A snapshot hides the removal of topics before it. A directory of a partition whose topic is unknown stays as it is, in
case the metadata was lost (decision 29). So a snapshot is only taken of an image that all listeners have finished, that
is, after the directories of removed topics were renamed, and after those names were synced: otherwise a crash could
bring a directory back under its old name, and no start would ever set it aside again.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import replace

import structlog

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.files import Files
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.snapshot import snapshot_values
from rookery.node.background import Job
from rookery.quorum.driver import QuorumDriver
from rookery.quorum.replica_log import METADATA_LOG_CONFIG
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory

logger = structlog.get_logger(__name__)

# How often a node looks whether a snapshot is due.
_CHECK_MS = 10_000


def metadata_log_config(config: BrokerLayers) -> LogConfig:
    return replace(
        METADATA_LOG_CONFIG,
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
    )


class MetadataSnapshots:
    """The background job of one node."""

    def __init__(
        self,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        *,
        files: Files,
        clock: Clock,
        config: BrokerLayers,
        directories: Callable[[], Iterable[LogDirectory]],
        executor: Executor | None,
    ) -> None:
        """`directories` returns the log directories of the node."""
        self._quorum = quorum
        self._metadata = metadata
        self._files = files
        self._clock = clock
        self._bytes_max = config.integer("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = config.integer("metadata.log.max.snapshot.interval.ms")
        self._retention_bytes = config.integer("metadata.max.retention.bytes")
        self._retention_ms = config.integer("metadata.max.retention.ms")
        self._directories = directories
        self._executor = executor
        self._taken_ms = clock.now_ms()

    def job(self) -> Job:
        return Job("metadata snapshots", lambda: _CHECK_MS, self.run)

    async def run(self) -> None:
        """Take a snapshot if one is due, then remove what is obsolete."""
        if self._is_due():
            await self.take()
            await self._quorum.clean(retention_bytes=self._retention_bytes, retention_ms=self._retention_ms)

    def _is_due(self) -> bool:
        if not self._quorum.is_online or self._metadata.finished_image.offset < self._quorum.snapshot_end:
            return False
        waited_ms = self._clock.now_ms() - self._taken_ms
        return 0 < self._interval_ms <= waited_ms or self._quorum.bytes_since_snapshot() >= self._bytes_max

    async def take(self) -> None:
        """Write a snapshot of the newest finished image."""
        image = self._metadata.finished_image
        await asyncio.get_running_loop().run_in_executor(self._executor, self._sync_names)
        await self._quorum.take_snapshot(image.offset + 1, snapshot_values(image))
        self._taken_ms = self._clock.now_ms()
        logger.info("took a metadata snapshot", end_offset=image.offset + 1, partitions=image.partition_count())

    def _sync_names(self) -> None:
        """Make the new names of removed partitions' directories survive a crash."""
        for directory in self._directories():
            if directory.is_online:
                try:
                    self._files.sync_directory(directory.path)
                except OSError as error:
                    raise directory.fail(error) from error
