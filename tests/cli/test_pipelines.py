"""The commands of `rookery pipelines` that need no Spark; tests/spark runs pipelines."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rookery.base.distribution import install_hint
from rookery.cli.commands import app
from rookery.pipelines.progress import Figures
from rookery.pipelines.states import RunningPipeline, StateDirectory

# Holds a pipeline's lock until SIGTERM.
HOLDER = """
import os, signal, sys, threading
from pathlib import Path
from rookery.pipelines.progress import Figures
from rookery.pipelines.states import RunningPipeline, StateDirectory
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
flows = (Figures(flow="out", state="running", batches=3, batch_id=2, rows_in=100, lags={"views-0": 7}, lag_s=1.5),)
with StateDirectory(Path(sys.argv[1])).running("views") as write:
    write(RunningPipeline(name="views", pid=os.getpid(), file="views.yaml", started_ms=0, master="local[*]",
                          metrics_address="http://127.0.0.1:9400/metrics", updated_ms=0, flows=flows))
    print("ready", flush=True)
    stop.wait()
"""


@pytest.fixture
def holder(tmp_path: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def pipelines(directory: Path, *arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"ROOKERY_STATE_DIR": str(directory)}).invoke(app, ["pipelines", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


@pytest.mark.parametrize("template", ["stream", "etl", "elt"])
def test_templates_are_valid(tmp_path: Path, template: str) -> None:
    written = pipelines(tmp_path, "init", "my-views", "--template", template, "--directory", str(tmp_path / "new"))
    path = tmp_path / "new" / "my-views.yaml"
    assert written.stdout == f"wrote {path}\n"
    checked = pipelines(tmp_path, "validate", str(path), "--offline")
    assert "pipeline my-views with the flows my-views-" in checked.stdout
    assert "PIPELINE_NAME" not in path.read_text()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    refused = pipelines(tmp_path, "init", "mine", "--directory", str(tmp_path), exit_code=1)
    assert "already exists" in refused.stderr
    assert (tmp_path / "mine.yaml").read_text() == "precious"


def test_init_needs_a_valid_name_and_a_writable_directory(tmp_path: Path) -> None:
    for name in ("../views", "Views", "a b", ""):
        refused = pipelines(tmp_path, "init", name, "--directory", str(tmp_path), exit_code=1)
        assert f"the name {name} must begin with a lower-case letter or a digit" in refused.stderr
    (tmp_path / "file").write_text("")
    refused = pipelines(tmp_path, "init", "views", "--directory", str(tmp_path / "file" / "below"), exit_code=1)
    assert "cannot be written: Not a directory" in refused.stderr


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: x\n# f\u00fcr\n".encode("latin-1"))
    result = pipelines(tmp_path, "validate", str(path), "--offline", exit_code=1)
    assert result.stderr == f"{path}:2: the file is not valid UTF-8\n"


def test_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("name: wrong\nsuorces: {}\n")
    expected = [
        (1, "the pipeline needs at least one source"),
        (1, "the pipeline needs at least one sink"),
        (2, "the pipeline has no key suorces: did you mean sources?"),
    ]
    result = pipelines(tmp_path, "validate", str(path), "--offline", exit_code=1)
    assert result.stderr.splitlines() == [f"{path}:{line}: {message}" for line, message in expected]
    read = json.loads(pipelines(tmp_path, "validate", str(path), "--offline", "--json", exit_code=1).stdout)
    assert read["valid"] is False
    assert [(row["line"], row["message"]) for row in read["problems"]] == expected
    ran = pipelines(tmp_path, "run", str(path), exit_code=1)
    assert "did you mean sources?" in ran.stderr


def test_a_running_pipeline_is_listed_shown_and_stopped(tmp_path: Path, holder: "subprocess.Popen[bytes]") -> None:
    with holder:
        assert pipelines(tmp_path, "list").stdout.splitlines()[1].split()[:3] == ["views", "running", str(holder.pid)]
        (row,) = json.loads(pipelines(tmp_path, "list", "--json").stdout)
        assert (row["name"], row["alive"], row["flows"][0]["lag_records"]) == ("views", True, 7)
        status = pipelines(tmp_path, "status", "views").stdout
        assert "metrics on http://127.0.0.1:9400/metrics" in status
        assert "BEHIND S" in status
        assert json.loads(pipelines(tmp_path, "status", "views", "--json").stdout)["pid"] == holder.pid
        assert pipelines(tmp_path, "stop", "views").stdout == "stopped views\n"
        assert holder.wait(30) == 0
    assert json.loads(pipelines(tmp_path, "list", "--json").stdout) == []


def test_a_pipeline_that_was_killed_is_cleaned_up(tmp_path: Path, holder: "subprocess.Popen[bytes]") -> None:
    with holder:
        holder.send_signal(signal.SIGKILL)
    assert pipelines(tmp_path, "list").stdout.splitlines()[1].split()[:3] == ["views", "killed", "-"]
    title, _, flow = pipelines(tmp_path, "status", "views").stdout.splitlines()
    assert title.startswith(f"views: killed, process {holder.pid} is gone, last seen ")
    assert flow.split()[:2] == ["out", "killed"], "its flows are killed, too"
    read = json.loads(pipelines(tmp_path, "status", "views", "--json").stdout)
    assert (read["state"], read["alive"], read["flows"][0]["state"]) == ("killed", False, "killed")
    assert "is not running" in pipelines(tmp_path, "stop", "views").stdout
    unknown = pipelines(tmp_path, "stop", "views", exit_code=1)
    assert unknown.stderr == "error: no pipeline views is running on this machine; running pipelines: none\n"


def test_records_that_two_flows_read_are_counted_once(tmp_path: Path) -> None:
    flows = (
        Figures(flow="counts", state="running", lags={"views-0": 100, "views-1": 7}),
        Figures(flow="files", state="running", lags={"views-0": 90, "views-1": 10, "users-0": 1}),
        Figures(flow="generated", state="running"),
    )
    with StateDirectory(tmp_path).running("views") as write:
        write(running_pipeline(flows))
        header, row = pipelines(tmp_path, "list").stdout.splitlines()
        (read,) = json.loads(pipelines(tmp_path, "list", "--json").stdout)
    assert row[header.index("FLOWS") :].split() == ["3", str(100 + 10 + 1)]
    assert (read["lag_records"], [each["lag_records"] for each in read["flows"]]) == (111, [107, 101, None])


def running_pipeline(flows: tuple[Figures, ...]) -> RunningPipeline:
    return RunningPipeline(
        name="views",
        pid=os.getpid(),
        file="",
        started_ms=0,
        master="",
        metrics_address=None,
        updated_ms=0,
        flows=flows,
    )


def test_a_second_pipeline_of_the_same_name_is_refused(tmp_path: Path) -> None:
    pipelines(tmp_path, "init", "views", "--directory", str(tmp_path))
    with StateDirectory(tmp_path).running("views") as write:
        write(running_pipeline((Figures(flow="out", state="restarting"),)))
        assert "failing" in pipelines(tmp_path, "list").stdout
        assert "is already running" in pipelines(tmp_path, "run", str(tmp_path / "views.yaml"), exit_code=1).stderr


# Runs the command as if no package of the extra were installed.
WITHOUT_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(["pandas", "psycopg", "pyarrow", "pyspark", "yaml"]))
from rookery.cli.main import main
main()
"""


@pytest.mark.parametrize("arguments", [("init", "views"), ("run", "views.yaml"), ("validate", "views.yaml")])
def test_a_missing_extra_is_reported_in_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "views.yaml").write_text("name: views\n")
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, "pipelines", *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert ran.stderr == f"error: the module yaml is missing: {install_hint('spark')}\n"


def test_the_list_of_pipelines_needs_no_extra(tmp_path: Path) -> None:
    environment = {**os.environ, "ROOKERY_STATE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, "pipelines", "list"], env=environment, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
