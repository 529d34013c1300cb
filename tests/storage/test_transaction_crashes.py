"""Every crash point of logs with transactions: afterwards the open and the aborted ones match the remaining batches."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rookery.base.types import Offset, ProducerId
from rookery.records.batch import read_header
from rookery.records.control import read_marker
from rookery.storage.log import Log
from tests.faults.files import Crash, CrashFiles, Survival
from tests.storage import cleaning
from tests.storage.committed import Entry, aborted_of, read_committed, stable_offset_of, transactions_of, visible_of
from tests.storage.samples import DIRECTORY, SMALL, START_MS, append, batch, contents, marker, open_log
from tests.storage.test_crash_points import Ledger, Node, _quiet, check, check_no_leftovers, check_usable, crashes

__all__ = ["_quiet"]

COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)


def write(node: Node, *producer_ids: ProducerId) -> None:
    """Append one batch of each producer's transaction."""
    for producer_id in producer_ids:
        state = node.log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        _append(node, batch(START_MS, producer_id=producer_id, epoch=0, sequence=sequence, transactional=True))


def end(node: Node, producer_id: ProducerId, *, committed: bool) -> None:
    _append(node, marker(producer_id, committed=committed))


def _append(node: Node, data: bytearray) -> None:
    offset = node.log.end_offset
    node.ledger.latest[offset] = b""
    append(node.log, data)
    node.ledger.latest[offset] = bytes(data)


def scenario_append_and_roll(node: Node) -> None:
    """Transactions that overlap and span segments, flushed at different moments."""
    write(node, 1, 2, 1)
    node.flush()
    write(node, 2)
    end(node, 1, committed=False)
    node.manager.checkpoint()
    write(node, 3)
    end(node, 2, committed=False)
    node.log.roll()
    node.flush()
    node.manager.checkpoint()
    write(node, 1)
    end(node, 3, committed=True)
    end(node, 1, committed=False)
    node.flush()


def scenario_truncate(node: Node) -> None:
    """An aborted transaction is open again after the truncation, and then committed."""
    write(node, 1, 2)
    end(node, 1, committed=False)
    node.log.roll()
    end(node, 2, committed=False)
    write(node, 1)
    node.flush()
    node.manager.checkpoint()
    ledger = node.ledger
    ledger.flushed = 2
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 2})
    node.log.truncate_to(2)
    ledger.keep_latest()
    end(node, 1, committed=True)
    node.flush()
    end(node, 2, committed=False)


def scenario_clean_stop(node: Node) -> None:
    """An index file from a clean stop is written again, or removed."""
    write(node, 1)
    end(node, 1, committed=False)
    node.manager.close()
    node.ledger.flushed = 2
    again = Node(node.files, node.ledger)
    write(again, 1)
    end(again, 1, committed=False)
    again.manager.close()
    again.ledger.flushed = 4
    last = Node(node.files, node.ledger)
    ledger = last.ledger
    ledger.flushed = 1
    ledger.fork({offset: data for offset, data in ledger.latest.items() if offset < 1})
    last.log.truncate_to(1)
    ledger.keep_latest()
    last.manager.close()
    write(Node(node.files, node.ledger), 2)


SCENARIOS = [scenario_append_and_roll, scenario_truncate, scenario_clean_stop]


def history_of(log: Log) -> Iterator[Entry]:
    for offset, data in contents(log):
        header = read_header(data)
        marks = read_marker(data) if header.is_control else None
        committed = marks.committed if marks is not None else None
        yield Entry(offset, header.last_offset_delta + 1, header.producer_id, header.is_transactional, committed)


def check_transactions(log: Log, where: str) -> None:
    history = list(history_of(log))
    end_offset = log.end_offset
    assert log.last_stable_offset(end_offset) == stable_offset_of(history, end_offset), where
    for start in range(end_offset):
        found = log._segments.find_aborted(start, end_offset)
        assert list(found) == aborted_of(history, start, end_offset), f"{where}: from {start}"
    open_ones = {item.producer_id: item.first_offset for item in transactions_of(history) if item.committed is None}
    known = {state.producer_id: state.current_transaction_offset for state in log.producers if state.is_in_transaction}
    assert known == open_ones, where


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_crash_point(scenario: Callable[[Node], None]) -> None:
    ledgers: list[Ledger] = []

    def run(files: CrashFiles) -> None:
        ledgers.append(Ledger())
        scenario(Node(files, ledgers[-1]))

    for where, survival, files in crashes(run):
        ledger = copy.deepcopy(ledgers[-1])
        node = Node(files, ledger)
        check(node.log, ledger, where)
        check_transactions(node.log, where)
        check_no_leftovers(files, where)
        if survival is Survival.TORN:
            check_usable(node, where)
            check_transactions(Node(files, Ledger()).log, where)


def _cleanable(files: CrashFiles) -> Log:
    """Write aborted and committed transactions in several segments, all ended and flushed."""
    files.make_directory(DIRECTORY.parent)
    files.sync_directory(DIRECTORY.parent.parent)
    log = open_log(files, config=COMPACTED)
    for producer_id, committed in ((1, False), (2, True), (1, True), (3, False), (2, False), (1, False)):
        state = log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        for number in range(2):
            data = batch(producer_id=producer_id, epoch=0, sequence=sequence + number, transactional=True)
            append(log, data)
        append(log, batch(value=b"between"))
        append(log, marker(producer_id, committed=committed))
    log.roll()
    log.flush()
    return log


def test_every_crash_point_of_a_cleaning() -> None:
    """Segments are replaced one by one: an aborted record must never be left without its entry."""
    disk = CrashFiles()
    log = _cleanable(disk)
    recovery_point, history = log.recovery_point, list(history_of(log))
    latest: Offset = visible_of(history, 0, log.end_offset)[-1]
    whole = copy.deepcopy(disk)
    again = open_log(whole, config=COMPACTED, recovery_point=recovery_point)
    start = whole.mutation_count
    assert cleaning.clean(cleaning.make_cleaner(again)) is not None
    assert read_committed(again, again.end_offset) == [latest]
    for point in range(whole.mutation_count - start):
        crashing_files = copy.deepcopy(disk)
        crashing = open_log(crashing_files, config=COMPACTED, recovery_point=recovery_point)
        crashing_files.crash_at = crashing_files.mutation_count + point
        with pytest.raises(Crash):
            cleaning.clean(cleaning.make_cleaner(crashing))
        for survival, files in crashing_files.after_crash():
            found = open_log(files, config=COMPACTED, recovery_point=recovery_point)
            seen = read_committed(found, found.end_offset)
            assert set(seen) <= set(visible_of(history, 0, found.end_offset)), (point, survival)
            assert seen[-1] == latest, (point, survival)
            assert found.last_stable_offset(found.end_offset) == found.end_offset
