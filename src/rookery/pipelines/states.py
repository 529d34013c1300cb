"""Which pipelines run on this machine: `list`, `status` and `stop` ask here, from other terminals.

A running pipeline holds a lock on `<name>.lock` in the state directory and writes `<name>.json` beside it. The system
gives a lock back when its holder dies, however it dies. Who looks asks for a share of the lock, which is refused only
while a pipeline holds it. The holder's first act is to remove what an earlier one left, so that the process id in the
file is that of the holder and of nobody else. `stop` signals on that condition only.
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

# Who only looks holds its share for a moment, which must not look like a running pipeline to one that starts.
_LOCK_TRIES: Final = 10
_LOCK_PAUSE_S: Final = 0.05


class AlreadyRunningError(RookeryError):
    """One pipeline of a name at a time: two would share a checkpoint."""


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
class Found:
    """`pipeline` is as it was last written. If not `alive`, its process ended without cleaning up: it was killed, and
    so were its flows, whatever they last wrote of themselves.
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
        """Holds the lock of a name; what it gives writes the state. The files go with the pipeline."""
        # Closed to other users: errors of a flow may quote records.
        self._directory.mkdir(0o700, parents=True, exist_ok=True)
        with self._lock_path(name).open("a") as lock:
            if not _lock_soon(lock):
                raise AlreadyRunningError(
                    f"pipeline {name} runs already: rookery pipelines status {name} shows it, and stop ends it"
                )
            self._state_path(name).unlink(missing_ok=True)
            try:
                yield self._write
            finally:
                self._state_path(name).unlink(missing_ok=True)

    def list(self) -> "list[Found]":
        names = sorted(path.stem for path in self._directory.glob("*.json"))
        found = [self.find(name) for name in names]
        return [each for each in found if each is not None]

    def find(self, name: str) -> Found | None:
        """None: nothing of that name runs, nor ended badly."""
        alive = self._is_held(name)
        try:
            text = self._state_path(name).read_text()
        except FileNotFoundError:
            return None
        pipeline = _from_json(json.loads(text))
        return Found(pipeline if alive else _killed(pipeline), alive)

    def forget(self, name: str) -> None:
        """Removes what a pipeline left behind that is not alive any more."""
        if not self._is_held(name):
            self._state_path(name).unlink(missing_ok=True)

    def signal_stop(self, name: str) -> bool:
        """Asks the process that holds the lock to end; whether there is one."""
        found = self.find(name)
        if found is None or not found.alive:
            return False
        os.kill(found.pipeline.pid, signal.SIGTERM)
        return True

    def new_log(self, name: str) -> Path:
        """An empty file for what Spark writes. Where nothing can be written to the directory, it is a temporary one."""
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


def _lock_soon(lock: IO[str]) -> bool:
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


def _killed(pipeline: RunningPipeline) -> RunningPipeline:
    """Flows that had ended before keep their state. Totals and lags stay as they were last seen."""
    flows = (
        each if each.is_over else replace(each, state="killed", rows_in_per_s=0.0, rows_out_per_s=0.0)
        for each in pipeline.flows
    )
    return replace(pipeline, flows=tuple(flows))


def _from_json(value: dict[str, Any]) -> RunningPipeline:
    """Another version of Rookery, whose figures have other fields, may have written the file."""
    known = {each.name for each in fields(Figures)}
    flows = ({name: row[name] for name in known & row.keys()} for row in value["flows"])
    return RunningPipeline(**value | {"flows": tuple(Figures(**row) for row in flows)})
