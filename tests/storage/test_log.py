"""The log on real files: appending, reading, rolling, truncating, deleting, closing and opening."""

import asyncio
from pathlib import Path

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ErrorCode, StorageError
from rookery.base.files import OsFiles, make_synced_directory
from rookery.records.batch import compute_crc, read_header
from rookery.storage.config import LogConfig
from rookery.storage.flush import flush_in_executor
from rookery.storage.log import Log
from rookery.storage.replacement import create_cleaned, seal_and_sync
from tests.faults.files import CrashFiles, Survival
from tests.storage.samples import (
    DIRECTORY,
    PARTITION,
    ROOMY,
    SMALL,
    START_MS,
    append,
    append_all,
    batch,
    contents,
    open_log,
    read_bytes,
    reopen,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / DIRECTORY.name


def small_log(directory: Path, count: int = 12) -> Log:
    """Fill several segments with three single-record batches each."""
    log = open_log(OsFiles(), directory, SMALL)
    append_all(log, (batch(START_MS + index) for index in range(count)))
    return log


class TestAppend:
    def test_stamps_offset_and_epoch_and_keeps_all_other_bytes(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        original = bytes(batch(START_MS, START_MS + 1))
        assert append_all(log, [bytearray(original), bytearray(original)]) == [0, 2]
        (first, first_bytes), (second, second_bytes) = contents(log)
        assert (first, second, log.end_offset) == (0, 2, 4)
        assert first_bytes[16:] == second_bytes[16:] == original[16:]
        header = read_header(second_bytes)
        assert (header.base_offset, header.leader_epoch, header.crc) == (2, 3, compute_crc(second_bytes))

    def test_follower_keeps_the_leaders_offsets(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        leader = open_log(OsFiles(), directory.with_name("leader-0"))
        data = batch(START_MS)
        leader.restart_at(41)
        append(leader, data)
        log.append_fetched(memoryview(data), [read_header(data)])
        assert (log.end_offset, contents(log)) == (42, contents(leader))
        with pytest.raises(ValueError, match="does not follow"):
            log.append_fetched(memoryview(data), [read_header(data)])

    def test_a_new_epoch_is_recorded_where_it_begins(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        for epoch in (3, 3, 5):
            append(log, batch(), leader_epoch=epoch)
        assert log.epochs.entries() == [(3, 0), (5, 2)]
        assert log.epoch_end_offset(3) == (3, 2)
        assert log.epoch_end_offset(4) == (3, 2)
        assert log.epoch_end_offset(5) == (5, 3)
        assert log.epoch_end_offset(6) == (-1, -1)

    def test_counts_messages_for_flush_messages(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(flush_messages=3))
        append(log, batch(START_MS, START_MS))
        assert not log.needs_flush
        append(log, batch())
        assert log.needs_flush
        log.flush()
        assert not log.needs_flush
        assert log.recovery_point == 3


class TestRolling:
    def test_by_size(self, directory: Path) -> None:
        log = small_log(directory)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)

    def test_a_batch_larger_than_a_segment_gets_its_own(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        append_all(log, [batch(), batch(value=b"x" * 1000), batch()])
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]

    def test_by_record_time(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(segment_ms=1000))
        append_all(log, [batch(START_MS), batch(START_MS + 1000), batch(START_MS + 1001), batch(START_MS)])
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_by_the_clock_if_records_have_no_timestamp(self, directory: Path) -> None:
        clock = ManualClock(START_MS)
        log = open_log(OsFiles(), directory, LogConfig(segment_ms=1000), clock=clock)
        append(log, batch(-1))
        clock.advance(1000)
        append(log, batch(-1))
        clock.advance(1)
        append(log, batch(-1))
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_by_the_time_of_the_first_record_after_a_truncation(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(segment_ms=1000))
        append_all(log, [batch(START_MS), batch(START_MS + 500)])
        log.truncate_to(0)
        append_all(log, [batch(START_MS + 900), batch(START_MS + 1900), batch(START_MS + 1901)])
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_jitter_rolls_earlier(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(segment_ms=1_000_000, segment_jitter_ms=1_000_000))
        append_all(log, [batch(START_MS), batch(START_MS + 999_999)])
        assert len(log.segments) == 2

    def test_by_full_offset_index(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(index_interval_bytes=0, segment_index_bytes=32))
        append_all(log, (batch(-1) for _ in range(10)))
        assert [segment.base_offset for segment in log.segments] == [0, 5]
        assert [segment.offset_index.size_bytes for segment in log.segments] == [32, 32]

    def test_by_full_time_index(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(index_interval_bytes=0, segment_index_bytes=48))
        append_all(log, (batch(START_MS + index) for index in range(9)))
        assert [segment.base_offset for segment in log.segments] == [0, 4, 8]

    def test_by_relative_offset(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append(log, batch())
        for offset in (2**31 - 1, 2**31):
            data = batch()
            data[:8] = offset.to_bytes(8, "big")
            log.append_fetched(memoryview(data), [read_header(data)])
        assert [segment.base_offset for segment in log.segments] == [0, 2**31]
        assert [offset for offset, _ in contents(log)] == [0, 2**31 - 1, 2**31]

    def test_an_empty_segment_stays(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        assert log.roll() is log.roll()


class TestRead:
    def test_every_offset_and_size(self, directory: Path) -> None:
        """A read begins with the batch that holds the offset and is as long as requested, or one batch."""
        log = open_log(OsFiles(), directory, SMALL)
        append_all(log, (batch(*[START_MS + index] * (1 + index % 3)) for index in range(20)))
        log = reopen(log)
        everything = contents(log)
        flat = b"".join(data for _, data in everything)
        for offset in range(log.end_offset):
            base = max(base for base, _ in everything if base <= offset)
            start = flat.index(dict(everything)[base])
            for max_bytes in (0, 1, 90, 300, 1000, 10_000):
                data = read_bytes(log.read(offset, max_bytes).slices)
                first_size = len(dict(everything)[base])
                assert data == flat[start : start + len(data)]
                assert first_size <= len(data) <= max(first_size, max_bytes)

    def test_ends_below_the_end_offset(self, directory: Path) -> None:
        log = small_log(directory)
        for end_offset in range(1, 13):
            data = read_bytes(log.read(0, 10_000, end_offset=end_offset).slices)
            assert len(data) == sum(len(data) for base, data in contents(log) if base < end_offset)
        assert log.read(5, 1000, end_offset=5).slices == ()

    def test_without_at_least_one_nothing_is_cut_short_at_the_front(self, directory: Path) -> None:
        log = small_log(directory)
        size = len(batch())
        assert log.read(0, size - 1, at_least_one=False).size_bytes == 0
        assert log.read(0, size, at_least_one=False).size_bytes == size

    def test_out_of_range(self, directory: Path) -> None:
        log = small_log(directory)
        log.advance_start_offset(2)
        assert log.read(1, 100).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(13, 100).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(12, 100).error_code == ErrorCode.NONE

    def test_a_slice_outlives_its_segment(self, directory: Path) -> None:
        log = small_log(directory)
        before = log.read(0, 10_000)
        log.restart_at(0)
        assert len(read_bytes(before.slices)) == 12 * len(batch())

    def test_the_tail_is_found_without_reading(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append_all(log, (batch() for _ in range(1000)))
        (part,) = log.read(999, 1 << 20).slices
        assert part.position == 999 * len(batch())


class TestTimestamps:
    def test_exact_to_the_record(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        times = [100, 300, 200, 500, 400, 600, 600, 700, 650, 900, 800]
        append_all(log, [batch(*times[:3]), batch(*times[3:5]), batch(*times[5:8]), batch(*times[8:])])
        log = reopen(log)
        for target in range(0, 1000, 50):
            expected = next((offset for offset, time in enumerate(times) if time >= target), None)
            found = log.offset_for_timestamp(target)
            assert (found.offset if found else None) == expected
            if found:
                assert (found.timestamp_ms, found.leader_epoch) == (times[found.offset], 3)
        assert log.offset_for_timestamp(900, end_offset=9) is None

    def test_latest(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        assert log.max_timestamp_offset() is None
        append_all(log, [batch(100, 900, 900), batch(500), batch(900), batch(300, 200)])
        assert log.max_timestamp_offset() == (1, 900, 3)
        assert log.max_timestamp_offset(end_offset=1) == (0, 100, 3)
        log.advance_start_offset(3)
        assert log.max_timestamp_offset() == (4, 900, 3)
        log.advance_start_offset(5)
        assert log.max_timestamp_offset() == (5, 300, 3)

    def test_latest_if_a_bound_cuts_a_batch(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append_all(log, [batch(900, 100), batch(500), batch(200, 800)])
        log.advance_start_offset(1)
        assert log.max_timestamp_offset() == (4, 800, 3)
        assert log.max_timestamp_offset(end_offset=4) == (2, 500, 3)

    def test_records_without_timestamps(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append(log, batch(-1))
        assert log.max_timestamp_offset() is None
        assert log.offset_for_timestamp(0) is None


class TestTruncation:
    @pytest.mark.parametrize("offset", range(13))
    def test_to_any_offset(self, directory: Path, offset: int) -> None:
        log = small_log(directory)
        before = contents(log)
        log.flush()
        log.truncate_to(offset)
        assert (log.end_offset, contents(log)) == (offset, before[:offset])
        assert log.recovery_point <= offset
        assert append(log, batch(START_MS + 99)) == offset
        assert len(contents(reopen(log))) == offset + 1

    def test_inside_a_batch_removes_the_whole_batch(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append_all(log, [batch(1, 2, 3), batch(4, 5, 6)])
        log.truncate_to(4)
        assert log.end_offset == 3

    def test_inside_a_batch_nothing_beyond_the_new_end_counts_as_flushed(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append(log, batch(1, 2, 3, 4))
        log.flush()
        log.truncate_to(2)
        log.flush()
        append(log, batch())
        assert (log.recovery_point, log.end_offset) == (0, 1)

    def test_drops_producers_and_epochs(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        for index in range(8):
            append(log, batch(producer_id=1, epoch=0, sequence=index), leader_epoch=index // 4)
        log.truncate_to(4)
        state = log.producers.get(1)
        assert state is not None
        assert (state.last_sequence, state.last_offset) == (3, 3)
        assert log.epochs.entries() == [(0, 0)]

    def test_restart_at_another_offset(self, directory: Path) -> None:
        log = small_log(directory)
        log.restart_at(100)
        assert (log.start_offset, log.end_offset, contents(log)) == (100, 100, [])
        assert append(log, batch()) == 100
        assert [offset for offset, _ in contents(reopen(log))] == [100]


class TestRetention:
    def test_by_time(self, directory: Path) -> None:
        log = small_log(directory)
        log.update_config(LogConfig(retention_ms=1000))
        assert log.apply_retention(START_MS + 1002) == []
        expired = log.apply_retention(START_MS + 1003)
        assert [segment.base_offset for segment in expired] == [0]
        assert (log.start_offset, [offset for offset, _ in contents(log)]) == (3, list(range(3, 12)))
        for path in log.take_detached_files():
            path.unlink()
        assert sorted(path.name for path in directory.glob("*.log"))[0] == "00000000000000000003.log"

    def test_everything_expired_leaves_an_empty_log(self, directory: Path) -> None:
        log = small_log(directory)
        log.update_config(LogConfig(retention_ms=1000))
        assert len(log.apply_retention(START_MS + 10_000)) == 4
        assert (log.start_offset, log.end_offset, log.size_bytes) == (12, 12, 0)
        assert append(log, batch()) == 12
        assert log.apply_retention(START_MS + 500) == []

    def test_never_beyond_the_high_watermark(self, directory: Path) -> None:
        log = small_log(directory)
        log.update_config(LogConfig(retention_ms=1000))
        assert len(log.apply_retention(START_MS + 10_000, stable_offset=8)) == 2

    def test_by_size(self, directory: Path) -> None:
        log = small_log(directory)
        log.update_config(LogConfig(retention_ms=-1, retention_bytes=2 * log.segments[0].size_bytes))
        assert [segment.base_offset for segment in log.apply_retention(START_MS)] == [0, 3]

    def test_compacted_logs_only_delete_records_below_the_start(self, directory: Path) -> None:
        log = small_log(directory)
        config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1)
        log.update_config(config)
        assert log.apply_retention(START_MS + 10_000) == []
        log.advance_start_offset(7)
        assert [segment.base_offset for segment in log.apply_retention(START_MS)] == [0, 3]
        assert log.start_offset == 7


class TestReplacement:
    def test_readers_see_the_new_segment_and_keep_the_old_bytes(self, directory: Path) -> None:
        log = small_log(directory)
        before = log.read(0, 10_000)
        log.flush()
        new = create_cleaned(log.files, directory, 0, index_interval_bytes=64, created_ms=START_MS)
        (_, kept) = contents(log)[4]
        new.append(kept, last_offset=4, max_timestamp_ms=START_MS + 4)
        seal_and_sync(new)
        log.replace_segments(log.segments[:2], new)
        assert [offset for offset, _ in contents(log)] == [4, *range(6, 12)]
        assert len(read_bytes(before.slices)) == 12 * len(batch())
        assert log.offset_for_timestamp(START_MS) == (4, START_MS + 4, 3)
        assert [offset for offset, _ in contents(reopen(log, clean=False))] == [4, *range(6, 12)]

    def test_a_segment_that_waits_for_a_flush_may_be_replaced(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        append(log, batch())
        job = log.prepare_flush()
        assert job is not None
        log.roll()
        append(log, batch())
        job.run()
        log.finish_flush(job)
        new = create_cleaned(log.files, directory, 0, index_interval_bytes=64, created_ms=START_MS)
        seal_and_sync(new)
        log.replace_segments(log.segments[:1], new)
        log.flush()
        assert [offset for offset, _ in contents(log)] == [1]

    def test_only_neighbouring_sealed_segments(self, directory: Path) -> None:
        log = small_log(directory)
        new = create_cleaned(log.files, directory, 0, index_interval_bytes=64, created_ms=START_MS)
        seal_and_sync(new)
        for old in (log.segments[2:], [log.segments[0], log.segments[2]]):
            with pytest.raises(ValueError, match="neighbouring"):
                log.replace_segments(old, new)


class TestRestart:
    def test_after_a_clean_stop_no_file_is_opened(self, directory: Path) -> None:
        log = small_log(directory)
        before = contents(log)
        log.close()
        assert log.recovery_point == 12
        (directory / "00000000000000000009.log").chmod(0)
        log = open_log(OsFiles(), directory, SMALL, recovery_point=12, clean=True)
        assert log.end_offset == 12
        (directory / "00000000000000000009.log").chmod(0o644)
        assert contents(log) == before
        assert log.epochs.entries() == [(3, 0)]

    def test_closing_an_untouched_log_writes_nothing(self, directory: Path) -> None:
        log = reopen(small_log(directory))
        times = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
        reopen(log)
        assert times == {path: path.stat().st_mtime_ns for path in directory.iterdir()}

    def test_a_wrong_claim_of_a_clean_stop_is_noticed(self, directory: Path) -> None:
        log = small_log(directory)
        before = contents(log)
        log.close()
        again = open_log(OsFiles(), directory, SMALL, recovery_point=9, clean=True)
        assert contents(again) == before

    def test_producers_survive(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        for index in range(7):
            append(log, batch(producer_id=5, epoch=1, sequence=index))
        for clean in (True, False):
            log = reopen(log, clean=clean)
            state = log.producers.get(5)
            assert state is not None
            assert (state.epoch, state.last_sequence, state.last_offset) == (1, 6, 6)

    def test_index_files_are_rebuilt_when_lost_or_bad(self, directory: Path) -> None:
        log = small_log(directory)
        entries = [segment.offset_index.entries() for segment in log.segments]
        before = contents(log)
        log.close()
        (directory / "00000000000000000000.index").unlink()
        (directory / "00000000000000000003.timeindex").write_bytes(b"\0" * 12)
        (directory / "00000000000000000009.index").write_bytes(b"\xff" * 9)
        again = open_log(OsFiles(), directory, SMALL, recovery_point=12, clean=True)
        assert contents(again) == before
        assert [segment.offset_index.entries() for segment in again.segments] == entries
        assert again.offset_for_timestamp(START_MS + 4) == (4, START_MS + 4, 3)

    def test_deleted_records_stay_deleted(self, directory: Path) -> None:
        log = small_log(directory)
        log.advance_start_offset(7)
        log = reopen(log)
        assert log.start_offset == 7
        assert [segment.base_offset for segment in log.segments] == [6, 9]
        assert log.epochs.entries() == [(3, 7)]

    def test_records_deleted_beyond_what_survived(self, directory: Path) -> None:
        log = small_log(directory)
        log.close()
        again = open_log(OsFiles(), directory, SMALL, recovery_point=12, start_offset=40)
        assert (again.start_offset, again.end_offset, contents(again)) == (40, 40, [])

    def test_a_log_that_is_created_again_has_no_producers(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory)
        append(log, batch(producer_id=1, epoch=0, sequence=0))
        log.close()
        log = open_log(OsFiles(), directory, start_offset=2)
        assert list(log.producers) == []
        assert list(reopen(log).producers) == []

    def test_epochs_are_rebuilt_when_their_file_is_bad(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, SMALL)
        for epoch in (1, 1, 2, 2, 4, 4, 4, 7):
            append(log, batch(), leader_epoch=epoch)
        before = log.epochs.entries()
        log.close()
        for clean in (True, False):
            (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\nx y\n")
            log = open_log(OsFiles(), directory, SMALL, recovery_point=8, clean=clean)
            assert log.epochs.entries() == before


class TestFlush:
    def test_appends_continue_while_a_worker_syncs(self, directory: Path) -> None:
        log = small_log(directory)
        job = log.prepare_flush()
        assert job is not None
        append_all(log, (batch(START_MS) for _ in range(5)))
        job.run()
        log.finish_flush(job)
        assert (log.recovery_point, log.end_offset) == (12, 17)
        asyncio.run(flush_in_executor(log))
        assert log.recovery_point == 17
        assert log.prepare_flush() is None

    def test_an_older_flush_that_ends_last_undoes_nothing(self, directory: Path) -> None:
        log = open_log(OsFiles(), directory, LogConfig(flush_messages=1))
        jobs = []
        for _ in range(2):
            append(log, batch(START_MS))
            jobs.append(log.prepare_flush())
        for job in reversed(jobs):
            assert job is not None
            job.run()
            log.finish_flush(job)
        assert log.recovery_point == log.end_offset
        assert not log.needs_flush

    @pytest.mark.parametrize("is_new", [True, False])
    def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_served(self, is_new: bool) -> None:
        files, config = CrashFiles(), LogConfig(flush_messages=1)
        make_synced_directory(files, DIRECTORY.parent)
        killed = open_log(files, config=config)
        if not is_new:
            append(killed, batch())
            killed.flush()
        append(killed, batch())
        served = open_log(files, config=config, recovery_point=killed.recovery_point)
        assert not served.needs_flush
        files.crash(Survival.NOTHING)
        assert open_log(files, config=config, recovery_point=served.recovery_point).end_offset == killed.end_offset

    def test_a_flush_that_a_truncation_overtakes_has_no_effect(self, directory: Path) -> None:
        log = small_log(directory)
        job = log.prepare_flush()
        assert job is not None
        log.truncate_to(5)
        append_all(log, (batch(START_MS) for _ in range(20)))
        job.run()
        log.finish_flush(job)
        assert log.recovery_point <= 5

    def test_a_flush_of_a_deleted_partition_has_no_effect(self, directory: Path) -> None:
        log = small_log(directory)
        job = log.prepare_flush()
        assert job is not None
        directory.rename(directory.with_name("gone"))
        job.run()
        assert log.log_directory.is_online

    def test_due_by_time_or_by_sealed_segments(self, directory: Path) -> None:
        clock = ManualClock(START_MS)
        log = open_log(OsFiles(), directory, LogConfig(flush_ms=100), clock=clock)
        append(log, batch())
        assert not log.flush_is_due(clock.now_ms() + 99)
        assert log.flush_is_due(clock.now_ms() + 100)
        log.flush()
        assert not log.flush_is_due(clock.now_ms() + 100)
        append(log, batch())
        log.roll()
        assert log.flush_is_due(clock.now_ms())


def test_a_closed_log_raises(directory: Path) -> None:
    log = open_log(OsFiles(), directory, ROOMY)
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        append(log, batch())
    with pytest.raises(StorageError, match="is closed"):
        log.read(0, 1)


def test_names_its_partition(directory: Path) -> None:
    assert repr(open_log(OsFiles(), directory)) == f"Log({PARTITION}, 0..0)"
