"""One of the configured log directories, and whether it still works.

Any OSError inside a log operation takes the whole directory offline: the disk is full or broken, and what was
acknowledged must not be mixed with what may be half written. From then on every log in it answers StorageError; logs
in other directories go on. Only a restart, with its recovery, brings a directory back.
"""

from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import structlog

from rookery.base.errors import StorageError
from rookery.base.files import Files

logger = structlog.get_logger(__name__)


class LogDirectory:
    """Shared by all logs in it. Worker threads write `failure`, only once, and what the two locks guard.

    The names of the logs' own directories are synced together: each is numbered when it is made, and one sync covers
    all numbers given before it. So a thousand new partitions cost one sync of their parent, not a thousand.
    """

    __slots__ = ("_names", "_names_lock", "_names_synced", "checkpoint_lock", "failure", "partition_count", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        # Kept by the manager: new partitions go where the fewest are.
        self.partition_count = 0
        # Checkpoints are written by the event loop and by worker threads, aside and then renamed.
        self.checkpoint_lock = Lock()
        # Numbers without a lock, since `next` is one step of the interpreter: the event loop must not wait for a sync.
        self._names = count(1)
        self._names_synced = 0
        self._names_lock = Lock()

    def number_name(self) -> int:
        """A number for a name that was made in this directory just now, or may have been before a crash."""
        return next(self._names)

    def sync_name(self, files: Files, number: int) -> None:
        """Make the name of this number survive a crash, unless an earlier call has done it."""
        with self._names_lock:
            if number > self._names_synced:
                covered = next(self._names)
                files.sync_directory(self.path)
                self._names_synced = covered

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


class _Guarded(Protocol):
    log_directory: LogDirectory

    @property
    def is_closed(self) -> bool: ...

    def refusal(self) -> StorageError: ...


_Owner = TypeVar("_Owner", bound=_Guarded)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def guarded(
    method: Callable[Concatenate[_Owner, _Parameters], _Result],
) -> Callable[Concatenate[_Owner, _Parameters], _Result]:
    """For a log's methods: refused when it is closed or its directory offline, which an OSError makes it."""

    @wraps(method)
    def guard(owner: _Owner, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if owner.log_directory.failure is not None or owner.is_closed:
            raise owner.refusal()
        try:
            return method(owner, *args, **kwargs)
        except OSError as error:
            raise owner.log_directory.fail(error) from error

    return guard
