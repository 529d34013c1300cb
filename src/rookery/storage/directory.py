"""One of the configured log directories, and whether it still works.

Any OSError inside a log operation takes the whole directory offline: the disk is full or broken, and what was
acknowledged must not be mixed with what may be half written. From then on every log in it answers StorageError; logs
in other directories go on. Only a restart, with its recovery, brings a directory back.
"""

from pathlib import Path
from threading import Lock

import structlog

from rookery.base.errors import StorageError

logger = structlog.get_logger(__name__)


class LogDirectory:
    """Shared by all logs in it; `failure` is the only field that worker threads write, and only once."""

    __slots__ = ("checkpoint_lock", "failure", "partition_count", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        # Kept by the manager: new partitions go where the fewest are.
        self.partition_count = 0
        # Checkpoints are written by the event loop and by worker threads, aside and then renamed.
        self.checkpoint_lock = Lock()

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def check(self) -> None:
        if self.failure is not None:
            raise StorageError(f"log directory {self.path} is offline: {self.failure}")

    def fail(self, error: OSError) -> StorageError:
        """Take the directory offline; the caller raises what this returns."""
        if self.failure is None:
            self.failure = str(error)
            logger.error("log directory is offline", directory=str(self.path), error=str(error))
        return StorageError(f"log directory {self.path} is offline: {error}")
