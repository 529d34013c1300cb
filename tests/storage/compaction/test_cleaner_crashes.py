"""Every crash point of a cleaning, with every kind of loss: afterwards the log holds the same latest values."""

import copy
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.base.clock import ManualClock
from rookery.records.batch import Codec
from rookery.records.record import Record
from rookery.storage.log import Log
from rookery.storage.names import STAGE_SUFFIXES
from tests.faults.files import Call, Crash, CrashFiles
from tests.storage.cleaning import COMPACT, append, clean, fold, make_cleaner, open_log, read_records, seal

_DIRECTORY = Path("/data")
_RETENTION_MS = 1000
_CONFIG = replace(COMPACT, segment_bytes=700, delete_retention_ms=_RETENTION_MS)


class Scenario:
    """A log just before its first or its second cleaning, on a disk that can be copied."""

    def __init__(self, *, cleanings_before: int) -> None:
        self.clock = ManualClock()
        self.files = CrashFiles()
        self.files.make_directory(_DIRECTORY)
        self.files.sync_directory(Path("/"))
        self.history: list[Record] = []
        log = open_log(self.files, _DIRECTORY, self.clock, _CONFIG)
        self._fill(log, b"1")
        for _ in range(cleanings_before):
            assert clean(make_cleaner(log)) is not None
            # The tombstones that were just cleaned will be dropped in the next cleaning.
            self.clock.advance(_RETENTION_MS)
            self._fill(log, b"2")
        self.recovery_point = log.recovery_point
        self.sequences = {state.producer_id: state.last_sequence for state in log.producers}
        self.files.calls.clear()

    def _fill(self, log: Log, value: bytes) -> None:
        for number in range(4):
            self.history += append(log, (b"a", value), (b"b", b"%d" % number), codec=Codec.ZSTD)
            self.history += append(log, (b"c%d" % number, value * 40), (b"d%d" % number, value))
            self.history += append(log, (b"d%d" % number, None), producer=(number % 2, len(self.history)))
            self.history += append(log, (b"a", value * 2), (b"b", None if number % 2 else value))
            seal(log)

    def open(self, files: CrashFiles) -> Log:
        return open_log(files, _DIRECTORY, self.clock, _CONFIG, recovery_point=self.recovery_point)

    def check(self, log: Log) -> None:
        left = read_records(log)
        known = {record.offset: record for record in self.history}
        assert all(known[record.offset] == record for record in left)
        for offset in range(0, log.end_offset, 3):
            expected = fold(record for record in self.history if record.offset >= offset)
            assert fold(record for record in left if record.offset >= offset) == expected
        assert log.end_offset == len(self.history)
        assert {state.producer_id: state.last_sequence for state in log.producers} == self.sequences
        names = log.files.list_directory(log.directory)
        assert not [name for name in names if name.endswith(STAGE_SUFFIXES)]


@pytest.mark.parametrize("cleanings_before", [0, 1])
def test_every_crash_point(cleanings_before: int) -> None:
    scenario = Scenario(cleanings_before=cleanings_before)
    whole = copy.deepcopy(scenario.files)
    log = scenario.open(whole)
    start = whole.mutation_count
    assert clean(make_cleaner(log)) is not None
    scenario.check(log)
    cleaned = read_records(log)
    assert len(cleaned) < len(scenario.history)
    points = whole.mutation_count - start
    assert points > 30
    for point in range(points):
        for _, files in _crashed(scenario, point).after_crash():
            log = scenario.open(files)
            scenario.check(log)
            # The next cleaning finishes the work.
            clean(make_cleaner(log))
            scenario.check(log)
            assert read_records(log) == cleaned


def _crashed(scenario: Scenario, point: int) -> CrashFiles:
    files = copy.deepcopy(scenario.files)
    log = scenario.open(files)
    cleaner = make_cleaner(log)
    files.crash_at = files.mutation_count + point
    with pytest.raises(Crash):
        clean(cleaner)
    return files


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_every_failing_call_takes_the_directory_offline_and_loses_nothing(code: int) -> None:
    scenario = Scenario(cleanings_before=1)
    number, is_over = 0, False
    while not is_over:
        number += 1
        files = copy.deepcopy(scenario.files)
        log = scenario.open(files)
        cleaner = make_cleaner(log)
        files.fail_call(number, code)
        task = clean(cleaner)
        is_over = log.log_directory.is_online
        assert not is_over or task is not None
        files.fail = None
        scenario.check(scenario.open(files))
    assert number > 50


def test_a_full_disk_while_cleaning_leaves_the_log_readable_after_a_restart() -> None:
    scenario = Scenario(cleanings_before=0)
    files = copy.deepcopy(scenario.files)
    log = scenario.open(files)

    def is_cleaned_file(call: Call) -> bool:
        return call.name == "append" and call.path.name.endswith(".cleaned")

    files.fail_matching(is_cleaned_file, errno.ENOSPC)
    assert clean(make_cleaner(log)) is not None
    assert not log.log_directory.is_online
    files.fail = None
    scenario.check(scenario.open(files))
