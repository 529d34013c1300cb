"""A follower's log has the same bytes as its leader's, and the same producers, transactions and epochs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.records.batch import read_header
from rookery.storage.config import LogConfig
from rookery.storage.fetched_batches import read_fetched
from rookery.storage.log import Log
from tests.faults.files import CrashFiles
from tests.storage.samples import SMALL, START_MS, append, batch, contents, marker, open_log, read_bytes, reopen

_SMALL_INDEX = LogConfig(segment_bytes=100_000, index_interval_bytes=1, segment_index_bytes=60, retention_ms=-1)


def files_of(log: Log) -> dict[str, bytes]:
    """Return the content of all files of a log, by name."""
    log.close()
    return {name: log.files.read_file(log.directory / name) for name in log.files.list_directory(log.directory)}


def copy(leader: Log, follower: Log, *, max_bytes: int, count: int) -> None:
    """Fetch until the follower has everything."""
    while follower.end_offset < leader.end_offset:
        data = memoryview(read_bytes(leader.read(follower.end_offset, max_bytes).slices))
        position = 0
        while True:
            headers, end = read_fetched(data, position, count, 1 << 20)
            if not headers:
                break
            follower.append_fetched(data[position:end], headers)
            position = end


def fill(leader: Log, choices: list[int]) -> None:
    """Append plain, idempotent and transactional batches and markers, in several epochs."""
    sequences = {1: 0, 2: 0}
    is_open = {1: False, 2: False}
    epoch, now_ms = 3, START_MS
    for choice in choices:
        now_ms += 1000 * (choice % 7)
        producer = 1 + choice % 2
        match choice % 5:
            case 0:
                append(leader, batch(now_ms, now_ms + 1, value=b"v" * (choice * 3)), epoch)
            case 1 | 2:
                data = batch(now_ms, producer_id=producer, epoch=0, sequence=sequences[producer], transactional=True)
                append(leader, data, epoch)
                sequences[producer] += 1
                is_open[producer] = True
            case 3:
                if is_open[producer]:
                    append(leader, marker(producer, committed=choice % 3 == 0, timestamp_ms=now_ms), epoch)
                    is_open[producer] = False
            case _:
                epoch += 1
                append(leader, batch(now_ms), epoch)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=60),
    st.sampled_from((SMALL, _SMALL_INDEX, LogConfig(segment_ms=4000, retention_ms=-1))),
    st.integers(1, 2000),
    st.integers(1, 20),
)
def test_a_follower_has_the_leaders_files(choices: list[int], config: LogConfig, max_bytes: int, count: int) -> None:
    leader = open_log(CrashFiles(), config=config)
    follower = open_log(CrashFiles(), config=config)
    fill(leader, choices)
    copy(leader, follower, max_bytes=max_bytes, count=count)
    assert follower.last_stable_offset(follower.end_offset) == leader.last_stable_offset(leader.end_offset)
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.find_aborted_across(leader.end_offset) == leader.find_aborted_across(leader.end_offset)
    assert files_of(follower) == files_of(leader)


def test_batches_of_one_segment_are_one_write() -> None:
    leader, files = open_log(CrashFiles()), CrashFiles()
    follower = open_log(files)
    for _ in range(10):
        append(leader, batch())
    append(follower, batch())
    follower.truncate_to(0)
    before = sum(call.name == "append" for call in files.calls)
    copy(leader, follower, max_bytes=100_000, count=100)
    # The first batch of a segment is written alone: whether the others need a new one depends on it.
    assert sum(call.name == "append" for call in files.calls) - before == 2
    assert contents(follower) == contents(leader)


def test_an_empty_log_begins_inside_a_batch() -> None:
    log = open_log(CrashFiles())
    log.restart_at(12)
    data = batch(1, 2, 3, 4)
    data[:8] = (10).to_bytes(8, "big")
    log.append_fetched(memoryview(data), [read_header(data)])
    assert (log.start_offset, log.end_offset) == (12, 14)
    opened = reopen(log)
    assert (opened.start_offset, opened.end_offset) == (12, 14)
    with pytest.raises(ValueError, match="does not follow"):
        opened.append_fetched(memoryview(data), [read_header(data)])


def test_a_restart_forgets_the_epochs_of_removed_records() -> None:
    log = open_log(CrashFiles())
    append(log, batch(), 3)
    log.restart_at(50)
    assert log.epochs.entries() == []


def test_a_truncation_to_the_end_drops_an_epoch_without_records() -> None:
    log = open_log(CrashFiles())
    append(log, batch(), 3)
    log.assign_epoch(4)
    log.truncate_to(1)
    assert [entry.epoch for entry in log.epochs.entries()] == [3]
    append(log, batch(), 5)
    assert [entry.epoch for entry in log.epochs.entries()] == [3, 5]


def test_damaged_and_partial_batches() -> None:
    log = open_log(CrashFiles())
    for _ in range(3):
        append(log, batch())
    data = bytearray(read_bytes(log.read(0, 10_000).slices))
    size = len(data) // 3
    assert len(read_fetched(memoryview(data)[:-1], 0, 10, 1 << 20).headers) == 2
    assert read_fetched(memoryview(data), 0, 2, 1 << 20).end == 2 * size
    assert read_fetched(memoryview(data), 0, 10, size + 1).end == 2 * size
    data[-1] ^= 1
    with pytest.raises(CorruptionError, match="checksum"):
        read_fetched(memoryview(data), 0, 10, 1 << 20)
    swapped = memoryview(data[size : 2 * size] + data[:size])
    with pytest.raises(CorruptionError, match="follows"):
        read_fetched(swapped, 0, 10, 1 << 20)
    with pytest.raises(CorruptionError, match="no record batch"):
        read_fetched(memoryview(bytes(100)), 0, 10, 1 << 20)
