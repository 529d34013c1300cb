"""`scripts/cost-setup.sh` with programs that only pretend: nothing is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cost-setup.sh"
INSTALLS = ["apt-get update -q", "apt-get install -q -y --no-install-recommends valgrind"]
MISSING = "there is no valgrind, so the instructions per request are not counted"


def add(programs: Path, name: str, script: str) -> None:
    bash = shutil.which("bash")
    (programs / name).write_text(f"#!{bash}\n{script}\n")
    (programs / name).chmod(0o755)


def set_up(programs: Path) -> tuple[str, list[str]]:
    """What the script says, and how it called apt-get; it always succeeds."""
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, str(SCRIPT)], env={"PATH": str(programs)}, capture_output=True, text=True, check=True)
    log = programs / "log"
    return done.stderr, log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Those of a machine with apt, used by root."""
    add(tmp_path, "id", "echo 0")
    add(tmp_path, "apt-get", f'echo "apt-get $*" >> "{tmp_path / "log"}"')
    return tmp_path


def test_root_gets_valgrind(programs: Path) -> None:
    assert set_up(programs) == ("", INSTALLS)


def test_valgrind_that_is_there_is_left_alone(programs: Path) -> None:
    add(programs, "valgrind", "")
    assert set_up(programs) == ("", [])


def test_other_users_read_what_to_run(programs: Path) -> None:
    add(programs, "id", "echo 1000")
    said, calls = set_up(programs)
    assert calls == []
    assert MISSING in said
    assert "Run: sudo apt-get install valgrind" in said


@pytest.mark.parametrize("apt", ["exit 100", None])
def test_a_machine_that_cannot_get_valgrind_goes_on_without(programs: Path, apt: str | None) -> None:
    if apt is None:
        (programs / "apt-get").unlink()
    else:
        add(programs, "apt-get", apt)
    assert MISSING in set_up(programs)[0]
