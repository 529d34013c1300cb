"""Makes the latest bytes of a log survive a crash without blocking the event loop.

A flush has three steps: `Log.prepare_flush` (on the event loop) collects open files and the state of the epochs,
`FlushJob.run` (in a worker thread) syncs them, and `Log.finish_flush` (on the event loop) moves the recovery point.
Appends continue meanwhile. The job holds open files, not names, so that segments may be deleted or renamed during it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from rookery.base.files import File, Files, replace_file
from rookery.base.types import Offset
from rookery.storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from rookery.storage.directory import LogDirectory
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.segment import Segment

if TYPE_CHECKING:
    from rookery.storage.log import Log


class Unsynced:
    """What a crash could still take from a log, in addition to the bytes of its active segment."""

    __slots__ = (
        "_epochs_version",
        "_names_created",
        "_names_synced",
        "epochs_written",
        "generation",
        "lock",
        "own_name",
        "sealed",
        "snapshots",
    )

    def __init__(self, sealed: list[Segment], *, own_name: int | None) -> None:
        # Sealed segments: their last bytes and their index files.
        self.sealed = sealed
        # Producer snapshots, by offset.
        self.snapshots: list[Offset] = []
        # The number of the log's own name in its log directory; None once the name, and `partition.metadata`, are
        # synced.
        self.own_name = own_name
        # Counts truncations. A flush that overlaps one proves nothing: its bytes may have been cut and written again
        # since.
        self.generation = 0
        # Flushes of one log may overlap. The lock serializes the replacement of the epochs' file, and `epochs_written`
        # keeps a flush that was prepared earlier from overwriting newer epochs.
        self.lock = Lock()
        self.epochs_written = 0
        self._names_created = 0 if own_name is None else 1
        self._names_synced = 0
        self._epochs_version = 0

    @property
    def has_names(self) -> bool:
        return self._names_created > self._names_synced

    def has_epochs(self, epochs: LeaderEpochs | None) -> bool:
        return epochs is not None and epochs.version > self._epochs_version

    def has_any(self, epochs: LeaderEpochs | None) -> bool:
        return bool(self.sealed or self.snapshots or self.has_names or self.has_epochs(epochs))

    def name_created(self) -> None:
        self._names_created += 1

    def names_synced(self, count: int | None = None) -> None:
        """Note that all names are synced, or the first `count`: those that existed when a flush was prepared."""
        self._names_synced = max(self._names_synced, self._names_created if count is None else count)

    @property
    def names_created(self) -> int:
        return self._names_created

    def keep_only(self, sealed: Sequence[Segment], snapshots: Sequence[Offset]) -> None:
        """Keep only these after segments were cut or replaced; a segment that was sealed may be active again."""
        self.sealed = [segment for segment in self.sealed if segment in sealed]
        self.snapshots = [offset for offset in self.snapshots if offset in snapshots]

    def forget_below(self, base_offset: Offset) -> None:
        """Drop the segments and snapshots below the new start of the log."""
        self.sealed = [segment for segment in self.sealed if segment.base_offset >= base_offset]
        self.snapshots = [offset for offset in self.snapshots if offset >= base_offset]

    def mark_synced(self, job: "FlushJob") -> bool:
        """Record what `job` has synced; False if the log was truncated meanwhile."""
        if job.generation != self.generation:
            return False
        # Segments that were sealed after the job was prepared stay unsynced until the next flush.
        self.sealed = [segment for segment in self.sealed if segment not in job.sealed]
        self.snapshots = [offset for offset in self.snapshots if offset not in job.snapshots]
        self.own_name = None
        self.names_synced(job.names)
        self._epochs_version = max(self._epochs_version, job.epochs_version)
        return True


class FlushJob:
    """A flush of one log up to an offset: everything that a crash could lose."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_log_directory",
        "_open_files",
        "_own_name",
        "_state",
        "_syncs_directory",
        "epochs_version",
        "generation",
        "names",
        "sealed",
        "snapshots",
        "up_to",
    )

    def __init__(
        self,
        files: Files,
        log_directory: LogDirectory,
        directory: Path,
        *,
        open_files: Sequence[File],
        epochs: LeaderEpochs | None,
        state: Unsynced,
        up_to: Offset,
    ) -> None:
        self._files = files
        self._log_directory = log_directory
        self._directory = directory
        self._open_files = open_files
        self._epochs = encode_epochs(epochs.entries()) if epochs is not None else None
        self._state = state
        # Sealing and closing write index files and snapshots, so their names may be new as well.
        self._syncs_directory = bool(state.has_names or state.sealed or state.snapshots)
        self._own_name = state.own_name
        self.up_to = up_to
        self.sealed = list(state.sealed)
        self.snapshots = list(state.snapshots)
        self.epochs_version = epochs.version if epochs is not None else 0
        self.generation = state.generation
        self.names = state.names_created

    def run(self) -> None:
        """Sync everything; may run in any thread.

        An OSError takes the log directory offline and is raised as StorageError.
        """
        try:
            for file in self._open_files:
                file.sync()
            with self._state.lock:
                self._sync_names()
        except OSError as error:
            if self._is_deleted(error):
                return
            raise self._log_directory.fail(error) from error

    def _sync_names(self) -> None:
        if self._epochs is not None and self.epochs_version > self._state.epochs_written:
            replace_file(self._files, self._directory / LEADER_EPOCH_FILE, self._epochs)
            self._state.epochs_written = self.epochs_version
        elif self._syncs_directory:
            self._files.sync_directory(self._directory)
        if self._own_name is not None:
            self._log_directory.sync_name(self._files, self._own_name)

    def _is_deleted(self, error: OSError) -> bool:
        """Return whether the partition was deleted meanwhile: its directory is renamed, nothing needs to survive."""
        return isinstance(error, FileNotFoundError) and not self._files.exists(self._directory)


async def flush_in_executor(log: "Log", executor: Executor | None = None) -> None:
    """Flush a log without blocking the event loop."""
    job = log.prepare_flush()
    if job is not None:
        await asyncio.get_running_loop().run_in_executor(executor, job.run)
        log.finish_flush(job)
