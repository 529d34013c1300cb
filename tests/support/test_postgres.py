"""The tests' PostgreSQL runs from any location of the clone, also from root's home, which other users cannot read."""

import os
import shutil
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres
from tests.support.postgres import running_postgres


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs the server as another user")
def test_a_server_starts_from_a_package_below_a_directory_that_only_root_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [bundled] = postgres._bundled_programs()
    package = bundled.parent.parent
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        ignored = shutil.ignore_patterns("*.a", "include", "pginstall18", "__pycache__")
        shutil.copytree(package.with_name(name), home / name, symlinks=True, ignore=ignored)
    monkeypatch.setattr(postgres, "_installed_programs", list)
    monkeypatch.setattr(postgres, "_bundled_programs", lambda: [home / bundled.relative_to(package.parent)])

    with running_postgres() as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
