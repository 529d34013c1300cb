"""Which interpreters `make pythons` finds, and which environment `make` uses for each."""

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = runpy.run_path(str(ROOT / "scripts" / "pythons.py"))
find_interpreters: Callable[[str, Path], list[Any]] = PYTHONS["find_interpreters"]


def add_python(directory: Path, name: str, version: str, level: str = "final") -> Path:
    """One that says that it is of this version."""
    program = directory / name
    return add_program(program, f"echo {version.replace('.', ' ')} {level} {program}")


def add_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_newest_interpreter_of_each_version_is_found_in_path_and_pyenv(tmp_path: Path) -> None:
    usual, other, pyenv = tmp_path / "usr" / "bin", tmp_path / "opt" / "bin", tmp_path / "pyenv"
    oldest = add_python(usual, "python3", "3.11.2")
    add_python(usual, "python3.13", "3.13.0")
    newest = add_python(other, "python3.14", "3.14.1")
    add_python(pyenv / "versions" / "3.9.18" / "bin", "python3", "3.9.18")
    add_python(pyenv / "versions" / "3.13.1" / "bin", "python3", "3.13.1")
    newer = add_python(pyenv / "versions" / "3.13.11" / "bin", "python3", "3.13.11")
    found = find_interpreters(f"{usual}{os.pathsep}{other}", pyenv)
    assert [(each.name, each.path) for each in found] == [("3.11.2", oldest), ("3.13.11", newer), ("3.14.1", newest)]


def test_what_does_not_run_or_is_not_finished_is_no_interpreter(tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    add_program(shims / "python3.12", "echo pyenv: not switched on >&2; exit 127")
    add_python(shims, "python3.13", "3.13.0").chmod(0o644)
    add_python(shims, "python3.14", "3.14.0", level="candidate")
    (shims / "python3.11").mkdir()
    assert find_interpreters(str(shims), tmp_path / "pyenv") == []


def test_every_interpreter_is_tried_and_a_table_tells_how_it_went(tmp_path: Path) -> None:
    add_python(tmp_path / "bin", "python3.12", "3.12.1")
    add_python(tmp_path / "bin", "python3.13", "3.13.5")
    make = add_program(
        tmp_path / "make",
        'echo "made: $*"; echo "9 passed in 3.21s"\n'
        'case "$*" in *3.12) echo "1 failed, 8 passed in 1.00s"; exit 2;; esac',
    )
    environment = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "none"), "MAKE": str(make)}
    command = [sys.executable, str(ROOT / "scripts" / "pythons.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"made: --no-print-directory test PYTHON={tmp_path}/bin/python3.13" in done.stdout
    assert [line.split(maxsplit=4) for line in done.stdout.splitlines()[-4:]] == [
        ["3.11", "not", "here"],
        ["3.12.1", "FAILED", "0", "min", "9 passed in 3.21s; 1 failed, 8 passed in 1.00s"],
        ["3.13.5", "passed", "0", "min", "9 passed in 3.21s"],
        ["3.14", "not", "here"],
    ]
    assert "9 passed" in (tmp_path / ".cache" / "pythons" / "3.13.log").read_text()


def commands_of_setup(directory: Path, *variables: str) -> str:
    """What `make setup` would run, in a directory without any environment."""
    shutil.copy(ROOT / "Makefile", directory)
    (directory / "scripts").mkdir(exist_ok=True)
    (directory / "scripts" / "setup.sh").touch()
    (directory / "pyproject.toml").touch()
    outside = {"PYTHON", "MAKEFLAGS", "MAKELEVEL"}
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    command = ["make", "--dry-run", "setup", *variables]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_chosen_interpreter_has_an_environment_of_its_own(tmp_path: Path) -> None:
    program = add_program(tmp_path / "bin" / "python3.13", "echo 3.13.5")
    assert "scripts/setup.sh .cache/venv-3.13.5" in commands_of_setup(tmp_path, f"PYTHON={program}")
    assert "scripts/setup.sh .venv\n" in commands_of_setup(tmp_path)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_environment_that_was_set_up_for_another_version_is_set_up_again(tmp_path: Path) -> None:
    commands_of_setup(tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed-3.1.0").touch()
    assert "scripts/setup.sh .venv\n" in commands_of_setup(tmp_path)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_version_of_pyenv_that_is_not_switched_on_can_be_chosen_by_its_name(tmp_path: Path) -> None:
    shim = add_program(tmp_path / "shims" / "python3.13", "echo pyenv: not switched on >&2; exit 127")
    program = add_program(tmp_path / "pyenv" / "versions" / "3.13.5" / "bin" / "python3.13", "echo 3.13.5")
    path = f"PATH={shim.parent}{os.pathsep}{os.environ['PATH']}"
    said = commands_of_setup(tmp_path, "PYTHON=python3.13", path, f"PYENV_ROOT={tmp_path / 'pyenv'}")
    assert f'PYTHON="{program}" scripts/setup.sh .cache/venv-3.13.5\n' in said
