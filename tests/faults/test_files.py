"""The disk in memory keeps the contract of `base.files`, like a real disk, and loses what the contract allows."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.base.files import Files, OsFiles, remove_tree, replace_file
from tests.faults.files import Crash, CrashFiles, Survival

ROOT = Path("/")


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Files, Path]]:
    if request.param == "real":
        yield OsFiles(), tmp_path
    else:
        files = CrashFiles()
        files.make_directory(ROOT / "root")
        yield files, ROOT / "root"


def test_both_disks_behave_alike(disk: tuple[Files, Path]) -> None:
    files, root = disk
    files.make_directory(root / "a" / "b")
    file = files.open(root / "a" / "one", create=True)
    file.append(b"hello ")
    file.append_parts([b"wor", bytearray(b"ld"), memoryview(b"!")])
    assert (file.size(), file.read_at(6, 5), file.read_at(10, 99)) == (12, b"world", b"d!")
    file.truncate(5)
    file.append(b"?")
    assert files.read_file(root / "a" / "one") == b"hello?"
    files.rename(root / "a" / "one", root / "a" / "two")
    files.write_file(root / "a" / "three", b"3")
    files.rename(root / "a" / "three", root / "a" / "two")
    assert (files.list_directory(root / "a"), files.file_size(root / "a" / "two")) == (["b", "two"], 1)
    assert file.read_at(0, 6) == b"hello?", "an open file outlives its name"
    files.remove(root / "a" / "two")
    files.remove(root / "a" / "two")
    assert (files.exists(root / "a" / "two"), files.is_directory(root / "a" / "b")) == (False, True)
    for missing in (files.read_file, files.file_size, files.list_directory, files.open):
        with pytest.raises(FileNotFoundError):
            missing(root / "nothing")
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(root / "a")
    replace_file(files, root / "a" / "small", b"new")
    lock = files.lock_directory(root)
    assert lock is not None
    assert files.lock_directory(root) is None
    lock.release()
    remove_tree(files, root / "a")
    assert not files.exists(root / "a")


def crashed(survival: Survival) -> CrashFiles:
    """Return a disk after a crash with unsynced changes: an append to a synced file, a new file, a removed file."""
    files = CrashFiles()
    for name in ("kept", "removed"):
        files.write_file(ROOT / name, b"synced")
        files.open(ROOT / name).sync()
    files.sync_directory(ROOT)
    files.open(ROOT / "kept").append(b"+tail")
    files.write_file(ROOT / "new", b"12345678")
    files.remove(ROOT / "removed")
    files.crash(survival)
    return files


@pytest.mark.parametrize(
    ("survival", "expected"),
    [
        (Survival.NOTHING, {"kept": b"synced", "removed": b"synced"}),
        (Survival.EVERYTHING, {"kept": b"synced+tail", "new": b"12345678"}),
        (Survival.TORN, {"kept": b"synced+t", "new": b"1234"}),
        (Survival.NAMES, {"kept": b"synced", "new": b""}),
        (Survival.BYTES, {"kept": b"synced+tail", "removed": b"synced"}),
        (Survival.HALF, {"kept": b"synced", "new": b"", "removed": b"synced"}),
        (Survival.OTHER_HALF, {"kept": b"synced+tail"}),
        (Survival.LAST, {"kept": b"synced+tail"}),
    ],
)
def test_what_survives(survival: Survival, expected: dict[str, bytes]) -> None:
    files = crashed(survival)
    assert {path.name: files.read_file(path) for path in files.all_paths()} == expected


def test_a_rename_is_all_or_nothing() -> None:
    for survival in Survival:
        files = CrashFiles()
        replace_file(files, ROOT / "file", b"old")
        files.write_file(ROOT / "aside", b"new")
        files.open(ROOT / "aside").sync()
        files.rename(ROOT / "aside", ROOT / "file")
        files.crash(survival)
        assert files.read_file(ROOT / "file") in (b"old", b"new")


def test_faults_on_demand() -> None:
    files = CrashFiles()
    files.write_file(ROOT / "file", b"1234")
    files.fail_call(2, errno.ENOSPC)
    file = files.open(ROOT / "file")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"5678")
    assert file.read_at(0, 9) == b"123456", "a failing write stops in the middle"
    files.fail_matching(lambda call: call.name == "sync")
    file.append(b"!")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    files.fail = None
    files.crash_at = files.mutation_count
    with pytest.raises(Crash):
        files.remove(ROOT / "file")
