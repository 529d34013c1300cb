"""The archive of classes that a session uses, and the options of the JVM for it."""

import sys
from pathlib import Path

import pytest

from rookery.spark.class_archive import OPTIONS, archive_path, archive_settings, find_archive, find_java

USERS = "spark.driver.extraJavaOptions"
ARCHIVE = Path("a directory/x.jsa")


def test_options_of_the_user_are_kept() -> None:
    assert archive_settings({USERS: "-Xmx1g"}, ARCHIVE).keys() == {OPTIONS}
    added = archive_settings({OPTIONS: "-Dmine"}, ARCHIVE)[OPTIONS]
    assert added.startswith('"-XX:SharedArchiveFile=a directory/x.jsa" ')
    assert added.endswith(" -Dmine")


@pytest.mark.parametrize("options", ["-XX:SharedArchiveFile=mine", "-XX:ArchiveClassesAtExit=mine", "-Xshare:off"])
@pytest.mark.parametrize("name", [OPTIONS, USERS])
def test_an_archive_chosen_by_the_user_is_used(name: str, options: str) -> None:
    assert archive_settings({name: f"-Xmx1g {options}"}, ARCHIVE) == {}


def test_without_an_archive_nothing_changes() -> None:
    assert archive_settings({USERS: "-Xmx1g"}, None) == {}


def test_an_archive_belongs_to_one_java_and_must_be_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    _use_java(tmp_path / "java 17", monkeypatch)
    assert find_archive() is None
    java = find_java()
    assert java is not None
    archive = archive_path(java, size=10)
    assert archive.is_relative_to(tmp_path / "environment")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(bytes(10))
    assert find_archive() == archive
    archive.write_bytes(bytes(9))
    assert find_archive() is None, "a truncated archive crashes a JVM"
    archive.write_bytes(bytes(10))
    _use_java(tmp_path / "java 21", monkeypatch)
    assert find_archive() is None


def test_without_a_virtual_environment_archives_are_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert archive_path(Path(sys.executable), size=10).parent == tmp_path / "rookery"


def _use_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    assert find_archive() is None
