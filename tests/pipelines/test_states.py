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
    Found,
    RunningPipeline,
    StateDirectory,
    default_directory,
)
from tests.support.waiting import eventually

# A process that runs a "pipeline" until SIGTERM, then cleans up; or that is killed and cannot.
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
    # A signal just before the thread falls asleep would not wake it.
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


def test_a_running_pipeline_is_found_and_gone_after_its_end(states: StateDirectory) -> None:
    assert states.list() == []
    with states.running("views") as write:
        write(running())
        assert states.list() == [Found(running(), alive=True)]
        assert states.find("views") == Found(running(), alive=True)
        assert states.find("other") is None
    assert states.list() == []
    assert not states.signal_stop("views")


def test_the_state_is_closed_to_other_users(states: StateDirectory, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with states.running("views") as write:
            write(running())
            assert (tmp_path / "pipelines").stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


def test_one_of_a_name_at_a_time(states: StateDirectory) -> None:
    with (
        states.running("views"),
        states.running("views.hourly"),
        pytest.raises(AlreadyRunningError, match="views runs already"),
        states.running("views"),
    ):
        pass


def test_another_process_is_asked_to_end(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        assert states.signal_stop("held")
        assert holder.wait(30) == 0
    assert states.list() == []


def test_a_killed_pipeline_is_known_to_be_dead(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    eventually(lambda: [each.alive for each in states.list()] == [False], "the dead pipeline is shown as dead")
    assert not states.signal_stop("held"), "its process id may be somebody else's by now"
    states.forget("held")
    assert states.list() == []
    with states.running("held"):
        pass


def test_who_looks_does_not_look_like_a_running_pipeline(states: StateDirectory, tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    lock = tmp_path / "pipelines" / "held.lock"
    with lock.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        found = states.find("held")
    assert found is not None
    assert not found.alive


def test_who_starts_removes_what_a_killed_one_left(states: StateDirectory, tmp_path: Path) -> None:
    """Else its process id, which may be somebody else's by now, would look like that of the new holder."""
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    with states.running("held"):
        assert states.find("held") is None
        assert not states.signal_stop("held")


def test_where_states_are_kept() -> None:
    assert default_directory({"ROOKERY_STATE_DIR": "a", "XDG_STATE_HOME": "b"}) == Path("a")
    assert default_directory({"XDG_STATE_HOME": "b"}) == Path("b/rookery")
    assert default_directory({}) == Path.home() / ".local" / "state" / "rookery"


def test_flows_of_a_killed_pipeline_do_not_run(states: StateDirectory, tmp_path: Path) -> None:
    """Those that had ended before keep their state."""
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
