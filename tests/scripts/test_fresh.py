"""`scripts/fresh.sh` where it cannot work, with programs that only pretend: it says why, and leaves nothing behind.

That it works is seen by running it, which takes root, a network and half an hour: `make fresh`.
"""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fresh.sh"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of its own, as the script writes its logs there."""
    clone = tmp_path / "clone"
    (clone / "scripts").mkdir(parents=True)
    (clone / "scripts" / "fresh.sh").write_text(SCRIPT.read_text())
    return clone


def add(programs: Path, name: str, script: str) -> None:
    programs.mkdir(exist_ok=True)
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def run(clone: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """The programs of `clone/../bin` come before those of this machine."""
    (clone.parent / "temporary").mkdir()
    environment = {"PATH": f"{clone.parent / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(clone.parent)}
    environment |= {"TMPDIR": str(clone.parent / "temporary"), "MIRROR": "anywhere", **variables}
    command = ["bash", str(clone / "scripts" / "fresh.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def pretend_to_be_root(clone: Path) -> Path:
    programs = clone.parent / "bin"
    add(programs, "id", "echo 0")
    add(programs, "git", "exit 0")
    add(programs, "setpriv", 'shift 2; exec "$@"')
    # Everything behind the options.
    add(programs, "unshare", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    return programs


def test_only_root_can_make_a_root_directory(clone: Path) -> None:
    add(clone.parent / "bin", "id", "echo 1000")
    done = run(clone)
    assert (done.returncode, done.stdout) == (1, "")
    assert "only root can make a root directory. Run: sudo make fresh" in done.stderr


def test_other_users_than_those_two_are_refused(clone: Path) -> None:
    add(pretend_to_be_root(clone), "debootstrap", "exit 0")
    done = run(clone, USERS="root alice")
    assert done.returncode == 1
    assert "USERS is made of root and user, not alice" in done.stderr


def test_what_debootstrap_says_is_shown_and_nothing_is_left(clone: Path) -> None:
    add(pretend_to_be_root(clone), "debootstrap", 'echo "E: no such release: $3"; exit 3')
    done = run(clone, SUITE="nowhere")
    assert done.returncode == 3
    assert "E: no such release: nowhere" in done.stderr
    assert list((clone.parent / "temporary").iterdir()) == []
