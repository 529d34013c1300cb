"""The cleaner: chooses the dirtiest log, has it compacted in a worker thread, and records how far each log is clean.

`node` awaits `clean_one` in a loop. The work on one log is a `CleaningTask` (see `task`), which alternates between a
worker thread and the event loop. How far each log is clean is kept in `cleaner-offset-checkpoint`, one file per log
directory; without it everything counts as dirty, which costs time and nothing else.

Cleaning never goes beyond the recovery point: a record that is on disk must not be dropped for a later one that a crash
may take. A log whose batches cannot be read is skipped until the next start, with one error in the log.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, StorageError
from rookery.base.types import Offset, TopicId, TopicPartition
from rookery.base.values import value_class
from rookery.storage.checkpoints import encode_offsets, read_offsets
from rookery.storage.compaction.policy import CleanableRange, cleanable_range, first_dirty_offset
from rookery.storage.compaction.task import CLEANER_CHECKPOINT_FILE, CleanerSettings, CleaningTask
from rookery.storage.log import Log

logger = structlog.get_logger(__name__)

_Found = TypeVar("_Found")


@value_class
class _CleanUpTo:
    """A checkpoint in memory; the topic id distinguishes a deleted topic from a later one with the same name."""

    topic_id: TopicId
    offset: Offset


class Cleaner:
    """Chooses what to clean and keeps the checkpoints. Runs on the event loop."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        clock: Clock,
        settings: Callable[[], CleanerSettings] = CleanerSettings,
        *,
        high_watermark: Callable[[Log], Offset] | None = None,
    ) -> None:
        self._logs = logs
        self._clock = clock
        # Called for each log that is cleaned.
        self._settings = settings
        self._high_watermark = high_watermark or (lambda log: log.end_offset)
        self._checkpoints: dict[Path, dict[TopicPartition, _CleanUpTo]] = {}
        self._running: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, TopicId] = {}

    def choose(self) -> CleaningTask | None:
        """Return a task for the dirtiest log that is due; None if there is none."""
        best: tuple[float, Log, CleanableRange] | None = None
        for log in self._logs():
            # A log with only an active segment has nothing to clean, and most logs are like that.
            if len(log.segments) < 2 or not self._is_candidate(log):
                continue
            dirty = self._try(log, self.dirty_range)
            if dirty is None or not dirty.is_due(log.config.min_cleanable_dirty_ratio):
                continue
            if best is None or dirty.dirty_ratio > best[0]:
                best = dirty.dirty_ratio, log, dirty
        return None if best is None else self._try(best[1], partial(self._start, best[2]))

    def _start(self, dirty: CleanableRange, log: Log) -> CleaningTask:
        task = CleaningTask(self, log, dirty, now_ms=self._clock.now_ms(), settings=self._settings())
        self._running.add(log.partition)
        return task

    def _try(self, log: Log, look: Callable[[Log], _Found]) -> _Found | None:
        """Return `look(log)`, None if it fails: one broken log must not keep the others from being cleaned."""
        try:
            return look(log)
        except OSError as error:
            log.log_directory.fail(error)
        except StorageError:
            logger.debug("log directory is offline", partition=str(log.partition))
        except CorruptionError as error:
            self.release(log, uncleanable=True)
            logger.error("log cannot be cleaned and is skipped", partition=str(log.partition), error=str(error))
        return None

    async def clean_one(self, executor: Executor | None = None) -> bool:
        """Choose and clean one log; False if none was due."""
        task = self.choose()
        if task is None:
            return False
        loop = asyncio.get_running_loop()
        while not task.is_done:
            step = loop.run_in_executor(executor, task.run)
            try:
                # Not asyncio.shield: since Python 3.14 it also logs the exception that `step.result()` raises below.
                await asyncio.wait((step,))
                step.result()
            except asyncio.CancelledError:
                task.cancel()
                await step
                task.abort()
                raise
            task.finish()
        return True

    def dirty_range(self, log: Log) -> CleanableRange:
        """Return the part of a log that could be cleaned now, due or not."""
        checkpoint = self._checkpoint_of(log)
        return cleanable_range(
            log.segments,
            log.config,
            first_dirty=first_dirty_offset(checkpoint, start_offset=log.start_offset, end_offset=log.end_offset),
            stable_offset=min(log.last_stable_offset(self._high_watermark(log)), log.recovery_point),
            now_ms=self._clock.now_ms(),
        )

    def note_truncation(self, partition: TopicPartition, offset: Offset) -> None:
        """Note that a log was truncated to `offset`: everything after it is dirty.

        Without this, records appended after the truncation would count as clean: their keys would not enter the map,
        and older values of the same keys would stay.
        """
        for checkpoints in self._checkpoints.values():
            known = checkpoints.get(partition)
            if known is not None and known.offset > offset:
                checkpoints[partition] = _CleanUpTo(known.topic_id, offset)

    def _is_candidate(self, log: Log) -> bool:
        return (
            log.config.compacts
            and not log.is_closed
            and log.log_directory.is_online
            and log.partition not in self._running
            and self._uncleanable.get(log.partition) != log.topic_id
        )

    def _checkpoint_of(self, log: Log) -> Offset | None:
        checkpoints = self._checkpoints.get(log.log_directory.path)
        if checkpoints is None:
            checkpoints = self._load(log)
        known = checkpoints.get(log.partition)
        return known.offset if known is not None and known.topic_id == log.topic_id else None

    def _load(self, log: Log) -> dict[TopicPartition, _CleanUpTo]:
        """Read a directory's checkpoint for the logs that are open now; it was written while these existed."""
        directory = log.log_directory
        path = directory.path / CLEANER_CHECKPOINT_FILE
        try:
            offsets = read_offsets(log.files, path)
        except CorruptionError as error:
            logger.warning("ignoring a damaged cleaner checkpoint", path=str(path), error=str(error))
            offsets = {}
        topic_ids = {other.partition: other.topic_id for other in self._logs() if other.log_directory is directory}
        loaded = {
            partition: _CleanUpTo(topic_ids[partition], offset)
            for partition, offset in offsets.items()
            if partition in topic_ids
        }
        self._checkpoints[directory.path] = loaded
        return loaded

    def note_clean(self, log: Log, offset: Offset) -> bytes:
        """Note that a log is clean up to `offset`; returns the contents of its directory's checkpoint file."""
        checkpoints = self._checkpoints.setdefault(log.log_directory.path, {})
        checkpoints[log.partition] = _CleanUpTo(log.topic_id, offset)
        alive = {(other.partition, other.topic_id) for other in self._logs()}
        # The file has no topic ids: the line of a deleted topic would be taken for a later topic with the same name,
        # and dirty records of that would be skipped.
        for partition in [known for known, clean in checkpoints.items() if (known, clean.topic_id) not in alive]:
            del checkpoints[partition]
        return encode_offsets({partition: clean.offset for partition, clean in checkpoints.items()})

    def release(self, log: Log, *, uncleanable: bool = False) -> None:
        """Note that a task has ended."""
        self._running.discard(log.partition)
        if uncleanable:
            self._uncleanable[log.partition] = log.topic_id
