import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.pipelines.progress import Figures
from rookery.pipelines.states import (
    AlreadyRunningError,
    PipelineStatus,
    RunningPipeline,
    StateDirectory,
    default_directory,
)
from tests.support.waiting import eventually

# A process that holds the lock of a pipeline until SIGTERM; it cleans up unless it is killed.
HOLDER = """
import os, signal, sys, threading
from pathlib import Path
from rookery.pipelines.states import RunningPipeline, StateDirectory
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
with StateDirectory(Path(sys.argv[1])).running("held") as write:
    write(RunningPipeline(name="held", pid=os.getpid(), file="f", started_ms=1, master="local", metrics_address=None,
                          updated_ms=2, flows=()))
    print("ready", flush=True)
    # A signal that arrives just before the wait would not end it.
    while not stop.wait(0.1):
        pass
"""


def running(name: str = "views", *, pid: int | None = None) -> RunningPipeline:
    return RunningPipeline(
        name=name,
        pid=os.getpid() if pid is None else pid,
        file="views.yaml",
        started_ms=1_000,
        master="local[*]",
        metrics_address=None,
        updated_ms=2_000,
        flows=(Figures(flow="out", state="running", lags={"views-0": 5}),),
    )


@pytest.fixture
def states(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path)


def start_holder(directory: Path) -> "subprocess.Popen[bytes]":
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    return holder


def test_a_running_pipeline_is_found_until_it_ends(states: StateDirectory) -> None:
    assert states.list() == []
    with states.running("views") as write:
        write(running())
        assert states.list() == [PipelineStatus(running(), alive=True)]
        assert states.find("views") == PipelineStatus(running(), alive=True)
        assert states.find("other") is None
    assert states.list() == []
    assert not states.signal_stop("views")


def test_other_users_cannot_read_the_state(states: StateDirectory, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with states.running("views") as write:
            write(running())
            assert (tmp_path / "pipelines").stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


def test_only_one_pipeline_of_a_name_runs(states: StateDirectory) -> None:
    with (
        states.running("views"),
        states.running("views.hourly"),
        pytest.raises(AlreadyRunningError, match="views is already running"),
        states.running("views"),
    ):
        pass


def test_a_stop_signals_the_process_of_the_pipeline(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        assert states.signal_stop("held")
        assert holder.wait(30) == 0
    assert states.list() == []


def test_a_killed_pipeline_is_not_alive(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    eventually(lambda: [each.alive for each in states.list()] == [False], "the killed pipeline is not alive")
    assert not states.signal_stop("held"), "another process may have its id by now"
    states.remove_stale("held")
    assert states.list() == []
    with states.running("held"):
        pass


def test_a_shared_lock_does_not_look_like_a_running_pipeline(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    lock = tmp_path / "pipelines" / "held.lock"
    with lock.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        found = states.find("held")
    assert found is not None
    assert not found.alive


def test_a_new_run_removes_the_state_of_a_killed_one(states: StateDirectory, tmp_path: Path) -> None:
    """Without the removal, a stop would signal the old process id, which another process may have by now."""
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    with states.running("held"):
        assert states.find("held") is None
        assert not states.signal_stop("held")


def test_the_default_state_directory() -> None:
    assert default_directory({"ROOKERY_STATE_DIR": "a", "XDG_STATE_HOME": "b"}) == Path("a")
    assert default_directory({"XDG_STATE_HOME": "b"}) == Path("b/rookery")
    assert default_directory({}) == Path.home() / ".local" / "state" / "rookery"


def test_flows_of_a_killed_pipeline_are_killed(states: StateDirectory, tmp_path: Path) -> None:
    """Flows that had ended before keep their state."""
    path = tmp_path / "pipelines" / "views.json"
    path.parent.mkdir()
    left = replace(running(), flows=(*running().flows, Figures(flow="done", state="finished")))
    path.write_text(json.dumps(left.to_json()))
    found = states.find("views")
    assert found is not None
    assert [(each.state, each.lag_records) for each in found.pipeline.flows] == [("killed", 5), ("finished", None)]


def test_a_file_of_another_version_is_read(states: StateDirectory, tmp_path: Path) -> None:
    path = tmp_path / "pipelines" / "views.json"
    path.parent.mkdir()
    written = running().to_json()
    path.write_text(json.dumps(written | {"flows": [{"flow": "out", "lag_records": 7, "mood": "good"}]}))
    (found,) = states.list()
    assert found.pipeline.flows == (Figures(flow="out", state="killed"),)
