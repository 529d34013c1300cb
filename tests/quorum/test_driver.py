"""The metadata log: append, restart, replay, and every crash point in between."""

import asyncio
import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.clock import ManualClock
from rookery.base.errors import StorageError
from rookery.base.files import Files, OsFiles
from rookery.node.quorum_config import sole_voter
from rookery.quorum import driver as driver_module
from rookery.quorum import publication as publication_module
from rookery.quorum.driver import QuorumDriver
from rookery.records.batch import HEADER_SIZE, iterate_headers
from rookery.storage.checkpoints import COMMITTED_FILE
from rookery.storage.damage import DamagedLogError
from rookery.storage.directory import LogDirectory
from rookery.storage.names import METADATA_PARTITION
from tests.faults.files import Crash, CrashFiles
from tests.net.support import until
from tests.quorum.sole import close, open_sole_voter
from tests.support.stalls import counted_calls

DATA = Path("/data")
# Tests of crash points run in so many parts, at the same time.
SHARDS = 4
Batches = list[list[bytes]]


def open_driver(files: Files, path: Path = DATA) -> QuorumDriver:
    return open_sole_voter(files, path)


def replayed(driver: QuorumDriver) -> Batches:
    return [list(values) for _, values in driver.batches()]


def crash_files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DATA)
    files.sync_directory(Path("/"))
    return files


def test_append_restart_replay(tmp_path: Path) -> None:
    committed: list[tuple[int, list[bytes]]] = []

    async def on_commit(base_offset: int, values: Sequence[bytes]) -> None:
        assert driver.next_offset == base_offset + len(values)
        committed.append((base_offset, list(values)))

    driver = open_sole_voter(OsFiles(), tmp_path, on_commit=on_commit)
    assert driver.leader_epoch == 1
    assert driver.next_offset == 1, "after the leader change"
    asyncio.run(driver.append([b"a", b"b"]))
    asyncio.run(driver.append([b"c"]))
    assert committed == [(1, [b"a", b"b"]), (3, [b"c"])]
    assert replayed(driver) == [[b"a", b"b"], [b"c"]]
    close(driver)
    driver = open_driver(OsFiles(), tmp_path)
    assert driver.leader_epoch == 2
    assert [offset for offset, _ in driver.batches()] == [1, 3]
    assert driver.next_offset == 5
    close(driver)


def test_small_batches_that_were_committed_meanwhile_are_published_together(tmp_path: Path) -> None:
    committed: list[tuple[int, int]] = []
    large = [b"x"] * METADATA_RECORDS_PER_SLICE

    async def main() -> None:
        is_released = asyncio.Event()

        async def on_commit(base_offset: int, values: Sequence[bytes]) -> None:
            committed.append((base_offset, len(values)))
            await is_released.wait()

        driver.follow(on_commit, from_offset=driver.high_watermark)
        first = asyncio.create_task(driver.append([b"a"]))
        while not committed:
            await asyncio.sleep(0)
        appends = [asyncio.create_task(driver.append(values)) for values in ([b"b"], [b"c", b"d"], large, [b"e"])]
        while driver.high_watermark < 1 + 4 + len(large) + 1:
            await asyncio.sleep(0)
        is_released.set()
        await asyncio.gather(first, *appends)

    driver = open_driver(OsFiles(), tmp_path)
    asyncio.run(main())
    assert committed == [(1, 1), (2, 3), (5, len(large)), (5 + len(large), 1)], "a large one is published by itself"
    close(driver)


def test_a_log_larger_than_one_read(tmp_path: Path) -> None:
    driver = open_driver(OsFiles(), tmp_path)
    batches = [[bytes([number]) * 300_000] * 2 for number in range(6)]
    for batch in batches:
        asyncio.run(driver.append(batch))
    assert replayed(driver) == batches
    close(driver)
    driver = open_driver(OsFiles(), tmp_path)
    assert replayed(driver) == batches
    close(driver)


def test_large_batches_are_built_and_decoded_in_a_worker(tmp_path: Path) -> None:
    large = [b"%d" % number for number in range(METADATA_RECORDS_PER_SLICE + 1)]
    small = large[:-1]

    async def main() -> list[list[bytes]]:
        committed: list[list[bytes]] = []

        async def on_commit(_: int, values: Sequence[bytes]) -> None:
            committed.append(list(values))

        with ThreadPoolExecutor(1) as executor:
            driver = QuorumDriver.open(
                OsFiles(),
                LogDirectory(tmp_path),
                node_id=1,
                voters=sole_voter(1),
                clock=ManualClock(),
                executor=executor,
            )
            await driver.start()
            with counted_calls(driver_module, "build_batch") as built_on_loop:
                await driver.append(large)
                assert built_on_loop.calls == 0
                await driver.append(small)
            assert built_on_loop.total == 1, "a small batch is not worth a thread"
            with counted_calls(publication_module, "open_batch") as opened_on_loop:
                # From the log, as on a follower: the leader's own values are no longer in memory.
                driver.follow(on_commit, from_offset=1)
                await until(lambda: len(committed) == 2)
            assert opened_on_loop.total == 1
            await driver.close()
        return committed

    assert asyncio.run(main()) == [large, small]


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    driver = open_driver(OsFiles(), tmp_path)
    asyncio.run(driver.append([b"a"]))
    asyncio.run(driver.append([b"b"]))
    segment = tmp_path / str(METADATA_PARTITION) / "00000000000000000000.log"
    data = segment.read_bytes()
    # A third append was under way: its batch has an offset of its own and half its bytes.
    segment.write_bytes(data + (3).to_bytes(8, "big") + data[-60:-20])
    driver = open_driver(OsFiles(), tmp_path)
    assert replayed(driver) == [[b"a"], [b"b"]]
    asyncio.run(driver.append([b"c"]))
    assert replayed(driver) == [[b"a"], [b"b"], [b"c"]]


def written(tmp_path: Path, *, is_closed: bool) -> Path:
    """The segment of a log with two appends."""
    driver = open_driver(OsFiles(), tmp_path)
    asyncio.run(driver.append([b"a"]))
    asyncio.run(driver.append([b"b"]))
    if is_closed:
        close(driver)
    return tmp_path / str(METADATA_PARTITION) / "00000000000000000000.log"


@pytest.mark.parametrize("is_closed", [True, False])
def test_no_byte_of_what_was_committed_may_change_without_a_refusal(tmp_path: Path, is_closed: bool) -> None:
    segment = written(tmp_path, is_closed=is_closed)
    good = segment.read_bytes()
    batches = [position for position, _ in iterate_headers(good)]
    unchecked = {position + index for position in batches for index in range(12, 16)}
    for position in sorted(set(range(len(good))) - unchecked):
        damaged = bytearray(good)
        damaged[position] ^= 0x10
        segment.write_bytes(damaged)
        with pytest.raises(DamagedLogError) as refused:
            open_driver(OsFiles(), tmp_path)
        assert segment.read_bytes() == damaged
        assert refused.value.damage.path == segment
        assert refused.value.damage.position == max(start for start in batches if start <= position)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_log_that_was_cut_is_refused(tmp_path: Path, is_closed: bool) -> None:
    segment = written(tmp_path, is_closed=is_closed)
    good = segment.read_bytes()
    for size in range(len(good)):
        segment.write_bytes(good[:size])
        with pytest.raises(DamagedLogError):
            open_driver(OsFiles(), tmp_path)
        assert segment.read_bytes() == good[:size]
    segment.unlink()
    with pytest.raises(DamagedLogError, match="3 were committed"):
        open_driver(OsFiles(), tmp_path)


def test_without_the_note_a_bad_batch_before_a_good_one_is_refused(tmp_path: Path) -> None:
    """As with a directory that an older version has left."""
    segment = written(tmp_path, is_closed=True)
    (tmp_path / COMMITTED_FILE).unlink()
    data = bytearray(segment.read_bytes())
    data[HEADER_SIZE + 3] ^= 1
    segment.write_bytes(data)
    with pytest.raises(DamagedLogError, match="byte 0, offset 0: the checksum"):
        open_driver(OsFiles(), tmp_path)


@pytest.mark.parametrize("content", [b"", b"invalid", b"0\n1\n__cluster_metadata 0 1\n"])
def test_a_damaged_or_old_committed_offset_file_does_no_harm(tmp_path: Path, content: bytes) -> None:
    written(tmp_path, is_closed=True)
    (tmp_path / COMMITTED_FILE).write_bytes(content)
    assert replayed(open_driver(OsFiles(), tmp_path)) == [[b"a"], [b"b"]]


def test_the_epoch_survives_the_loss_of_the_state_file(tmp_path: Path) -> None:
    for _ in range(3):
        close(open_driver(OsFiles(), tmp_path))
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
            close(driver)

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
