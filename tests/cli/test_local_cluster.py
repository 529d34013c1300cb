"""`rookery up --brokers 3`: a cluster of processes with one parent."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker import free_port

STOP_TIMEOUT_S = 60


@contextmanager
def running(data_dir: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "rookery.cli.main", "up", "--data-dir", str(data_dir), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            # Also stops the nodes, which SIGKILL would leave.
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def lines_until(process: "subprocess.Popen[str]", last: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if last in line:
            return lines
    raise AssertionError(lines)


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that were just free, as far as that can be said."""
    return next(port for port in (free_port() for _ in range(100)) if port + count < 65_536)


@pytest.fixture
def options() -> tuple[str, ...]:
    registry = f"http://127.0.0.1:{free_port()}"
    return ("--brokers", "3", "--listen", f"127.0.0.1:{free_ports(6)}", "--registry", registry)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and b"rookery" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_one_signal_stops_all_nodes(tmp_path: Path, options: tuple[str, ...]) -> None:
    for _ in range(2):
        with running(tmp_path / "data", *options) as process:
            printed = lines_until(process, "rookery schemas list")
            pids = [int(pid) for pid in re.findall(r"broker \d .* process (\d+)", "\n".join(printed))]
            assert len(pids) == 3
            assert all(map(is_running, pids))
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_TIMEOUT_S) == 0
            assert not any(map(is_running, pids))


def test_a_node_that_dies_is_reported(tmp_path: Path, options: tuple[str, ...]) -> None:
    with running(tmp_path / "data", *options) as process:
        printed = lines_until(process, "rookery schemas list")
        pids = [int(pid) for pid in re.findall(r"broker \d .* process (\d+)", "\n".join(printed))]
        os.kill(pids[2], signal.SIGKILL)
        config = tmp_path / "data" / "node-3" / "server.properties"
        (*_, said, command) = lines_until(process, str(config))
        assert said.startswith("node 3 has ended (by SIGKILL); the others go on")
        assert command.strip() == f"rookery start --config {config}"
        assert all(map(is_running, pids[:2]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0


def test_a_node_that_does_not_start_stops_the_others(tmp_path: Path, options: tuple[str, ...]) -> None:
    with running(tmp_path / "data", *options, "--set", "num.partitions=many") as process:
        printed = "\n".join(lines_until(process, "did not start"))
        assert re.search(r"node \d \| error: --set: Invalid value many for configuration num.partitions", printed)
        assert process.wait(STOP_TIMEOUT_S) == 1


def test_the_number_of_brokers_stays(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with running(tmp_path, "--brokers", "3") as process:
        assert process.wait(STOP_TIMEOUT_S) == 2
        assert "Use --brokers 1, or name another --data-dir" in lines_until(process, "--brokers 1")[-1]
