"""`scripts/setup.sh` on machines that lack something, with programs that only pretend: nothing is installed."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"
INSTALLS = ["apt-get update -q", "apt-get install -q -y --no-install-recommends default-jre-headless"]
INTO_VENV = "pip install --quiet --disable-pip-version-check --editable .[dev]"
ARCHIVE = "python -m rookery.spark.class_archive"


class Done(NamedTuple):
    exit_code: int
    said: str
    # What was called, in order.
    calls: list[str]


class Machine:
    """A directory of programs, and no other program to be found."""

    def __init__(self, directory: Path) -> None:
        self._programs = directory / "bin"
        self._venv = directory / "venv"
        self._log = directory / "log"
        self._log.touch()
        self.has_python("3.11.2")
        self.add("pip", self._venv / "bin")
        self.add("python", self._venv / "bin")
        (self._venv / "pyvenv.cfg").write_text("home = anywhere\nversion = 3.11.2\n")

    def add(self, name: str, directory: Path | None = None, *, script: str = "") -> None:
        """One that notes how it was called, and succeeds."""
        directory = directory or self._programs
        directory.mkdir(parents=True, exist_ok=True)
        note = f'echo "{name} $*" >> "{self._log}"'
        (directory / name).write_text(f"#!{_bash()}\n{script.format(note=note) or note}\n")
        (directory / name).chmod(0o755)

    def has_python(self, version: str) -> None:
        self.add("python3", script=f'{{note}}; case "$*" in *sys.version_info[[]:3]*) echo {version};; esac')

    def break_in_venv(self, name: str) -> None:
        self.add(name, self._venv / "bin", script="exit 1")

    def is_used_by(self, user: int) -> None:
        self.add("id", script=f"echo {user}")

    def set_up(self, environment: Mapping[str, str] | None = None) -> Done:
        command = [_bash(), str(SCRIPT), str(self._venv)]
        variables = {"PATH": str(self._programs), **(environment or {})}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        calls = [call for call in self._log.read_text().splitlines() if not call.startswith("python3 -c")]
        return Done(done.returncode, done.stderr, calls)


def _bash() -> str:
    found = shutil.which("bash")
    assert found is not None
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_root_gets_java(machine: Machine) -> None:
    machine.is_used_by(0)
    machine.add("apt-get")
    assert machine.set_up() == Done(0, "", [*INSTALLS, INTO_VENV])


def test_other_users_see_what_to_run(machine: Machine) -> None:
    """Everything but Spark works without Java, so the rest is set up."""
    machine.is_used_by(1000)
    machine.add("apt-get")
    done = machine.set_up()
    assert (done.exit_code, done.calls) == (0, [INTO_VENV])
    assert "Run: sudo apt-get install default-jre-headless" in done.said


def test_where_there_is_no_apt_java_is_asked_for(machine: Machine) -> None:
    machine.is_used_by(0)
    done = machine.set_up()
    assert (done.exit_code, done.calls) == (0, [INTO_VENV])
    assert "there is no Java: Spark's tests and the demo need Java 17 or newer" in done.said


def test_java_that_is_there_is_left_alone(machine: Machine) -> None:
    machine.is_used_by(0)
    machine.add("apt-get")
    assert machine.set_up({"JAVA_HOME": "anywhere"}).calls == [INTO_VENV, ARCHIVE]
    machine.add("java")
    assert machine.set_up().calls == [INTO_VENV, ARCHIVE] * 2


def test_without_an_archive_of_classes_all_is_set_up(machine: Machine) -> None:
    machine.add("java")
    machine.break_in_venv("python")
    assert machine.set_up().exit_code == 0


def test_an_installation_that_fails_is_not_passed_over(machine: Machine) -> None:
    machine.is_used_by(0)
    machine.add("apt-get", script="echo no network >&2; exit 100")
    assert machine.set_up() == Done(100, "no network\n", [])


def test_without_python_nothing_is_done(machine: Machine) -> None:
    done = machine.set_up({"PYTHON": "python9"})
    assert (done.exit_code, done.calls) == (1, [])
    assert "there is no python9. Install Python 3.11 or newer" in done.said


@pytest.mark.parametrize("version", ["3.11.4", "3.13.5"])
def test_an_environment_of_another_python_is_made_again(machine: Machine, tmp_path: Path, version: str) -> None:
    machine.add("java")
    machine.has_python(version)
    made = f"python3 -m venv --clear {tmp_path / 'venv'}"
    assert machine.set_up().calls == [made, INTO_VENV, ARCHIVE]


def test_an_environment_of_the_same_python_is_kept(machine: Machine) -> None:
    machine.add("java")
    assert machine.set_up().calls == [INTO_VENV, ARCHIVE]
