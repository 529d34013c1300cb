"""The pipelines that run on this machine, for the commands `list`, `status` and `stop` in other terminals.

A running pipeline holds an exclusive lock on `<name>.lock` in the state directory and writes `<name>.json` next to it.
The operating system releases the lock when its holder dies, however it dies. The commands try a shared lock, which
fails only while a pipeline holds the exclusive one. A pipeline that gets the lock first removes the state file of an
earlier run: while the lock is held, the process id in the file is that of the holder. `stop` sends its signal only
then, so that it never signals an unrelated process that has reused the id.
"""

import fcntl
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from threading import Event
from typing import IO, Any, Final

from rookery.base.errors import RookeryError
from rookery.base.values import value_class
from rookery.pipelines.progress import Figures

# A command holds its shared lock for a moment: a pipeline that starts retries, lest it take that lock for a pipeline's.
_LOCK_TRIES: Final = 10
_LOCK_PAUSE_S: Final = 0.05


class AlreadyRunningError(RookeryError):
    """A pipeline of this name is already running; two would share a checkpoint."""


@value_class(kw_only=True)
class RunningPipeline:
    name: str
    pid: int
    file: str
    started_ms: int
    master: str
    metrics_address: str | None
    updated_ms: int
    flows: tuple[Figures, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@value_class
class PipelineStatus:
    """A pipeline as its process last wrote it. If it is not `alive`, the process was killed before it could clean up;
    its flows are then shown as killed, whatever state they were written with.
    """

    pipeline: RunningPipeline
    alive: bool


def default_directory(environment: Mapping[str, str]) -> Path:
    chosen = environment.get("ROOKERY_STATE_DIR")
    base = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(chosen) if chosen else Path(base) / "rookery"


class StateDirectory:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "pipelines"

    @contextmanager
    def running(self, name: str) -> Iterator[Callable[[RunningPipeline], None]]:
        """Hold the lock of a name and yield a function that writes the state; remove the state file at the end."""
        # Not readable by other users: error messages of a flow may quote records.
        self._directory.mkdir(0o700, parents=True, exist_ok=True)
        with self._lock_path(name).open("a") as lock:
            if not _lock_with_retries(lock):
                raise AlreadyRunningError(
                    f"pipeline {name} is already running: rookery pipelines status {name} shows it, and "
                    f"rookery pipelines stop {name} stops it"
                )
            self._state_path(name).unlink(missing_ok=True)
            try:
                yield self._write
            finally:
                self._state_path(name).unlink(missing_ok=True)

    def list(self) -> "list[PipelineStatus]":
        names = sorted(path.stem for path in self._directory.glob("*.json"))
        found = [self.find(name) for name in names]
        return [each for each in found if each is not None]

    def find(self, name: str) -> PipelineStatus | None:
        """Return the status of a pipeline; None if it neither runs nor was killed."""
        alive = self._is_held(name)
        try:
            text = self._state_path(name).read_text()
        except FileNotFoundError:
            return None
        pipeline = _from_json(json.loads(text))
        return PipelineStatus(pipeline if alive else _mark_killed(pipeline), alive)

    def remove_stale(self, name: str) -> None:
        """Remove the state file of a pipeline that was killed."""
        if not self._is_held(name):
            self._state_path(name).unlink(missing_ok=True)

    def signal_stop(self, name: str) -> bool:
        """Send SIGTERM to the process that holds the lock; return whether there is one."""
        found = self.find(name)
        if found is None or not found.alive:
            return False
        os.kill(found.pipeline.pid, signal.SIGTERM)
        return True

    def new_log(self, name: str) -> Path:
        """Create an empty file for Spark's log; a temporary one if the state directory is not writable."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"{name}.log"
            path.write_bytes(b"")
        except OSError:
            handle, temporary = tempfile.mkstemp(prefix=f"rookery-{name}-", suffix=".log")
            os.close(handle)
            return Path(temporary)
        return path

    def _is_held(self, name: str) -> bool:
        try:
            with self._lock_path(name).open("r") as lock:
                return not _try_lock(lock, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def _write(self, pipeline: RunningPipeline) -> None:
        path = self._state_path(pipeline.name)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(pipeline.to_json()))
        temporary.replace(path)

    def _lock_path(self, name: str) -> Path:
        return self._directory / f"{name}.lock"

    def _state_path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _lock_with_retries(lock: IO[str]) -> bool:
    for _ in range(_LOCK_TRIES):
        if _try_lock(lock, fcntl.LOCK_EX):
            return True
        Event().wait(_LOCK_PAUSE_S)
    return False


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _mark_killed(pipeline: RunningPipeline) -> RunningPipeline:
    """Set the state of flows that had not ended to killed. Totals and lags keep their last values."""
    flows = (
        each if each.has_ended else replace(each, state="killed", rows_in_per_s=0.0, rows_out_per_s=0.0)
        for each in pipeline.flows
    )
    return replace(pipeline, flows=tuple(flows))


def _from_json(value: dict[str, Any]) -> RunningPipeline:
    """Parse a state file. Unknown fields are ignored: another version of Rookery may have written it."""
    known = {each.name for each in fields(Figures)}
    flows = ({name: row[name] for name in known & row.keys()} for row in value["flows"])
    return RunningPipeline(**value | {"flows": tuple(Figures(**row) for row in flows)})
