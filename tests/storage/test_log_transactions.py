"""Transactions in a log's files: the aborted index over restarts, crashes, truncation, retention and compaction."""

from dataclasses import replace

import pytest

from rookery.base.errors import CorruptionError
from rookery.base.types import Offset
from rookery.records.batch import read_header
from rookery.records.control import ControlType, control_key
from rookery.records.record import Record, build_batch
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.producers import ProducerState, ProducerStates
from rookery.storage.transactions import AbortedTransaction
from tests.faults.files import CrashFiles, Survival
from tests.storage.cleaning import clean, make_cleaner
from tests.storage.committed import read_committed
from tests.storage.samples import DIRECTORY, ROOMY, START_MS, append, batch, contents, marker, open_log, reopen

COMPACTED = replace(
    ROOMY, cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.0, delete_retention_ms=100
)


@pytest.fixture
def files() -> CrashFiles:
    disk = CrashFiles()
    disk.make_directory(DIRECTORY.parent)
    disk.sync_directory(DIRECTORY.parent.parent)
    return disk


def write(log: Log, producer_id: int, *, epoch: int = 0) -> Offset:
    """Append the next batch of a producer's transaction, with one record."""
    state = log.producers.get(producer_id)
    sequence = state.last_sequence + 1 if state is not None else 0
    data = batch(START_MS, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
    return append(log, data)


def end(log: Log, producer_id: int, *, committed: bool) -> Offset:
    return append(log, marker(producer_id, committed=committed))


def index_names(log: Log) -> list[str]:
    return [name for name in sorted(log.files.list_directory(log.directory)) if "txnindex" in name]


def aborted(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.aborted]


def stable(log: Log) -> Offset:
    return log.last_stable_offset(log.end_offset)


def spanning(files: CrashFiles, **options: object) -> Log:
    """Write transactions: producer 1 begins in the first segment and aborts in the second, 2 commits, 3 stays open."""
    log = open_log(files, **options)  # type: ignore[arg-type]
    for producer_id in (1, 2):
        write(log, producer_id)
    log.roll()
    write(log, 3)
    write(log, 1)
    end(log, 2, committed=True)
    end(log, 1, committed=False)
    return log


ENTRY = AbortedTransaction(1, 0, 5, 2)


def test_an_aborted_transaction_is_indexed_with_its_marker(files: CrashFiles) -> None:
    log = spanning(files)
    assert aborted(log) == [ENTRY]
    assert [segment.has_aborted for segment in log.segments] == [False, True]
    assert stable(log) == 2
    assert index_names(log) == []
    log.roll()
    assert index_names(log) == ["00000000000000000002.txnindex"]
    assert files.read_file(DIRECTORY / index_names(log)[0]) == bytes.fromhex(
        "0000 0000000000000001 0000000000000000 0000000000000005 0000000000000002"
    )
    end(log, 3, committed=True)
    assert read_committed(log, log.end_offset) == [1, 2]


def test_nothing_aborted_no_file(files: CrashFiles) -> None:
    log = open_log(files)
    write(log, 1)
    end(log, 1, committed=True)
    end(log, 1, committed=False)
    log.close()
    assert index_names(log) == []


@pytest.mark.parametrize("clean", [True, False])
def test_restart(files: CrashFiles, clean: bool) -> None:
    log = spanning(files)
    if not clean:
        log.flush()
        files.crash(Survival.NOTHING)
    again = reopen(log, clean=clean)
    assert stable(again) == 2
    assert aborted(again) == [ENTRY]
    assert [state.current_transaction_offset for state in again.producers] == [-1, -1, 2]
    end(again, 3, committed=False)
    assert aborted(again) == [ENTRY, AbortedTransaction(3, 2, 6, 7)]
    assert read_committed(again, again.end_offset) == [1]


def test_a_clean_start_opens_no_index(files: CrashFiles) -> None:
    log = spanning(files)
    log.close()
    files.calls.clear()
    again = reopen(log)
    opened = [call.path.name for call in files.calls if call.name in ("open", "read_file", "read_at")]
    assert not [name for name in opened if name.endswith(("index", ".log", ".snapshot"))]
    assert [segment.has_aborted for segment in again.segments] == [False, True]


@pytest.mark.parametrize("damage", [b"short", b"\0\x09" + bytes(32), None])
def test_a_damaged_index_is_rebuilt(files: CrashFiles, damage: bytes | None) -> None:
    log = spanning(files)
    end(log, 3, committed=True)
    log.roll()
    log.close()
    path = DIRECTORY / "00000000000000000002.txnindex"
    again = open_log(files, recovery_point=7, clean=True)
    if damage is None:
        files.remove(path)
    else:
        files.write_file(path, damage)
    assert read_committed(again, 7) == [1, 2]
    assert list(again.segments[1].aborted) == [ENTRY]


def test_truncation_opens_a_transaction_again(files: CrashFiles) -> None:
    log = spanning(files)
    log.close()
    again = reopen(log)
    again.truncate_to(5)
    assert aborted(again) == []
    assert [state.current_transaction_offset for state in again.producers] == [0, -1, 2]
    assert stable(again) == 0
    again.close()
    assert index_names(again) == []
    last = reopen(again)
    end(last, 1, committed=True)
    assert aborted(last) == []
    assert stable(last) == 2


def test_truncation_removes_the_index_of_a_whole_segment(files: CrashFiles) -> None:
    log = spanning(files)
    log.roll()
    log.truncate_to(2)
    assert index_names(log) == []
    assert [state.current_transaction_offset for state in log.producers] == [0, 1]
    log.restart_at(9)
    assert stable(log) == 9


def test_a_transaction_that_began_below_the_start(files: CrashFiles) -> None:
    """DeleteRecords and retention go up to the high watermark: readers continue from the new start."""
    log = spanning(files)
    log.advance_start_offset(4)
    assert stable(log) == 4
    log.apply_retention(START_MS)
    for path in log.take_detached_files():
        files.remove(path)
    assert [segment.base_offset for segment in log.segments] == [2]
    assert stable(log) == 4
    end(log, 3, committed=False)
    assert aborted(log)[-1] == AbortedTransaction(3, 2, 6, 7)
    assert stable(log) == 7


def test_an_end_below_the_start_is_seen_after_a_crash(files: CrashFiles) -> None:
    """The transaction is open in the snapshot; its marker lies between the snapshot and the start."""
    log = open_log(files)
    write(log, 1)
    log.roll()
    end(log, 1, committed=True)
    append(log, batch())
    log.flush()
    log.advance_start_offset(2)
    again = reopen(log, clean=False)
    assert stable(again) == 3


def test_retention_removes_index_files(files: CrashFiles) -> None:
    log = spanning(files)
    log.roll()
    append(log, batch())
    log.advance_start_offset(6)
    assert len(log.apply_retention(START_MS)) == 2
    paths = log.take_detached_files()
    assert "00000000000000000002.txnindex.deleted" in [path.name for path in paths]
    for path in paths:
        files.remove(path)
    assert index_names(log) == []


@pytest.mark.parametrize("survival", list(Survival))
def test_an_index_that_was_sealed_after_the_flush_is_rebuilt(files: CrashFiles, survival: Survival) -> None:
    """The records survive by the flush; the index file of their segment, written later, may be lost or torn."""
    log = spanning(files)
    log.flush()
    log.roll()
    append(log, batch())
    log.roll()
    files.crash(survival)
    again = reopen(log, clean=False)
    assert aborted(again) == [ENTRY]


def test_an_empty_file_is_not_trusted(files: CrashFiles) -> None:
    log = spanning(files)
    log.close()
    files.write_file(DIRECTORY / "00000000000000000002.txnindex", b"")
    again = reopen(log)
    assert again.find_aborted(0, again.read(0, 1000), 6) == [(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_torn_snapshot_is_written_again(files: CrashFiles, clean: bool) -> None:
    """It lost its bytes in a crash; the segments from which it could be rebuilt may be deleted after the next start."""
    log = open_log(files)
    write(log, 1)
    log.roll()
    append(log, batch())
    path = DIRECTORY / "00000000000000000001.snapshot"
    files.write_file(path, b"")
    again = reopen(log, clean=False)
    assert files.read_file(path) == ProducerStates.decode(files.read_file(path)).encode()
    again.flush()
    again.advance_start_offset(1)
    if not clean:
        files.crash(Survival.NOTHING)
    last = reopen(again, clean=clean)
    assert [state.current_transaction_offset for state in last.producers] == [0]
    assert stable(last) == 1


def test_producers_outlive_their_records(files: CrashFiles) -> None:
    """Retention removed all records, and a crash took the snapshot that the roll wrote."""
    log = open_log(files)
    write(log, 1)
    log.roll()
    files.remove(DIRECTORY / "00000000000000000001.snapshot")
    again = reopen(log, clean=False)
    again.advance_start_offset(1)
    again.apply_retention(START_MS)
    for path in again.take_detached_files():
        files.remove(path)
    last = reopen(again)
    assert stable(last) == 1
    assert [state.current_transaction_offset for state in last.producers] == [0]


def test_compaction_removes_the_records_and_their_entries(files: CrashFiles) -> None:
    log = spanning(files, config=COMPACTED)
    end(log, 3, committed=False)
    write(log, 4)
    end(log, 4, committed=True)
    log.roll()
    log.flush()
    before = read_committed(log, log.end_offset)
    assert clean(make_cleaner(log)) is not None
    assert aborted(log) == []
    assert index_names(log) == []
    # Keys are the same everywhere: the last committed record stays.
    assert read_committed(log, log.end_offset) == before[-1:] == [7]
    assert stable(log) == log.end_offset
    # Without snapshots all producers are rebuilt from what compaction has left.
    log.close()
    for name in log.files.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            log.files.remove(DIRECTORY / name)
    assert stable(reopen(log, clean=False)) == log.end_offset


def test_compaction_drops_records_aborted_after_its_range(files: CrashFiles) -> None:
    """The marker lies in the active segment: the aborted record is not the latest of its key, and is dropped."""
    log = open_log(files, config=COMPACTED)
    append(log, batch())
    write(log, 1)
    log.roll()
    end(log, 1, committed=False)
    log.flush()
    assert clean(make_cleaner(log)) is not None
    assert [offset for offset, _ in contents(log)] == [0, 1, 2]
    assert read_committed(log, log.end_offset) == [0]
    assert log.segments[0].size_bytes < 2 * len(batch())
    assert aborted(log) == [AbortedTransaction(1, 1, 2, 3)]


@pytest.mark.parametrize("survival", Survival)
def test_an_index_that_was_written_after_the_last_flush_is_not_trusted(files: CrashFiles, survival: Survival) -> None:
    """The recovery point is the end of the sealed segment; a power loss may leave the name of its index, or nothing."""
    log = open_log(files)
    write(log, 1)
    end(log, 1, committed=False)
    log.flush()
    log.roll()
    append(log, batch())
    files.crash(survival)
    log = open_log(files, recovery_point=2)
    assert aborted(log) == [AbortedTransaction(1, 0, 1, 2)]
    assert read_committed(log, log.end_offset) in ([], [2])


def test_compaction_stops_at_open_transactions(files: CrashFiles) -> None:
    log = spanning(files, config=COMPACTED)
    log.roll()
    log.flush()
    assert make_cleaner(log).dirty_range(log).end_offset == 2
    end(log, 3, committed=True)
    assert make_cleaner(log).dirty_range(log).end_offset == 6


def test_a_follower_keeps_the_same_transactions(files: CrashFiles) -> None:
    log = open_log(files)
    for offset, data in enumerate([batch(producer_id=1, epoch=0, sequence=0, transactional=True), None]):
        taken = data if data is not None else marker(1, committed=False)
        header = read_header(taken)._replace(base_offset=offset + 10, leader_epoch=1)
        log.append_fetched(memoryview(taken), [header])
    assert aborted(log) == [AbortedTransaction(1, 10, 11, 12)]


def test_a_marker_that_cannot_be_read_is_not_written(files: CrashFiles) -> None:
    log = open_log(files)
    records = [Record(0, 1, control_key(ControlType.ABORT), b"")]
    broken = build_batch(records, producer_id=1, producer_epoch=0, control=True, transactional=True)
    with pytest.raises(CorruptionError):
        log.append_fetched(memoryview(broken), [read_header(broken)])
    assert log.end_offset == 0
    assert log.size_bytes == 0


def test_a_marker_that_cannot_be_read_ends_recovery(files: CrashFiles) -> None:
    log = open_log(files)
    write(log, 1)
    records = [Record(1, 1, b"", b"")]
    broken = build_batch(records, base_offset=1, producer_id=1, producer_epoch=0, control=True, transactional=True)
    log.segments[0].append(broken, 1, 1)
    assert reopen(log, clean=False).end_offset == 1


@pytest.mark.parametrize(("config", "stable_offset"), [(ROOMY, 0), (COMPACTED, 3)])
def test_an_old_snapshot_is_not_trusted_in_a_compacted_log(
    files: CrashFiles, config: LogConfig, stable_offset: Offset
) -> None:
    """A transaction is open in it; compaction may have removed the marker that ended it."""
    log = open_log(files, config=config)
    for _ in range(3):
        append(log, batch())
        log.roll()
    log.close()
    open_transaction = ProducerState(1, 0)
    open_transaction.current_transaction_offset = 0
    files.write_file(DIRECTORY / "00000000000000000001.snapshot", ProducerStates([open_transaction]).encode())
    for offset in (2, 3):
        files.write_file(DIRECTORY / f"{offset:020}.snapshot", b"torn")
    assert stable(reopen(log, clean=False)) == stable_offset
