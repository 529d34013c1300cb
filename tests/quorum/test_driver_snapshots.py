"""Snapshots of a metadata log: taken, continued after a restart, cleaned, and every crash point in between.

The records are changes of a register of numbered cells, so that a snapshot (one record per cell) is smaller than the
log, and a state that misses a record shows it.
"""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from rookery.base.clock import ManualClock
from rookery.base.files import Files, OsFiles
from rookery.quorum.committed import has_batches
from rookery.quorum.snapshots import SnapshotFiles
from rookery.storage.checkpoints import COMMITTED_FILE
from rookery.storage.damage import DamagedLogError
from rookery.storage.names import METADATA_PARTITION
from tests.faults.files import Crash, CrashFiles
from tests.quorum.sole import close, open_sole_voter
from tests.quorum.test_driver import DATA, SHARDS, crash_files
from tests.support.logs import quiet_logs

State = dict[bytes, bytes]
EVERYTHING = {"retention_bytes": 0, "retention_ms": -1}
NOTHING_TO_CLEAN = {"retention_bytes": -1, "retention_ms": -1}


class Register:
    """A node that applies what is committed, as metadata publishing does it."""

    def __init__(self, files: Files, path: Path = DATA, clock: ManualClock | None = None) -> None:
        self.state: State = {}
        self.end_offset = 0
        self.clock = clock or ManualClock()
        self.driver = open_sole_voter(files, path, clock=self.clock)
        loaded = self.driver.take_loaded()
        if loaded is not None:
            self.end_offset = loaded.position.offset
            self._apply(loaded.values)
        self.replayed = 0
        for base_offset, iterated in self.driver.batches():
            assert base_offset >= self.end_offset
            values = list(iterated)
            self.end_offset = base_offset + len(values)
            self._apply(values)
            self.replayed += 1

    def _apply(self, values: Sequence[bytes]) -> None:
        self.state.update(tuple(value.split(b"=")) for value in values)  # type: ignore[misc]

    def set(self, **cells: int) -> None:
        values = [b"%s=%d" % (name.encode(), value) for name, value in cells.items()]
        asyncio.run(self.driver.append(values))
        self.end_offset = self.driver.next_offset
        self._apply(values)

    def take(self) -> None:
        values = [b"=".join(cell) for cell in self.state.items()]
        asyncio.run(self.driver.take_snapshot(self.end_offset, values))

    def clean(self, **limits: int) -> None:
        asyncio.run(self.driver.clean(**limits))


def log_files(path: Path) -> list[str]:
    return sorted(name.name for name in (path / str(METADATA_PARTITION)).glob("*.log"))


def snapshots_of(path: Path) -> list[int]:
    return [at.offset for at in SnapshotFiles(OsFiles(), path / str(METADATA_PARTITION)).positions()]


def test_a_restart_continues_the_snapshot(tmp_path: Path) -> None:
    register = Register(OsFiles(), tmp_path)
    for number in range(10):
        register.set(a=number, b=-number)
    assert register.driver.snapshot_end == 0
    before = register.driver.bytes_since_snapshot()
    register.take()
    assert register.driver.snapshot_end == 21
    assert register.driver.bytes_since_snapshot() == 0
    register.set(c=1)
    assert 0 < register.driver.bytes_since_snapshot() < before
    close(register.driver)
    names = [path.name for path in (tmp_path / str(METADATA_PARTITION)).glob("*.checkpoint")]
    assert names == ["00000000000000000021-0000000001.checkpoint"]
    again = Register(OsFiles(), tmp_path)
    assert again.state == register.state == {b"a": b"9", b"b": b"-9", b"c": b"1"}
    assert again.replayed == 1, "what the snapshot replaces is not read"
    assert again.driver.take_loaded() is None, "it is released"
    assert again.driver.leader_epoch == 2


def test_only_committed_and_new_records_are_in_a_snapshot(tmp_path: Path) -> None:
    register = Register(OsFiles(), tmp_path)
    register.set(a=1, b=2)
    with pytest.raises(AssertionError, match="only committed records"):
        asyncio.run(register.driver.take_snapshot(4, []))
    with pytest.raises(AssertionError, match="in the middle of a batch"):
        asyncio.run(register.driver.take_snapshot(2, []))
    register.take()
    with pytest.raises(AssertionError, match="and new ones"):
        register.take()


def grown(path: Path) -> Register:
    """A log of three snapshots, with records before, between and after them."""
    register = Register(OsFiles(), path)
    for number in range(3):
        register.set(a=number)
        register.take()
        register.clock.advance(1000)
    register.set(b=1)
    return register


def test_cleaning_by_size(tmp_path: Path) -> None:
    register = grown(tmp_path)
    register.clean(**NOTHING_TO_CLEAN)
    assert snapshots_of(tmp_path) == [2, 3, 4]
    assert log_files(tmp_path)[0].startswith("00000000000000000000")
    register.clean(**EVERYTHING)
    assert snapshots_of(tmp_path) == [4]
    assert log_files(tmp_path) == ["00000000000000000004.log"]
    register.set(c=1)
    close(register.driver)
    assert Register(OsFiles(), tmp_path).state == register.state


def test_the_log_goes_before_the_snapshots(tmp_path: Path) -> None:
    register = grown(tmp_path)
    size = sum(path.stat().st_size for path in (tmp_path / str(METADATA_PARTITION)).glob("*.[lc][oh]*"))
    register.clean(retention_bytes=size - 1, retention_ms=-1)
    assert snapshots_of(tmp_path) == [2, 3, 4]
    assert log_files(tmp_path)[0].startswith("00000000000000000002")


def test_cleaning_by_age(tmp_path: Path) -> None:
    register = grown(tmp_path)
    register.clean(retention_bytes=-1, retention_ms=2500)
    assert snapshots_of(tmp_path) == [3, 4], "the last records of the first are three seconds old, then two, then one"
    register.clock.advance(3_600_000)
    register.clean(retention_bytes=-1, retention_ms=1500)
    assert snapshots_of(tmp_path) == [4], "the newest stays, however old"
    assert log_files(tmp_path) == ["00000000000000000004.log"]


def test_a_log_that_is_empty_after_a_snapshot(tmp_path: Path) -> None:
    register = Register(OsFiles(), tmp_path)
    register.set(a=1)
    register.take()
    register.clean(**EVERYTHING)
    assert has_batches(OsFiles(), tmp_path)
    again = Register(OsFiles(), tmp_path)
    assert again.state == {b"a": b"1"}
    assert again.driver.leader_epoch == 2


def test_epochs_survive_cleaning_and_the_loss_of_the_state_file(tmp_path: Path) -> None:
    for _ in range(3):
        close(Register(OsFiles(), tmp_path).driver)
    register = Register(OsFiles(), tmp_path)
    register.set(a=1)
    register.take()
    register.clean(**EVERYTHING)
    (tmp_path / str(METADATA_PARTITION) / "quorum-state").unlink()
    assert Register(OsFiles(), tmp_path).driver.leader_epoch == 5


def newest(path: Path) -> Path:
    return max((path / str(METADATA_PARTITION)).glob("*.checkpoint"))


def test_a_damaged_snapshot_with_a_whole_log(tmp_path: Path) -> None:
    register = grown(tmp_path)
    close(register.driver)
    for path in sorted((tmp_path / str(METADATA_PARTITION)).glob("*.checkpoint"), reverse=True):
        path.write_bytes(path.read_bytes()[:-3])
        with quiet_logs():
            again = Register(OsFiles(), tmp_path)
        assert again.state == register.state
        close(again.driver)
    with quiet_logs():
        again = Register(OsFiles(), tmp_path)
    again.set(c=3)
    again.take()
    again.clean(**EVERYTHING)
    assert Register(OsFiles(), tmp_path).state == again.state
    assert len(snapshots_of(tmp_path)) == 1


def test_a_log_never_relies_on_a_damaged_snapshot(tmp_path: Path) -> None:
    close(grown(tmp_path).driver)
    newest(tmp_path).write_bytes(b"")
    with quiet_logs():
        register = Register(OsFiles(), tmp_path)
    register.clean(**EVERYTHING)
    assert snapshots_of(tmp_path) == [3, 4], "the damaged one is no reason to remove the one before"
    assert log_files(tmp_path)[0].startswith("00000000000000000003")


@pytest.mark.parametrize("harm", ["cut", "remove"])
def test_a_damaged_snapshot_of_a_cleaned_log_refuses_the_start(tmp_path: Path, harm: str) -> None:
    register = grown(tmp_path)
    register.clean(**EVERYTHING)
    close(register.driver)
    path = newest(tmp_path)
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    before = {name: name.read_bytes() for name in tmp_path.rglob("*") if name.is_file()}
    with quiet_logs(), pytest.raises(DamagedLogError, match="the log before offset 4 was removed because a snapshot"):
        Register(OsFiles(), tmp_path)
    assert {name: name.read_bytes() for name in tmp_path.rglob("*") if name.is_file()} == before


def test_a_snapshot_proves_what_was_committed(tmp_path: Path) -> None:
    """The note is not synced, and may be lost or old."""
    register = grown(tmp_path)
    close(register.driver)
    (tmp_path / COMMITTED_FILE).unlink()
    directory = tmp_path / str(METADATA_PARTITION)
    for name in ("00000000000000000003.log", "00000000000000000004.log"):
        (directory / name).unlink()
    with pytest.raises(DamagedLogError, match="4 were committed"):
        Register(OsFiles(), tmp_path)


def test_no_segment_may_be_missing(tmp_path: Path) -> None:
    register = grown(tmp_path)
    close(register.driver)
    for name in log_files(tmp_path)[1:]:
        copy = Path(shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{name}")))
        (copy / str(METADATA_PARTITION) / name).unlink()
        with pytest.raises(DamagedLogError):
            Register(OsFiles(), copy)


def test_an_interrupted_snapshot_is_removed(tmp_path: Path) -> None:
    close(Register(OsFiles(), tmp_path).driver)
    part = tmp_path / str(METADATA_PARTITION) / "00000000000000000009-0000000001.checkpoint.part"
    part.write_bytes(b"half")
    Register(OsFiles(), tmp_path)
    assert not part.exists()


class History:
    """Two starts with changes, snapshots and cleaning in each; what was requested and what was acknowledged."""

    def __init__(self, files: CrashFiles) -> None:
        self.files = files
        self.requested = 0
        self.acknowledged = 0

    def run(self) -> None:
        for _ in range(2):
            register = Register(self.files)
            for _ in range(2):
                self.requested += 1
                register.set(a=self.requested, **{f"cell{self.requested}": 1})
                self.acknowledged = self.requested
                register.take()
                register.clean(retention_bytes=700, retention_ms=-1)
            close(register.driver)

    def check(self) -> None:
        for _ in range(2):
            register = Register(self.files)
            view = register.driver._core.log
            assert view._epochs.entries()[0].start_offset <= view.start.offset, "every record has an epoch"
            last = int(register.state.get(b"a", b"0"))
            assert self.acknowledged <= last <= self.requested
            assert {b"cell%d" % number for number in range(1, last + 1)} == register.state.keys() - {b"a"}
            register.set(after=1)
            del register.state[b"after"]
            register.end_offset = register.driver.next_offset
            register.take()
            register.clean(**EVERYTHING)
            close(register.driver)


def crash_points() -> Iterator[int]:
    history = History(crash_files())
    before = history.files.mutation_count
    history.run()
    yield from range(before, history.files.mutation_count)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_crash_point(shard: int) -> None:
    for point in islice(crash_points(), shard, None, SHARDS):
        history = History(crash_files())
        history.files.crash_at = point
        with pytest.raises(Crash):
            history.run()
        for _, left in history.files.after_crash():
            history.files = left
            history.check()
