"""The cost of starts and stops with many partitions, counted in calls of the disk: it must not grow unnoticed."""

from collections import Counter
from threading import Lock

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import CorruptionError
from rookery.base.types import NO_LEADER_EPOCH, TopicPartition
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager
from rookery.storage.threads import map_in_threads
from tests.faults.files import CrashFiles, Survival
from tests.storage.samples import DATA, ROOMY, START_MS, TOPIC_ID, append, append_all, batch, contents

COUNT = 8


def partition(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def load(files: CrashFiles, *, threads: int = 1) -> LogManager:
    manager = LogManager(files, ManualClock(START_MS), [DATA], worker_threads=threads)
    manager.load(lambda topic: ROOMY)
    return manager


def create(files: CrashFiles, *, batches: int) -> LogManager:
    manager = load(files)
    for index in range(COUNT):
        append_all(manager.create(partition(index), TOPIC_ID, ROOMY), (batch() for _ in range(batches)))
    return manager


def calls_on_partitions(files: CrashFiles) -> Counter[str]:
    """Return how often each operation was called on a partition's directory or on a file in it."""
    return Counter(call.name for call in files.calls if call.path != DATA and call.path.parent != DATA) + Counter(
        call.name for call in files.calls if call.path.parent == DATA and call.path.name.startswith("orders-")
    )


def test_a_clean_start_opens_no_file_of_a_log() -> None:
    files = CrashFiles()
    create(files, batches=3).close()
    files.calls.clear()
    manager = load(files)
    assert [log.end_offset for log in manager] == [3] * COUNT
    # Only the names in the directory, the topic's id and the size of the segment.
    assert calls_on_partitions(files) == {"list_directory": COUNT, "read_file": COUNT, "file_size": COUNT}


def test_a_clean_start_needs_one_more_call_for_an_empty_log() -> None:
    files = CrashFiles()
    create(files, batches=0).close()
    files.calls.clear()
    load(files)
    assert calls_on_partitions(files) == {"list_directory": COUNT, "read_file": COUNT, "file_size": COUNT}


@pytest.mark.parametrize("batches", [0, 3])
def test_a_stop_without_changes_does_not_touch_the_logs(batches: int) -> None:
    files = CrashFiles()
    create(files, batches=batches).close()
    manager = load(files)
    files.calls.clear()
    manager.close()
    assert not calls_on_partitions(files)


def test_a_log_that_was_never_written_to_is_closed_without_a_call() -> None:
    files = CrashFiles()
    manager = create(files, batches=0)
    files.calls.clear()
    manager.close()
    assert not calls_on_partitions(files)
    assert sorted(files.list_directory(DATA / "orders-0")) == ["00000000000000000000.log", "partition.metadata"]


@pytest.mark.parametrize("survival", Survival)
def test_an_empty_log_that_was_closed_keeps_what_is_flushed_later(survival: Survival) -> None:
    """Its names were not synced when it was closed; the first flush has to sync them."""
    files = CrashFiles()
    create(files, batches=0).close()
    manager = load(files)
    log = manager.get(partition(0))
    assert log is not None
    # Without a leader epoch: writing its file would sync the directory as well.
    append(log, batch(), NO_LEADER_EPOCH)
    log.flush()
    manager.checkpoint()
    before = contents(log)
    files.crash(survival)
    again = load(files).get(partition(0))
    assert again is not None
    assert contents(again) == before


@pytest.mark.parametrize("survival", Survival)
def test_empty_partitions_are_back_after_a_crash_after_a_clean_stop(survival: Survival) -> None:
    files = CrashFiles()
    create(files, batches=0).close()
    files.crash(survival)
    manager = load(files)
    for index in range(COUNT):
        log = manager.create(partition(index), TOPIC_ID, ROOMY, is_new=False)
        assert (log.end_offset, log.topic_id) == (0, TOPIC_ID)
        assert append(log, batch()) == 0


def test_new_partitions_share_one_sync_of_their_directory() -> None:
    files = CrashFiles()
    manager = create(files, batches=1)
    files.calls.clear()
    for log in manager:
        log.flush()
    assert [call.path for call in files.calls if call.name == "sync_directory"].count(DATA) == 1


def test_a_name_that_is_created_after_a_sync_needs_another() -> None:
    files = CrashFiles()
    files.make_directory(DATA)
    directory = LogDirectory(DATA)
    first, second = directory.number_name(), directory.number_name()
    directory.sync_name(files, second)
    directory.sync_name(files, first)
    third = directory.number_name()
    directory.sync_name(files, third)
    directory.sync_name(files, third)
    assert [call.name for call in files.calls].count("sync_directory") == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_a_log_that_cannot_be_read_ends_the_start(threads: int) -> None:
    opened: list[int] = []
    lock = Lock()

    def damaged(number: int) -> int:
        with lock:
            opened.append(number)
        if number == 0:
            raise CorruptionError("damaged")
        return number

    with pytest.raises(CorruptionError):
        map_in_threads(damaged, range(10_000), threads=threads)
    assert len(opened) < 10_000
    assert map_in_threads(str, range(100), threads=threads) == [str(number) for number in range(100)]


def test_after_a_crash_an_empty_log_costs_a_few_calls() -> None:
    files = CrashFiles()
    create(files, batches=0).close(clean=False)
    files.calls.clear()
    load(files)
    assert calls_on_partitions(files) == {
        "list_directory": COUNT,
        "read_file": COUNT,
        "file_size": COUNT,
        "exists": COUNT,
    }
