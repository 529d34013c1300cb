"""Files of snapshots: their bytes, what is wrong with them, and which one a start uses."""

from pathlib import Path

import pytest

from rookery.base.errors import CorruptionError
from rookery.base.files import OsFiles
from rookery.quorum.log_view import LogPosition
from rookery.quorum.snapshots import Snapshot, SnapshotFiles, decode_snapshot, encode_snapshot
from rookery.records.batch import iterate_headers
from rookery.storage.damage import DamagedLogError
from tests.support.logs import captured_logs

NOW_MS = 1_700_000_000_000
# A header batch, a batch of two records, a footer batch, each without its checksum: by hand from Kafka's schemas.
GOLDEN = bytes.fromhex(
    "0000000000000000" "00000047" "00000003" "02" "0020" "00000000"
    "0000018bcfe56800" "0000018bcfe56800" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
    "2a" "00" "00" "00" "08" "00000003" "16" "0000" "0000018bcfe56418" "00" "00"
    "0000000000000001" "00000042" "00000003" "02" "0000" "00000001"
    "0000018bcfe56800" "0000018bcfe56800" "ffffffffffffffff" "ffff" "ffffffff" "00000002"
    "0e" "00" "00" "00" "01" "02" "61" "00"
    "10" "00" "00" "02" "01" "04" "6262" "00"
    "0000000000000003" "0000003f" "00000003" "02" "0020" "00000000"
    "0000018bcfe56800" "0000018bcfe56800" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
    "1a" "00" "00" "00" "08" "00000004" "06" "0000" "00" "00"
)  # fmt: skip


def encoded(*values: bytes) -> bytes:
    return b"".join(encode_snapshot(values, 3, last_timestamp_ms=NOW_MS - 1000, now_ms=NOW_MS))


def without_crcs(data: bytes) -> bytes:
    batches = [data[position : position + header.size_bytes] for position, header in iterate_headers(data)]
    return b"".join(batch[:17] + batch[21:] for batch in batches)


def test_golden_bytes() -> None:
    data = encoded(b"a", b"bb")
    assert without_crcs(data) == GOLDEN
    assert decode_snapshot(data) == [b"a", b"bb"]


def test_batches_are_bounded() -> None:
    values = [bytes([number]) * 300_000 for number in range(10)]
    data = encoded(*values)
    sizes = [header.size_bytes for _, header in iterate_headers(data)]
    assert len(sizes) == 5
    assert max(sizes) < 1_300_000
    assert decode_snapshot(data) == values


def test_a_snapshot_of_nothing() -> None:
    assert decode_snapshot(encoded()) == []


def test_no_byte_may_change_and_none_may_be_missing() -> None:
    """Only the leader epoch in a batch header is not covered by a checksum or a check; it is in the name, too."""
    good = encoded(b"a", b"bb")
    starts = [position for position, _ in iterate_headers(good)]
    unchecked = {position + index for position in starts for index in range(12, 16)}
    for position in set(range(len(good))) - unchecked:
        damaged = bytearray(good)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptionError):
            decode_snapshot(bytes(damaged))
    for size in range(len(good)):
        with pytest.raises(CorruptionError):
            decode_snapshot(good[:size])
    for bad in (good + good, good + b"\0", good[starts[1] :], good[starts[2] :] + good):
        with pytest.raises(CorruptionError):
            decode_snapshot(bad)


def write(snapshots: SnapshotFiles, offset: int, *values: bytes) -> LogPosition:
    position = LogPosition(3, offset)
    snapshots.write(position, values, last_timestamp_ms=NOW_MS - 1000, now_ms=NOW_MS)
    return position


def test_files_and_their_names(tmp_path: Path) -> None:
    snapshots = SnapshotFiles(OsFiles(), tmp_path)
    assert snapshots.positions() == []
    assert SnapshotFiles(OsFiles(), tmp_path / "missing").positions() == []
    others = ("7-1.checkpoint", "leader-epoch-checkpoint", "00000000000000000000-0000000000.checkpoint")
    for name in ("00000000000000000007-0000000001.checkpoint.part", *others):
        (tmp_path / name).write_bytes(b"")
    newest, oldest = write(snapshots, 200, b"b"), write(snapshots, 42, b"a")
    assert snapshots.path(oldest).name == "00000000000000000042-0000000003.checkpoint"
    assert snapshots.positions() == [oldest, newest]
    assert snapshots.load_newest(0) == Snapshot(newest, [b"b"])
    assert snapshots.last_timestamp_ms(newest) == NOW_MS - 1000
    assert snapshots.size_bytes(newest) == snapshots.path(newest).stat().st_size
    snapshots.remove_parts()
    snapshots.remove([newest])
    assert snapshots.positions() == [oldest]
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_snapshot_is_reported_and_an_older_one_used(tmp_path: Path) -> None:
    snapshots = SnapshotFiles(OsFiles(), tmp_path)
    oldest, newest = write(snapshots, 42, b"a"), write(snapshots, 200, b"b")
    data = snapshots.path(newest).read_bytes()
    snapshots.path(newest).write_bytes(data[:-1])
    with captured_logs() as lines:
        assert snapshots.load_newest(42) == Snapshot(oldest, [b"a"])
    (line,) = lines
    assert line["event"] == "a metadata snapshot is damaged and not used"
    assert line["path"] == str(snapshots.path(newest))
    with pytest.raises(DamagedLogError, match="the log before offset 43 was removed because a snapshot replaces it"):
        snapshots.load_newest(43)
    snapshots.path(oldest).write_bytes(b"")
    assert snapshots.load_newest(0) is None, "the log has all records"


def test_a_log_without_its_beginning_needs_a_snapshot(tmp_path: Path) -> None:
    with pytest.raises(DamagedLogError, match="there is no snapshot"):
        SnapshotFiles(OsFiles(), tmp_path).load_newest(1)
