"""Every crash point of the operations that write, enumerated.

Each scenario runs once to count its mutations of the disk (writes, syncs, renames, removals). Then it runs repeatedly,
each time stopped before the next mutation, with every `Survival` of what was not synced. After the crash the node
starts again and must have: everything that was flushed, byte for byte and in order; nothing that was never written; no
hole; no leftovers; and a log that can be appended to, closed, and opened once more.
"""

import copy
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import StorageError
from rookery.base.types import Offset
from rookery.records.batch import read_header, stamp
from rookery.records.control import read_marker
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.manager import LogManager
from rookery.storage.producers import ProducerStates
from rookery.storage.replacement import create_cleaned, seal_and_sync
from tests.faults.files import Crash, CrashFiles, Survival
from tests.storage.samples import DATA, PARTITION, SMALL, START_MS, TOPIC_ID, append, batch, contents
from tests.support.logs import quiet_logs

LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}))

History = dict[Offset, bytes]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Suppress the thousands of lines that thousands of recoveries would log."""
    with quiet_logs():
        yield


@dataclass
class Ledger:
    """What a log may hold after a crash: a prefix of one of the histories, from `start_max` at the latest."""

    histories: list[History] = field(default_factory=lambda: [{}])
    flushed: Offset = 0
    start_max: Offset = 0

    def fork(self, history: History) -> None:
        """Add a history that the log may have from now on, and that later appends continue."""
        self.histories.append(history)

    @property
    def latest(self) -> History:
        return self.histories[-1]

    def keep_latest(self) -> None:
        """Drop all histories but the latest."""
        self.histories = [self.latest]


class Node:
    """A manager with one log directory on a disk that may crash, and the ledger of what was written to it."""

    def __init__(self, files: CrashFiles, ledger: Ledger, config: LogConfig = SMALL) -> None:
        self.files = files
        self.ledger = ledger
        self.config = config
        self.clock = ManualClock(START_MS)
        self.manager = LogManager(files, self.clock, [DATA])
        self.summary = self.manager.load(lambda topic: config)

    @property
    def log(self) -> Log:
        return self.manager.create(PARTITION, TOPIC_ID, self.config)

    def append(self, count: int, value: bytes = b"value", *, records: int = 1) -> None:
        """Append `count` batches of `records` records each."""
        for _ in range(count):
            offset = self.log.end_offset
            times_ms = [START_MS + offset] * records
            data = batch(*times_ms, value=value, producer_id=len(value), epoch=0, sequence=offset)
            self.ledger.latest[offset] = b""
            append(self.log, data)
            self.ledger.latest[offset] = bytes(data)

    def copy(self, count: int, *, gap: int = 0) -> None:
        """Append `count` batches in one call, as a follower; compaction has left `gap` offsets between them."""
        offset, batches = self.log.end_offset, []
        for _ in range(count):
            data = batch(START_MS + offset, producer_id=5, epoch=0, sequence=offset)
            stamp(data, offset, 3)
            self.ledger.latest[offset] = bytes(data)
            batches.append(data)
            offset += 1 + gap
        together = memoryview(b"".join(batches))
        self.log.append_fetched(together, [read_header(data) for data in batches])

    def apply_retention(self, now_ms: int) -> None:
        self.manager.apply_retention(self.log, now_ms)
        self.manager.checkpoint()
        self.manager.retire_expired(now_ms)
        self.manager.purge_deleted(now_ms)

    def flush(self) -> None:
        self.log.flush()
        self.ledger.flushed = self.log.recovery_point


def scenario_append_and_roll(node: Node) -> None:
    node.append(5)
    node.flush()
    node.append(4)
    node.manager.checkpoint()
    node.append(4)
    node.flush()
    node.append(1)
    node.flush()
    node.manager.checkpoint()
    node.append(3)


def scenario_roll_without_flushing(node: Node) -> None:
    node.append(1)
    node.manager.checkpoint()
    node.append(12)


def scenario_flush_in_the_background(node: Node) -> None:
    """Appends and rolls continue between the steps of a flush, which does not cover them."""
    node.append(2)
    for run_early in (True, False):
        job = node.log.prepare_flush()
        assert job is not None
        up_to = node.log.end_offset
        if run_early:
            job.run()
        node.append(2)
        node.log.roll()
        node.append(2)
        if not run_early:
            job.run()
        node.log.finish_flush(job)
        node.ledger.flushed = up_to
        node.manager.checkpoint()
    node.flush()
    node.manager.checkpoint()
    node.append(1)


def scenario_truncate(node: Node) -> None:
    node.append(10)
    node.flush()
    node.manager.checkpoint()
    ledger = node.ledger
    ledger.flushed = 5
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 5})
    node.log.truncate_to(5)
    ledger.keep_latest()
    node.append(7, value=b"elsewhere")
    node.flush()
    node.append(1)


def scenario_truncate_inside_a_batch(node: Node) -> None:
    """The batch is cut whole, so the log ends below the offset that was asked for."""
    node.append(5, records=3)
    node.flush()
    node.manager.checkpoint()
    ledger = node.ledger
    ledger.flushed = 6
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 6})
    node.log.truncate_to(7)
    assert node.log.end_offset == 6
    ledger.keep_latest()
    node.append(3, value=b"elsewhere", records=2)
    node.flush()
    node.append(1)


def scenario_truncate_after_a_clean_stop(node: Node) -> None:
    """The snapshot that closing left lies inside the active segment, after the truncation offset."""
    node.append(3)
    node.manager.close()
    again = Node(node.files, node.ledger)
    ledger = again.ledger
    ledger.flushed = 2
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 2})
    again.log.truncate_to(2)
    ledger.keep_latest()
    again.append(1, value=b"elsewhere")
    again.flush()
    again.manager.checkpoint()
    again.append(1)


def scenario_delete_from_the_start(node: Node) -> None:
    node.append(11)
    node.flush()
    node.ledger.start_max = 4
    node.log.advance_start_offset(4)
    node.manager.checkpoint()
    node.log.update_config(replace(SMALL, retention_bytes=300))
    node.ledger.start_max = 11
    node.apply_retention(START_MS)
    assert node.log.start_offset == 6
    node.ledger.start_max = 6
    node.append(2)
    node.flush()
    node.log.update_config(replace(SMALL, retention_ms=1))
    node.ledger.start_max = 13
    node.apply_retention(START_MS + 1_000_000)
    node.append(2)
    node.flush()


def scenario_clean(node: Node) -> None:
    """Copy one batch of the first segment, and nothing of two more, in place of the cleaner.

    Until these two are marked as replaced, a restart may find both or the later one: that is only less clean. The
    earlier one alone would bring back values without the tombstones that followed them.
    """
    node.append(13)
    node.flush()
    written = node.ledger.latest
    new = create_cleaned(node.files, node.log.directory, 0, index_interval_bytes=64, created_ms=START_MS)
    new.append(written[1], last_offset=1, max_timestamp_ms=read_header(written[1]).max_timestamp_ms)
    seal_and_sync(new)
    for first_left in (3, 6, 9):
        node.ledger.fork({offset: data for offset, data in written.items() if offset == 1 or offset >= first_left})
    old = node.log.segments[:3]
    node.log.replace_segments(old, new)
    for segment in old:
        segment.remove()
    node.ledger.keep_latest()
    assert [offset for offset, _ in contents(node.log)] == [1, 9, 10, 11, 12]
    node.append(2)
    node.flush()


def scenario_clean_stop(node: Node) -> None:
    node.append(7)
    node.manager.close()
    node.ledger.flushed = 7
    again = Node(node.files, node.ledger)
    again.append(4)
    again.flush()
    again.manager.close()
    Node(node.files, node.ledger).append(1)


def scenario_follow(node: Node) -> None:
    """A follower copies, truncates what its next leader does not have, and copies on."""
    node.copy(9)
    node.flush()
    node.copy(3, gap=4)
    node.manager.checkpoint()
    ledger = node.ledger
    ledger.flushed = 4
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 4})
    node.log.truncate_to(4)
    ledger.keep_latest()
    node.copy(6)
    node.flush()
    node.copy(2)


SCENARIOS = [
    scenario_append_and_roll,
    scenario_roll_without_flushing,
    scenario_flush_in_the_background,
    scenario_truncate,
    scenario_truncate_inside_a_batch,
    scenario_truncate_after_a_clean_stop,
    scenario_delete_from_the_start,
    scenario_clean,
    scenario_clean_stop,
    scenario_follow,
]


def crashes(run: Callable[[CrashFiles], Ledger | None]) -> Iterator[tuple[str, Survival, CrashFiles]]:
    """Yield the disks that each crash point of `run` may leave."""
    counting = CrashFiles()
    run(counting)
    for point in range(counting.mutation_count + 1):
        files = CrashFiles()
        files.crash_at = point
        try:
            run(files)
        except Crash as crash:
            where = f"before mutation {point} ({crash})"
        else:
            where = "at the end"
        for survival, left in files.after_crash():
            yield f"{where}, survival {survival.name}", survival, left


def check(log: Log, ledger: Ledger, where: str) -> None:
    found = contents(log)
    assert any(_is_prefix(found, log, history) for history in ledger.histories), f"{where}: {log} has {found}"
    assert log.start_offset <= ledger.start_max, where
    assert log.end_offset >= ledger.flushed, f"{where}: {log} lost what was flushed up to {ledger.flushed}"
    assert log.recovery_point <= log.end_offset, where
    if log.start_offset == 0 and not log.config.compacts:
        assert _producers(log.producers) == _producers(_replay(found)), where


def _replay(found: list[tuple[Offset, bytes]]) -> ProducerStates:
    states = ProducerStates()
    for offset, data in found:
        header = read_header(data)
        if header.is_control:
            states.end_transaction(header, read_marker(data), offset)
        else:
            states.update(header, offset)
    return states


def _producers(states: ProducerStates) -> dict[int, tuple[int, Offset]]:
    return {state.producer_id: (state.last_sequence, state.last_offset) for state in states}


def _is_prefix(found: list[tuple[Offset, bytes]], log: Log, history: History) -> bool:
    return found == [
        (offset, data) for offset, data in history.items() if log.start_offset <= offset < log.end_offset
    ] and all(offset in history for offset, _ in found)


def check_no_leftovers(files: CrashFiles, where: str) -> None:
    paths = list(files.all_paths())
    assert not [path for path in paths if path.name.endswith(LEFTOVERS)], where
    names = {path.name for path in paths}
    orphans = [name for name in names if name.endswith(("index",)) and f"{name[:20]}.log" not in names]
    assert not orphans, where


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_crash_point(scenario: Callable[[Node], None]) -> None:
    config = COMPACTED if scenario is scenario_clean else SMALL
    ledgers: list[Ledger] = []

    def run(files: CrashFiles) -> None:
        ledgers.append(Ledger())
        scenario(Node(files, ledgers[-1], config))

    for where, survival, files in crashes(run):
        ledger = copy.deepcopy(ledgers[-1])
        node = Node(files, ledger, config)
        check(node.log, ledger, where)
        check_no_leftovers(files, where)
        if survival is Survival.TORN:
            check_usable(node, where)


def check_usable(node: Node, where: str) -> None:
    """Check that the log still accepts records, and keeps them over a crash and over a clean stop."""
    node.append(4)
    node.flush()
    node.manager.checkpoint()
    before = contents(node.log)
    node.append(1)
    node.files.crash(Survival.TORN)
    again = Node(node.files, Ledger(), node.config)
    found = contents(again.log)
    assert found[: len(before)] == before, where
    again.manager.close()
    last = Node(node.files, Ledger(), node.config)
    assert last.summary.is_clean, where
    assert contents(last.log) == found, where


def test_every_crash_point_of_deleting_and_creating_again() -> None:
    """A partition that is created again never shows the records of the deleted one with its name."""
    second_id = UUID(int=8)

    def run(files: CrashFiles) -> None:
        node = Node(files, Ledger())
        node.append(9)
        node.flush()
        node.log.advance_start_offset(5)
        node.manager.checkpoint()
        node.manager.delete(PARTITION)
        log = node.manager.create(PARTITION, second_id, SMALL)
        append(log, batch(value=b"second"))
        log.flush()
        append(log, batch(value=b"third"))
        node.manager.purge_deleted(START_MS + 10_000_000)
        node.manager.checkpoint()

    for where, _, files in crashes(run):
        node = Node(files, Ledger())
        log = node.manager.get(PARTITION)
        if log is not None:
            values = [b"second" in data or b"third" in data for _, data in contents(log)]
            if log.topic_id == second_id:
                assert all(values), where
            elif log.topic_id == TOPIC_ID:
                assert not any(values), where
                assert node.manager.stored() == {PARTITION: TOPIC_ID}, where
            node.manager.delete(PARTITION)
        node.manager.purge_deleted(START_MS + 10_000_000)
        fresh = node.manager.create(PARTITION, second_id, SMALL)
        assert (fresh.start_offset, fresh.end_offset) == (0, 0), where
        append(fresh, batch())
        fresh.flush()
        files.crash(Survival.NOTHING)
        assert len(contents(Node(files, Ledger()).log)) == 1, where
        check_no_leftovers(files, where)


def test_a_full_disk_leaves_no_half_batch() -> None:
    """Every write of a batch fails once, half done: the directory goes offline and the restart finds whole batches."""
    for number in range(1, 12):
        files, ledger = CrashFiles(), Ledger()
        node = Node(files, ledger)
        node.append(2)
        node.flush()
        files.fail_call(number, code=errno.ENOSPC)
        with pytest.raises(StorageError, match="No space left"):
            node.append(20)
        assert not node.manager.is_online(PARTITION)
        files.crash(Survival.EVERYTHING)
        check(Node(files, ledger).log, ledger, f"call {number}")
