"""The broker of demo and tour: `rookery start` in its own process, which can be killed and started again."""

import socket
import subprocess
import sys
import time
from pathlib import Path

STOP_TIMEOUT_S = 30


class Broker:
    """A broker with a schema registry; ports and data directory stay the same over restarts."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.address = f"127.0.0.1:{_free_port()}"
        self.registry = f"http://127.0.0.1:{_free_port()}"
        self._settings = (f"schema.registry.listeners={self.registry}", *settings)
        self._process: subprocess.Popen[str] | None = None

    @property
    def command(self) -> list[str]:
        arguments = ["start", "--data-dir", str(self.data_dir), "--listen", self.address]
        for setting in self._settings:
            arguments += ["--set", setting]
        return [sys.executable, "-m", "rookery.cli.main", *arguments]

    def start(self) -> float:
        """Start the broker and wait until it is ready; return the seconds that this took."""
        started = time.monotonic()
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready on "):
            raise RuntimeError(f"the broker did not start: {line}{self.log_path.read_text()}")
        return time.monotonic() - started

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed, nothing is closed, no handler runs."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
