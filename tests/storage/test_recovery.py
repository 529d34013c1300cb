"""Opening damaged logs: whatever the bytes, the log ends at the first bad batch and is usable from there on."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.files import OsFiles
from rookery.storage.log import Log
from tests.faults.files import CrashFiles, Survival
from tests.storage.samples import DIRECTORY, SMALL, START_MS, append, append_all, batch, contents, open_log

LAST = DIRECTORY / "00000000000000000006.log"


def disk(count: int = 8) -> CrashFiles:
    """Write eight batches in three segments, the last with two, and close nothing."""
    files = CrashFiles()
    files.make_directory(DIRECTORY.parent)
    files.sync_directory(Path("/"))
    log = open_log(files, config=SMALL)
    append_all(log, (batch(START_MS + index) for index in range(count)))
    log.flush()
    return files


def damaged(files: CrashFiles, path: Path, data: bytes, recovery_point: int = 0) -> Log:
    files.write_file(path, data)
    files.crash(Survival.EVERYTHING)
    return open_log(files, config=SMALL, recovery_point=recovery_point)


def check_usable(log: Log) -> None:
    before = contents(log)
    assert append(log, batch()) == log.end_offset - 1
    assert contents(log)[:-1] == before


BEFORE = contents(open_log(disk(), config=SMALL))
SIZE = len(BEFORE[0][1])


@pytest.mark.parametrize("size", range(2 * SIZE + 1))
def test_torn_at_any_byte(size: int) -> None:
    files = disk()
    log = damaged(files, LAST, files.read_file(LAST)[:size])
    assert contents(log) == BEFORE[: 6 + size // SIZE]
    assert files.file_size(LAST) == size // SIZE * SIZE
    check_usable(log)


@given(position=st.integers(8, 2 * SIZE - 1), flip=st.integers(1, 255))
def test_a_flipped_byte_ends_the_log(position: int, flip: int) -> None:
    """Only the leader epoch, which the leader stamps outside the CRC, can change unnoticed."""
    files = disk()
    data = bytearray(files.read_file(LAST))
    data[position] ^= flip
    log = damaged(files, LAST, bytes(data))
    good = 6 + position // SIZE
    if 12 <= position % SIZE < 16:
        assert len(contents(log)) == 8
    elif position % SIZE >= 8:
        assert contents(log) == BEFORE[:good]
    check_usable(log)


@settings(max_examples=150)
@given(tail=st.binary(max_size=200), kept=st.integers(0, 2))
def test_any_bytes_at_the_end(tail: bytes, kept: int) -> None:
    files = disk()
    log = damaged(files, LAST, files.read_file(LAST)[: kept * SIZE] + tail)
    assert contents(log)[: 6 + kept] == BEFORE[: 6 + kept]
    check_usable(log)


@given(
    name=st.sampled_from(
        [
            "00000000000000000000.index",
            "00000000000000000003.timeindex",
            "00000000000000000006.index",
            "00000000000000000003.snapshot",
            "00000000000000000006.snapshot",
            "leader-epoch-checkpoint",
        ]
    ),
    data=st.binary(max_size=60),
    clean=st.booleans(),
)
def test_any_bytes_in_the_files_next_to_the_log(name: str, data: bytes, clean: bool) -> None:
    files = disk()
    open_log(files, config=SMALL).close()
    files.write_file(DIRECTORY / name, data)
    log = open_log(files, config=SMALL, recovery_point=8, clean=clean)
    assert log.end_offset == 8
    if not name.endswith("index"):
        assert contents(log) == BEFORE
        check_usable(log)


def test_zeros_at_the_end() -> None:
    files = disk()
    log = damaged(files, LAST, files.read_file(LAST) + bytes(1000))
    assert contents(log) == BEFORE
    check_usable(log)


def test_damage_in_an_unflushed_middle_ends_the_log_there() -> None:
    files = disk()
    middle = DIRECTORY / "00000000000000000003.log"
    log = damaged(files, middle, files.read_file(middle)[: SIZE + 5], recovery_point=3)
    assert contents(log) == BEFORE[:4]
    assert [path.name for path in sorted(files.all_paths()) if path.suffix == ".log"] == [
        "00000000000000000000.log",
        "00000000000000000003.log",
    ]
    check_usable(log)


def test_only_what_lies_beyond_the_recovery_point_is_read() -> None:
    files = disk()
    files.crash()
    files.calls.clear()
    open_log(files, config=SMALL, recovery_point=7)
    read = {call.path.name for call in files.calls if call.name == "read_at"}
    assert read == {"00000000000000000006.log"}


def test_a_missing_unflushed_segment_ends_the_log() -> None:
    files = disk()
    files.remove(DIRECTORY / "00000000000000000003.log")
    log = open_log(files, config=SMALL)
    assert contents(log) == BEFORE[:3]


def test_orphans_and_foreign_files(tmp_path: Path) -> None:
    """Index files without a log are removed; files with other names are ignored."""
    directory = tmp_path / "orders-0"
    log = open_log(OsFiles(), directory, SMALL)
    append_all(log, (batch() for _ in range(4)))
    log.close()
    for name in ("00000000000000000099.index", "00000000000000000099.timeindex", "x.log.tmp", "7.log", "notes.txt"):
        (directory / name).write_bytes(b"?")
    log = open_log(OsFiles(), directory, SMALL, recovery_point=4)
    assert len(contents(log)) == 4
    names = {path.name for path in directory.iterdir()}
    assert {"7.log", "notes.txt"} <= names
    assert not {"00000000000000000099.index", "00000000000000000099.timeindex", "x.log.tmp"} & names
