"""One of the configured log directories and its state, online or offline.

Any OSError inside a log operation takes the whole directory offline: the disk is full or broken, and acknowledged
records must not be mixed with a write that may be incomplete. From then on every log in it raises StorageError; logs in
other directories keep working. Only a restart, with its recovery, brings a directory back online.
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
    """The state shared by all logs of one directory.

    Worker threads write `failure`, which is set only once, and the fields guarded by the two locks. The names of the
    logs' own directories are synced together: each name gets a number when it is created, and one sync covers all
    numbers issued before it. A thousand new partitions cost one sync of their parent, not a thousand.
    """

    __slots__ = (
        "_names",
        "_names_lock",
        "_names_synced",
        "checkpoint_lock",
        "failure",
        "is_cordoned",
        "on_failure",
        "partition_count",
        "path",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        # Whether it gets no new partitions while there are other directories (KIP-1066).
        self.is_cordoned = False
        self.failure: str | None = None
        # Called after the directory has failed, in the thread that noticed it.
        self.on_failure: Callable[[], object] | None = None
        # Maintained by the manager: a new partition goes to the directory with the fewest.
        self.partition_count = 0
        # The event loop and worker threads both write checkpoints, to a temporary file that is then renamed: two
        # concurrent writers would mix their contents in that file.
        self.checkpoint_lock = Lock()
        # Issued without a lock, since `next` is atomic in CPython: the event loop must not wait for a sync.
        self._names = count(1)
        self._names_synced = 0
        self._names_lock = Lock()

    def number_name(self) -> int:
        """Return a number for a name that was created in this directory just now, or possibly before a crash."""
        return next(self._names)

    def sync_name(self, files: Files, number: int) -> None:
        """Make the name with this number survive a crash, unless an earlier sync covered it."""
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
            raise self.offline_error()

    def offline_error(self) -> StorageError:
        return StorageError(f"log directory {self.path} is offline: {self.failure}")

    def fail(self, error: OSError) -> StorageError:
        """Take the directory offline; returns the error for the caller to raise."""
        if self.failure is None:
            self.failure = str(error)
            logger.error("log directory is offline", directory=str(self.path), error=str(error))
            if self.on_failure is not None:
                self.on_failure()
        return StorageError(f"log directory {self.path} is offline: {error}")


class _Guarded(Protocol):
    log_directory: LogDirectory

    @property
    def is_closed(self) -> bool: ...

    def unavailable_error(self) -> StorageError: ...


_Owner = TypeVar("_Owner", bound=_Guarded)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def guarded(
    method: Callable[Concatenate[_Owner, _Parameters], _Result],
) -> Callable[Concatenate[_Owner, _Parameters], _Result]:
    """Wrap a method of a log: raise if the log is closed or its directory offline; an OSError takes it offline."""

    @wraps(method)
    def guard(owner: _Owner, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if owner.log_directory.failure is not None or owner.is_closed:
            raise owner.unavailable_error()
        try:
            return method(owner, *args, **kwargs)
        except OSError as error:
            raise owner.log_directory.fail(error) from error

    return guard
