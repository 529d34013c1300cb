"""A broker in its own process, started as a user starts it: `rookery start` on a free port of the loopback interface.

Used by the end-to-end, conformance and kill tests:

    with start_broker(tmp_path / "data", "num.partitions=3") as broker:
        client = connect(broker.address)
"""

import queue
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_READY = "ready on "
_PORTS = range(10_000, 32_768)
_RANDOM = SystemRandom()


class BrokerProcess:
    """A running `rookery start`. Leaving the context stops it cleanly; it may already have ended."""

    def __init__(self, process: subprocess.Popen[str], address: str, log_path: Path) -> None:
        self.process = process
        self.address = address
        self.log_path = log_path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stop(self) -> int:
        """Stop it with SIGTERM, as an init system does; returns the exit code."""
        self.process.terminate()
        return self._reap()

    def kill(self) -> int:
        """Kill it with SIGKILL: no handler runs, nothing is flushed."""
        self.process.kill()
        return self._reap()

    def log(self) -> str:
        """Return what the broker has written to its standard error so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _reap(self) -> int:
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the broker did not stop within {STOP_TIMEOUT_S} s:\n{self.log()}") from None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        if error is not None:
            print(f"--- the broker's log\n{self.log()}", file=sys.stderr)


def start_broker(data_dir: Path, *settings: str, port: int | None = None) -> BrokerProcess:
    """Start a broker and wait until it serves. `settings` are `key=value`; `port` None takes a free one.

    Its standard error goes to `<data_dir>.log`, appended to over restarts.
    """
    address = f"127.0.0.1:{free_port() if port is None else port}"
    command = [sys.executable, "-m", "rookery.cli.main", "start", "--data-dir", str(data_dir), "--listen", address]
    for setting in settings:
        command += ["--set", setting]
    log_path = data_dir.with_name(data_dir.name + ".log")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
    broker = BrokerProcess(process, address, log_path)
    try:
        broker.address = _await_ready(broker)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return broker


def start_node(config: Path) -> BrokerProcess:
    """Start a node with a server.properties file and wait until it serves; its standard error goes to `node.log`."""
    command = [sys.executable, "-m", "rookery.cli.main", "start", "--config", str(config)]
    log_path = config.with_name("node.log")
    with log_path.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
    node = BrokerProcess(process, "", log_path)
    try:
        node.address = _await_ready(node)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return node


def free_port() -> int:
    """Return a port that was just free and is outside of the range of ports that the system assigns itself.

    It does not use Python's shared random generator: property tests reset it to the same state in all processes.
    """
    while True:
        port = _RANDOM.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _await_ready(broker: BrokerProcess) -> str:
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(broker.process, lines), daemon=True).start()
    try:
        first = lines.get(timeout=START_TIMEOUT_S)
    except queue.Empty:
        raise AssertionError(f"the broker did not serve within {START_TIMEOUT_S} s:\n{broker.log()}") from None
    if not first.startswith(_READY):
        code = broker.process.wait(STOP_TIMEOUT_S)
        raise AssertionError(f"the broker ended with {code} instead of serving: {first}\n{broker.log()}")
    return first.removeprefix(_READY).strip()


def _read_lines(process: subprocess.Popen[str], lines: "queue.Queue[str]") -> None:
    """Put the first line into the queue and drain the rest, so that the broker never blocks on a full pipe."""
    assert process.stdout is not None
    try:
        lines.put(process.stdout.readline())
        while process.stdout.readline():
            pass
    except ValueError:
        return  # `_reap` has closed the pipe.
