"""The metadata log: append, restart, replay, and every crash point in between."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import StorageError
from rookery.base.files import Files, OsFiles
from rookery.quorum.driver import QuorumDriver
from rookery.storage.directory import LogDirectory
from rookery.storage.names import METADATA_PARTITION
from tests.faults.files import Crash, CrashFiles, Survival

DATA = Path("/data")
Batches = list[list[bytes]]


def open_driver(files: Files, path: Path = DATA) -> QuorumDriver:
    return QuorumDriver.open(files, LogDirectory(path), node_id=1, clock=ManualClock())


def replayed(driver: QuorumDriver) -> Batches:
    batches: Batches = []
    driver.replay(lambda _, values: batches.append(list(values)))
    return batches


def crash_files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DATA)
    files.sync_directory(Path("/"))
    return files


def test_append_restart_replay(tmp_path: Path) -> None:
    driver = open_driver(OsFiles(), tmp_path)
    assert driver.leader_epoch == 1
    assert driver.next_offset == 1, "behind the leader change"
    assert asyncio.run(driver.append([b"a", b"b"])) == 1
    assert asyncio.run(driver.append([b"c"])) == 3
    assert replayed(driver) == [[b"a", b"b"], [b"c"]]
    driver.close()
    driver = open_driver(OsFiles(), tmp_path)
    assert driver.leader_epoch == 2
    offsets: list[int] = []
    driver.replay(lambda offset, _: offsets.append(offset))
    assert offsets == [1, 3]
    assert driver.next_offset == 5
    driver.close()


def test_a_log_larger_than_one_read(tmp_path: Path) -> None:
    driver = open_driver(OsFiles(), tmp_path)
    batches = [[bytes([number]) * 300_000] * 2 for number in range(6)]
    for batch in batches:
        asyncio.run(driver.append(batch))
    assert replayed(driver) == batches
    driver.close()
    driver = open_driver(OsFiles(), tmp_path)
    assert replayed(driver) == batches
    driver.close()


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    driver = open_driver(OsFiles(), tmp_path)
    asyncio.run(driver.append([b"a"]))
    asyncio.run(driver.append([b"b"]))
    segment = tmp_path / str(METADATA_PARTITION) / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    driver = open_driver(OsFiles(), tmp_path)
    assert replayed(driver) == [[b"a"]]
    asyncio.run(driver.append([b"c"]))
    assert replayed(driver) == [[b"a"], [b"c"]]


def test_the_epoch_survives_the_loss_of_the_state_file(tmp_path: Path) -> None:
    for _ in range(3):
        open_driver(OsFiles(), tmp_path).close()
    (tmp_path / str(METADATA_PARTITION) / "quorum-state").unlink()
    assert open_driver(OsFiles(), tmp_path).leader_epoch == 4


def test_a_failed_disk_fails_every_append() -> None:
    files = crash_files()
    driver = open_driver(files)
    asyncio.run(driver.append([b"a"]))
    files.fail_matching(lambda call: call.name == "sync", errno.EIO)
    with pytest.raises(StorageError):
        asyncio.run(driver.append([b"b"]))
    files.fail = None
    with pytest.raises(StorageError):
        asyncio.run(driver.append([b"c"]))


class History:
    """Two starts with appends in each; what was asked for and what was acknowledged."""

    def __init__(self, files: CrashFiles) -> None:
        self.files = files
        self.asked: Batches = []
        self.acknowledged = 0
        self.leader_epoch = 0

    def run(self) -> None:
        for start in range(2):
            driver = open_driver(self.files)
            assert driver.leader_epoch > self.leader_epoch
            self.leader_epoch = driver.leader_epoch
            for number in range(3):
                self.asked.append([b"%d-%d-%d" % (start, number, index) for index in range(number + 1)])
                asyncio.run(driver.append(self.asked[-1]))
                self.acknowledged += 1
            driver.close()

    def check(self) -> None:
        driver = open_driver(self.files)
        assert driver.leader_epoch > self.leader_epoch
        found = replayed(driver)
        assert self.acknowledged <= len(found)
        assert found == self.asked[: len(found)], "whole batches, in order"
        asyncio.run(driver.append([b"after"]))
        assert replayed(driver) == [*found, [b"after"]]


def crash_points() -> Iterator[int]:
    history = History(crash_files())
    before = history.files.mutation_count
    history.run()
    yield from range(before, history.files.mutation_count)


@pytest.mark.parametrize("survival", Survival)
def test_every_crash_point(survival: Survival) -> None:
    for point in crash_points():
        history = History(crash_files())
        history.files.crash_at = point
        with pytest.raises(Crash):
            history.run()
        history.files.crash(survival)
        history.check()
