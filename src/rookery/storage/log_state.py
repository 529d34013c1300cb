"""The state of one partition's log in memory, and how it reaches the disk: flushes and the close.

`Log` is the class to use; this is its base, with everything that appends, reads and truncations share: the segments,
the producers' states and leader epochs (loaded when they are first needed), the offsets of both ends, and the records
of which the process knows that they are on disk (`recovery_point`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.base.clock import Clock
from rookery.base.errors import StorageError
from rookery.base.files import File, Files
from rookery.base.types import NO_TOPIC_ID, LeaderEpoch, TimestampMs, TopicId, TopicPartition
from rookery.storage import recovery
from rookery.storage.checkpoints import PARTITION_METADATA_FILE
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory, guarded
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.flush import FlushJob, Unsynced
from rookery.storage.producers import ProducerStates
from rookery.storage.roll_policy import RollPolicy
from rookery.storage.segment import Segment
from rookery.storage.segments import Segments


class LogState:
    """What a log is made of; its methods change no record."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        *,
        clock: Clock,
        partition: TopicPartition,
        topic_id: TopicId,
        log_directory: LogDirectory,
        loaded: recovery.LoadedLog,
    ) -> None:
        self.files = files
        self.directory = directory
        self.clock = clock
        self.partition = partition
        self.topic_id = topic_id
        self.log_directory = log_directory
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        # Writes the recovery point to disk immediately; set by the manager, which owns the checkpoint file.
        self.checkpoint_recovery_point: Callable[[], None] | None = None
        self._segments = Segments(files, directory, loaded.segments, loaded.snapshots)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._latest_epoch: LeaderEpoch | None = None
        # A process that was killed may not have synced the name of the log's directory; `close` does not sync an empty
        # log.
        may_be_unnamed = loaded.is_new or loaded.is_dirty or not loaded.end_offset
        self._unsynced = Unsynced(loaded.unsynced, own_name=log_directory.number_name() if may_be_unnamed else None)
        self._unsynced.snapshots = loaded.unsynced_snapshots
        # The segments that `replace_segments` is about to replace: the manifest must no longer list their sizes.
        self.replaced: Sequence[Segment] = ()
        # Whether `close` has anything to write.
        self._is_dirty = loaded.is_dirty
        self.is_closed = False
        self._last_flush_ms = clock.now_ms()
        self._unflushed_messages = self.end_offset - self.recovery_point
        self.update_config(config)

    def __repr__(self) -> str:
        return f"Log({self.partition}, {self.start_offset}..{self.end_offset})"

    # State

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one is active. The caller must not change the list."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        # Not a guarded property: compiled by mypyc, a property with a second decorator returns the bound method.
        return self._sum_sizes()

    @guarded
    def _sum_sizes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments.all)

    @property
    def max_timestamp_ms(self) -> TimestampMs:
        return max(segment.max_timestamp_ms for segment in self._segments.all)

    @property
    def known_producers(self) -> int:
        """The number of producers in the state, 0 if it is not loaded yet."""
        return 0 if self._producers is None else len(self._producers)

    @property
    def generation(self) -> int:
        """Counts truncations; a worker compares it to see whether what it has read is still part of the log."""
        return self._unsynced.generation

    @property
    def producers(self) -> ProducerStates:
        return self._producers if self._producers is not None else self._load_producers()

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epochs if self._epochs is not None else self._load_epochs()

    @guarded
    def _load_producers(self) -> ProducerStates:
        self._producers = recovery.load_producers(self.files, self.directory, self._loaded_view())
        return self._producers

    @guarded
    def _load_epochs(self) -> LeaderEpochs:
        self._epochs = recovery.load_epochs(self.files, self.directory, self._loaded_view())
        return self._epochs

    @property
    def needs_flush(self) -> bool:
        """Whether `flush.messages` were appended since the last flush: flush before acknowledging more."""
        return self._unflushed_messages >= self.config.flush_messages

    def flush_is_due(self, now_ms: TimestampMs) -> bool:
        """Return whether `flush.ms` has passed with unflushed records, or sealed segments wait to be synced."""
        if self._unsynced.sealed:
            return True
        return self.end_offset > self.recovery_point and now_ms - self._last_flush_ms >= self.config.flush_ms

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._rolling = RollPolicy(self.partition, config, self.clock)
        self._segments.active.index_interval_bytes = config.index_interval_bytes

    # Flushing and closing

    def flush(self) -> None:
        """Flush in one blocking call: all three steps."""
        job = self.prepare_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)

    @guarded
    def prepare_flush(self) -> FlushJob | None:
        """Collect everything that must be synced; None if there is nothing. The first step of a flush."""
        if self.end_offset <= self.recovery_point and not self._unsynced.has_any(self._epochs):
            return None
        return FlushJob(
            self.files,
            self.log_directory,
            self.directory,
            open_files=self._unsynced_files(),
            epochs=self._epochs if self._unsynced.has_epochs(self._epochs) else None,
            state=self._unsynced,
            up_to=self.end_offset,
        )

    def _unsynced_files(self) -> list[File]:
        unsynced = self._unsynced
        files = self._segments.open_files(unsynced.sealed, unsynced.snapshots)
        if unsynced.own_name is not None and self.topic_id != NO_TOPIC_ID:
            files.append(self.files.open(self.directory / PARTITION_METADATA_FILE))
        return files

    def finish_flush(self, job: FlushJob) -> None:
        """Move the recovery point to where `job` was prepared, unless the log was truncated meanwhile."""
        if not self._unsynced.mark_synced(job):
            return
        self.recovery_point = max(self.recovery_point, job.up_to)
        self._last_flush_ms = self.clock.now_ms()
        # Flushes may overlap, and one that was prepared earlier may end last.
        self._unflushed_messages = self.end_offset - self.recovery_point

    def close(self) -> None:
        """Write what makes the next start quick and sync everything; writes nothing if nothing has changed.

        A log that has always been empty has nothing to lose: if a crash takes its files, the next start creates them
        again.
        """
        if self.is_closed:
            return
        has_content = self.end_offset > 0 or self._unsynced.has_epochs(self._epochs)
        if self._is_dirty and has_content and self.log_directory.is_online:
            try:
                self._segments.active.write_indexes()
                self._unsynced.sealed.append(self._segments.active)
                self._write_snapshot()
            except OSError as error:
                raise self.log_directory.fail(error) from error
            self.flush()
            self._is_dirty = False
        self.abandon()

    def abandon(self) -> None:
        """Close without writing, as when the partition is deleted. Fetches in progress keep their open files."""
        self.is_closed = True
        for segment in self._segments.all:
            segment.release()

    def expire_producers(self, now_ms: TimestampMs, expiration_ms: int) -> None:
        """Drop the states of expired producers; states that nothing has loaded yet are not loaded for this."""
        if self._producers is not None and self._producers.expire(now_ms, expiration_ms):
            self._is_dirty = True

    def _write_snapshot(self) -> None:
        """Write a snapshot of the producers as of the end of the log."""
        if self._segments.write_snapshot(self.end_offset, self.producers):
            self._unsynced.snapshots.append(self.end_offset)

    # Helpers

    def _loaded_view(self) -> recovery.LogView:
        found = self._segments
        return recovery.LogView(found.all, found.snapshots, self.start_offset, self.end_offset, self.config.compacts)

    def unavailable_error(self) -> StorageError:
        """Return the error for a call on a log that is closed or whose directory is offline."""
        return StorageError(f"{self} is closed") if self.log_directory.is_online else self.log_directory.offline_error()
