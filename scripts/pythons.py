"""Runs `make test` with each supported Python that this machine has, and ends with a table of the results.

    make pythons                        every version of VERSIONS that is in PATH or below pyenv's root
    make pythons PYTEST_ARGS="-k tls"   variables of `make test` are passed on

Of several interpreters of one version, such as 3.13.0 and 3.13.5, the newest is taken. Each has its environment in
.cache/venv-3.13.x and its output in .cache/pythons/3.13.log. Exits with 1 if one fails or if there is none.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))
LOGS = Path(".cache/pythons")
# What pytest ends with, such as "3 failed, 5120 passed, 12 skipped in 512.33s (0:08:32)".
SUMMARY = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed|error|skipped|deselected).*? in [\d.]+s)", re.MULTILINE)
TELL_VERSION = "import sys; print(*sys.version_info[:3], sys.version_info.releaselevel, sys.executable)"


class Interpreter(NamedTuple):
    version: tuple[int, int, int]
    path: Path

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


def find_interpreters(path: str, pyenv_root: Path) -> list[Interpreter]:
    """The newest interpreter of each supported version, oldest version first."""
    names = ["python3", *(f"python{major}.{minor}" for major, minor in VERSIONS)]
    candidates = [Path(directory) / name for directory in path.split(os.pathsep) if directory for name in names]
    candidates += sorted(pyenv_root.glob("versions/*/bin/python3"))
    newest: dict[tuple[int, int], Interpreter] = {}
    for candidate in candidates:
        found = ask(candidate)
        if found is None or found.version[:2] not in VERSIONS:
            continue
        known = newest.get(found.version[:2])
        if known is None or found.version > known.version:
            newest[found.version[:2]] = found
    return [newest[version] for version in VERSIONS if version in newest]


def ask(candidate: Path) -> "Interpreter | None":
    """None for what is no interpreter: pyenv's shims are there for versions, too, that are not switched on."""
    try:
        done = subprocess.run([str(candidate), "-c", TELL_VERSION], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    words = done.stdout.decode().strip().split(" ", 4)
    if done.returncode != 0 or len(words) != 5 or words[3] != "final":
        return None
    major, minor, micro = map(int, words[:3])
    return Interpreter((major, minor, micro), Path(words[4]))


def run_tests(interpreter: Interpreter) -> tuple[str, float, list[str]]:
    """The result, how long it took, and what pytest says at its ends; all output is shown, and kept in a file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    make = os.environ.get("MAKE", "make")
    command = [make, "--no-print-directory", "test", f"PYTHON={interpreter.path}"]
    with (LOGS / f"{interpreter.version[0]}.{interpreter.version[1]}.log").open("w+") as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                log.write(line)
        log.seek(0)
        summaries = SUMMARY.findall(log.read())
    return "passed" if process.returncode == 0 else "FAILED", time.monotonic() - started, summaries


def main() -> int:
    pyenv_root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    interpreters = find_interpreters(os.environ.get("PATH", ""), pyenv_root)
    rows = []
    for interpreter in interpreters:
        sys.stdout.write(f"\n== Python {interpreter.name}: {interpreter.path}\n")
        sys.stdout.flush()
        result, duration_s, summaries = run_tests(interpreter)
        rows.append((interpreter.name, result, f"{duration_s / 60:.0f} min", "; ".join(summaries)))
    found = {interpreter.version[:2] for interpreter in interpreters}
    for version in VERSIONS:
        if version not in found:
            rows.append((".".join(map(str, version)), "not here", "", ""))
    sys.stdout.write("\n")
    for row in sorted(rows, key=lambda row: [int(part) for part in row[0].split(".")]):
        sys.stdout.write("  {:8} {:9} {:>7}  {}\n".format(*row).rstrip() + "\n")
    return 0 if interpreters and all(row[1] != "FAILED" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
