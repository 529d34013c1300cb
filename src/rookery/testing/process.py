"""A broker in another process than the test: the same as `rookery start`, with its start-up time and its syncs."""

import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

from rookery.base.errors import StartupError

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 30
_LOG_CHARACTERS_SHOWN = 2000


class BrokerProcess:
    """A `Runner` that controls the process by signals: SIGTERM, SIGKILL, SIGSTOP and SIGCONT."""

    def __init__(self, assignments: Sequence[str], *, log_path: Path) -> None:
        self._assignments = assignments
        self._log_path = log_path
        self._started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = [argument for item in self._assignments for argument in ("--set", item)]
        command = [sys.executable, "-m", "rookery.cli.main", "start", *settings]
        with self._log_path.open("ab") as log:
            self._started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        # For a test run that ends without stopping its brokers.
        weakref.finalize(self, _kill, self._process)
        try:
            self._await_ready()
        except BaseException:
            self.stop(clean=False)
            raise

    @property
    def _process(self) -> "subprocess.Popen[bytes]":
        assert self._started is not None, "the broker's process is not started"
        return self._started

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS_MAX)
        line = self._process.stdout.readline() if readable else b""
        if not line.startswith(b"ready on "):
            raise StartupError(f"the broker's process did not start to serve: {self._log_tail()}")

    def _log_tail(self) -> str:
        return self._log_path.read_text("utf-8", "replace")[-_LOG_CHARACTERS_SHOWN:].strip()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self, *, clean: bool) -> None:
        if self._started is None:
            return
        self._process.send_signal(signal.SIGTERM if clean else signal.SIGKILL)
        self.resume()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        finally:
            _kill(self._process)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def advance_time(self, seconds: float) -> None:
        raise RuntimeError('time cannot be advanced in another process: leave out mode="process"')


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill and reap the process; no error if it has ended."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
