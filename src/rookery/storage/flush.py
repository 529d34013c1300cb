"""Making a log's latest bytes survive a crash, without holding up the event loop.

A flush has three steps: `Log.prepare_flush` (on the event loop) collects open files and the state of the epochs,
`FlushJob.run` (in a worker thread) syncs them, and `Log.finish_flush` (on the event loop) moves the recovery point.
Appends go on meanwhile. The job holds open files, not names, so that segments may be deleted or renamed under it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from rookery.base.files import File, Files, replace_file
from rookery.base.types import Offset
from rookery.storage.checkpoints import LEADER_EPOCH_FILE
from rookery.storage.directory import LogDirectory

if TYPE_CHECKING:
    from rookery.storage.log import Log


class FlushJob:
    """Everything of one log that a crash could lose, up to an offset."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_lock",
        "_log_directory",
        "_open_files",
        "_syncs_parent",
        "epochs_version",
        "generation",
        "names",
        "up_to",
    )

    def __init__(
        self,
        files: Files,
        log_directory: LogDirectory,
        directory: Path,
        *,
        open_files: Sequence[File],
        epochs: bytes | None,
        epochs_version: int,
        lock: Lock,
        syncs_parent: bool,
        up_to: Offset,
        generation: int,
        names: int,
    ) -> None:
        self._files = files
        self._log_directory = log_directory
        self._directory = directory
        self._open_files = open_files
        self._epochs = epochs
        self._lock = lock
        self._syncs_parent = syncs_parent
        self.up_to = up_to
        # The log's own counters at the time of preparation: changes of the epochs, truncations, names created.
        self.epochs_version = epochs_version
        self.generation = generation
        self.names = names

    def run(self) -> None:
        """May run in any thread. An IO error takes the log directory offline and is raised as StorageError."""
        try:
            for file in self._open_files:
                file.sync()
            with self._lock:
                self._sync_names()
        except OSError as error:
            if self._is_deleted(error):
                return
            raise self._log_directory.fail(error) from error

    def _sync_names(self) -> None:
        if self._epochs is not None:
            replace_file(self._files, self._directory / LEADER_EPOCH_FILE, self._epochs)
        else:
            self._files.sync_directory(self._directory)
        if self._syncs_parent:
            self._files.sync_directory(self._directory.parent)

    def _is_deleted(self, error: OSError) -> bool:
        """The partition was deleted meanwhile: its directory has another name now, and nothing to keep."""
        return isinstance(error, FileNotFoundError) and not self._files.exists(self._directory)


async def flush_in_executor(log: "Log", executor: Executor | None = None) -> None:
    """Flush a log while the event loop goes on."""
    job = log.prepare_flush()
    if job is not None:
        await asyncio.get_running_loop().run_in_executor(executor, job.run)
        log.finish_flush(job)
