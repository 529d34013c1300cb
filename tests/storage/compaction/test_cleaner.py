import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.files import OsFiles
from rookery.base.types import TopicPartition
from rookery.records.batch import HEADER_SIZE, Codec, iterate_headers, read_header
from rookery.records.batch import seal as seal_batch
from rookery.records.record import Record, build_batch
from rookery.storage.checkpoints import read_offsets
from rookery.storage.compaction.cleaner import Cleaner
from rookery.storage.compaction.dedupe import ENTRY_SIZE_BYTES
from rookery.storage.compaction.task import CLEANER_CHECKPOINT_FILE, CleanerSettings
from rookery.storage.log import Log
from rookery.storage.names import STAGE_SUFFIXES
from tests.storage.cleaning import (
    COMPACT,
    PARTITION,
    append,
    clean,
    finish,
    fold,
    make_cleaner,
    open_log,
    read_records,
    seal,
)

_DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    opened = open_log(OsFiles(), tmp_path, clock)
    yield opened
    opened.close()


def _values(log: Log, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_records(log, offset)]


def _reopen(log: Log, clock: ManualClock) -> Log:
    log.close()
    return open_log(OsFiles(), log.directory.parent, clock, log.config, recovery_point=log.recovery_point)


def test_latest_values_stay_at_their_offsets(log: Log, clock: ManualClock) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", b"2"))
    seal(log)
    append(log, (b"c", b"1"), (b"b", b"2"), codec=Codec.LZ4)
    seal(log)
    append(log, (b"a", b"active"))
    task = clean(make_cleaner(log))
    assert task is not None
    assert task.clean_end_offset == 5
    expected = [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"active")]
    assert _values(log) == expected
    assert (log.start_offset, log.end_offset) == (0, 6)
    assert _values(_reopen(log, clock)) == expected


def test_reading_from_every_offset_returns_what_is_left_from_there(log: Log) -> None:
    original = []
    for round_number in range(20):
        original += append(log, *((b"%d" % key, b"%d" % round_number) for key in range(round_number % 5 + 1)))
        if round_number % 4 == 3:
            seal(log)
    clean(make_cleaner(log))
    for offset in range(log.end_offset):
        assert fold(read_records(log, offset)) == fold(record for record in original if record.offset >= offset)


def test_small_segments_become_one(log: Log) -> None:
    for number in range(6):
        append(log, (b"%d" % number, b"value"))
        seal(log)
    task = clean(make_cleaner(log))
    assert task is not None
    assert (task.stats.segments_before, task.stats.segments_after) == (6, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert not [name for name in log.files.list_directory(log.directory) if name.endswith(STAGE_SUFFIXES)]


def test_joined_segments_stay_within_segment_bytes(log: Log) -> None:
    for number in range(6):
        append(log, (b"%d" % number, bytes(100)))
        seal(log)
    size = log.segments[0].size_bytes
    log.update_config(replace(COMPACT, segment_bytes=2 * size))
    clean(make_cleaner(log))
    assert [segment.size_bytes for segment in log.segments[:-1]] == [2 * size] * 3


def test_second_cleaning_has_nothing_to_do(log: Log) -> None:
    append(log, (b"a", b"1"), (b"b", None))
    seal(log)
    append(log, (b"a", b"2"))
    seal(log)
    cleaner = make_cleaner(log)
    assert clean(cleaner) is not None
    assert clean(cleaner) is None
    # Without its checkpoint the cleaner does the work again, with the same result.
    before = [part.read_at(0, 1 << 20) for part in (segment.file for segment in log.segments)]
    log.files.remove(log.directory.parent / CLEANER_CHECKPOINT_FILE)
    assert clean(make_cleaner(log)) is not None
    assert [part.read_at(0, 1 << 20) for part in (segment.file for segment in log.segments)] == before


def test_checkpoint_is_read_at_the_next_start(log: Log, clock: ManualClock) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    assert clean(make_cleaner(log)) is not None
    path = log.directory.parent / CLEANER_CHECKPOINT_FILE
    assert read_offsets(log.files, path) == {PARTITION: 2}
    again = _reopen(log, clock)
    assert make_cleaner(again).dirty_range(again).first_dirty_offset == 2
    path.write_bytes(b"garbage")
    assert make_cleaner(again).dirty_range(again).first_dirty_offset == 0


def test_checkpoint_of_a_deleted_topic_is_not_used_for_its_successor(log: Log, clock: ManualClock) -> None:
    other = open_log(OsFiles(), log.directory.parent, clock, partition=TopicPartition("other", 0))
    cleaner = make_cleaner(log, other)
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    assert clean(cleaner) is not None
    log.topic_id = UUID(int=8)
    append(other, (b"a", b"1"))
    seal(other)
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=1))
    assert clean(cleaner) is not None
    assert read_offsets(log.files, log.directory.parent / CLEANER_CHECKPOINT_FILE) == {other.partition: 1}
    other.close()


def test_dirty_ratio_decides(log: Log) -> None:
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    cleaner = make_cleaner(log)
    for number in range(4):
        append(log, (b"%d" % number, bytes(100)))
        seal(log)
    assert clean(cleaner) is not None
    append(log, (b"x", bytes(100)))
    seal(log)
    assert clean(cleaner) is None
    for number in range(4):
        append(log, (b"y%d" % number, bytes(100)))
        seal(log)
    assert clean(cleaner) is not None


def test_the_dirtiest_log_comes_first(tmp_path: Path, clock: ManualClock) -> None:
    logs = [open_log(OsFiles(), tmp_path, clock, partition=TopicPartition("table", index)) for index in range(3)]
    cleaner = make_cleaner(*logs)
    for log in logs:
        append(log, (b"a", bytes(500)))
        seal(log)
    for _ in logs:
        assert clean(cleaner) is not None
    for log, size in zip(logs, (100, 400, 200), strict=True):
        append(log, (b"b", bytes(size)))
        seal(log)
    chosen = [clean(cleaner) for _ in logs]
    assert [task.log.partition.partition for task in chosen if task is not None] == [1, 2, 0]


def test_a_log_that_is_being_cleaned_is_not_chosen_again(log: Log) -> None:
    append(log, (b"a", b"1"))
    seal(log)
    cleaner = make_cleaner(log)
    task = cleaner.choose()
    assert task is not None
    assert cleaner.choose() is None
    task.abort()
    assert cleaner.choose() is not None


def test_a_log_that_is_not_compacted_is_not_cleaned(log: Log) -> None:
    log.update_config(replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    assert make_cleaner(log).choose() is None


def test_compaction_and_retention_work_on_the_same_log(log: Log, clock: ManualClock) -> None:
    log.update_config(replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=_DAY_MS))
    cleaner = make_cleaner(log)
    append(log, (b"old", b"1"), (b"a", b"1"))
    seal(log)
    append(log, (b"a", b"2"))
    seal(log)
    clean(cleaner)
    clock.advance(_DAY_MS + 1)
    append(log, (b"a", b"3"), (b"b", b"1"))
    seal(log)
    log.apply_retention(clock.now_ms())
    assert log.start_offset == 3
    assert clean(cleaner) is not None
    assert _values(log, log.start_offset) == [(3, b"a", b"3"), (4, b"b", b"1")]


def test_min_compaction_lag(log: Log, clock: ManualClock) -> None:
    log.update_config(replace(COMPACT, min_compaction_lag_ms=1000))
    cleaner = make_cleaner(log)
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    assert clean(cleaner) is None
    clock.advance(1001)
    append(log, (b"a", b"3"))
    seal(log)
    assert clean(cleaner) is not None
    assert _values(log) == [(1, b"a", b"2"), (2, b"a", b"3")]


def test_max_compaction_lag(log: Log, clock: ManualClock) -> None:
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    cleaner = make_cleaner(log)
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    assert clean(cleaner) is None
    clock.advance(1001)
    assert clean(cleaner) is not None
    assert _values(log) == [(1, b"a", b"2")]


def test_cleaning_stops_at_the_high_watermark_and_at_the_recovery_point(log: Log, clock: ManualClock) -> None:
    append(log, (b"a", b"1"))
    seal(log)
    append(log, (b"a", b"2"))
    log.roll()
    cleaner = make_cleaner(log)
    assert cleaner.dirty_range(log).end_offset == 1
    log.flush()
    assert cleaner.dirty_range(log).end_offset == 2
    lagging = Cleaner(lambda: [log], clock, high_watermark=lambda _: 1)
    assert lagging.dirty_range(log).end_offset == 1


def test_cleaning_stops_at_an_open_transaction(log: Log) -> None:
    append(log, (b"a", b"1"))
    seal(log)
    batch = build_batch(
        [Record(0, log.clock.now_ms(), b"a", b"2")],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append(batch, read_header(batch), leader_epoch=0)
    seal(log)
    assert make_cleaner(log).dirty_range(log).end_offset == 1


def test_tombstone_stays_for_delete_retention(log: Log, clock: ManualClock) -> None:
    log.update_config(replace(COMPACT, delete_retention_ms=_DAY_MS))
    cleaner = make_cleaner(log)
    append(log, (b"a", b"1"), (b"b", b"1"))
    seal(log)
    append(log, (b"a", None))
    seal(log)
    clean(cleaner)
    assert _values(log) == [(1, b"b", b"1"), (2, b"a", None)]
    clock.advance(_DAY_MS - 1)
    append(log, (b"c", b"1"))
    seal(log)
    clean(cleaner)
    assert (2, b"a", None) in _values(log)
    clock.advance(1)
    append(log, (b"d", b"1"))
    seal(log)
    clean(cleaner)
    assert _values(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_map_that_is_too_small_takes_several_passes(log: Log) -> None:
    original = []
    for round_number in range(3):
        for key in range(12):
            original += append(log, (b"%d" % key, b"%d" % round_number))
        seal(log)
    cleaner = make_cleaner(log, memory_bytes=5 * ENTRY_SIZE_BYTES)
    ends = []
    while (task := clean(cleaner)) is not None:
        ends.append(task.clean_end_offset)
        assert fold(read_records(log)) == fold(original)
    assert ends == sorted(set(ends))
    assert len(ends) > 5
    assert ends[-1] == 36
    assert [record.offset for record in read_records(log)] == list(range(24, 36))


def test_producers_last_sequence_survives_cleaning(log: Log, clock: ManualClock) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"), producer=(9, 0))
    append(log, (b"a", b"2"), (b"b", b"2"), producer=(9, 2))
    append(log, (b"a", b"3"), (b"b", b"3"))
    seal(log)
    clean(make_cleaner(log))
    data = log.segments[0].file.read_at(0, 1 << 20)
    left = [(header.producer_id, header.last_sequence, header.record_count) for _, header in iterate_headers(data)]
    assert left == [(9, 3, 0), (-1, -1, 2)]
    # Even if every snapshot of the producers is lost, the log has their sequence numbers.
    log.close()
    for name in log.files.list_directory(log.directory):
        if name.endswith(".snapshot"):
            log.files.remove(log.directory / name)
    again = open_log(OsFiles(), log.directory.parent, clock)
    state = again.producers.get(9)
    assert state is not None
    assert state.last_sequence == 3


def test_offsets_by_timestamp_with_emptied_batches(log: Log, clock: ManualClock) -> None:
    early_ms = clock.now_ms()
    append(log, (b"a", b"1"))
    clock.advance(10)
    append(log, (b"b", b"1"), producer=(9, 0))
    batch = build_batch([Record(0, early_ms + 5, b"b", b"2")])
    log.append(batch, read_header(batch), leader_epoch=0)
    seal(log)
    clean(make_cleaner(log))
    assert [record.offset for record in read_records(log)] == [0, 2]
    latest = log.max_timestamp_offset()
    assert latest is not None
    assert (latest.offset, latest.timestamp_ms) == (2, early_ms + 5)
    found = log.offset_for_timestamp(early_ms + 1)
    assert found is not None
    assert found.offset == 2
    assert log.offset_for_timestamp(early_ms + 6) is None


def test_log_that_was_truncated_meanwhile_discards_the_result(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    append(log, (b"a", b"3"))
    seal(log)
    cleaner = make_cleaner(log)
    task = cleaner.choose()
    assert task is not None
    task.run()
    task.finish()
    task.run()
    log.truncate_to(2)
    cleaner.note_truncation(log.partition, 2)
    seal(log)
    task.finish()
    assert task.is_done
    assert _values(log) == [(0, b"a", b"1"), (1, b"a", b"2")]
    assert not [name for name in log.files.list_directory(log.directory) if name.endswith(STAGE_SUFFIXES)]
    assert clean(cleaner) is not None
    assert _values(log) == [(1, b"a", b"2")]


def test_records_after_a_truncation_are_dirty(log: Log) -> None:
    append(log, (b"a", b"1"))
    append(log, (b"b", b"1"))
    seal(log)
    cleaner = make_cleaner(log)
    clean(cleaner)
    log.truncate_to(1)
    cleaner.note_truncation(log.partition, 1)
    append(log, (b"a", b"2"))
    seal(log)
    assert cleaner.dirty_range(log).first_dirty_offset == 1
    assert clean(cleaner) is not None
    assert _values(log) == [(1, b"a", b"2")]


def test_log_that_was_deleted_meanwhile_discards_the_result(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    task = make_cleaner(log).choose()
    assert task is not None
    task.run()
    task.finish()
    log.files.rename(log.directory, log.directory.with_name("table-0.0-delete"))
    log.abandon()
    finish(task)
    assert not log.directory.exists()
    assert log.log_directory.is_online


def test_retention_that_removes_a_source_meanwhile(log: Log, clock: ManualClock) -> None:
    policy = frozenset({"compact", "delete"})
    log.update_config(replace(COMPACT, cleanup_policy=policy, retention_ms=1000))
    append(log, (b"a", b"1"))
    seal(log)
    task = make_cleaner(log).choose()
    assert task is not None
    task.run()
    task.finish()
    clock.advance(5000)
    log.apply_retention(clock.now_ms())
    for path in log.take_detached_files():
        log.files.remove(path)
    finish(task)
    assert log.log_directory.is_online
    assert [segment.base_offset for segment in log.segments] == [1]


def test_unreadable_batch_makes_the_log_uncleanable_and_nothing_changes(log: Log) -> None:
    batch = build_batch([Record(0, 1, b"a", b"1")], codec=Codec.GZIP)
    invalid = seal_batch(read_header(batch), b"garbage")
    log.append(invalid, read_header(invalid), leader_epoch=0)
    seal(log)
    cleaner = make_cleaner(log)
    task = clean(cleaner)
    assert task is not None
    assert clean(cleaner) is None
    assert log.log_directory.is_online
    assert log.segments[0].file.read_at(0, 1 << 20)[HEADER_SIZE:] == b"garbage"


def test_damaged_batch_does_not_get_a_new_checksum(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    path = log.segments[0].path()
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    cleaner = make_cleaner(log)
    assert clean(cleaner) is not None
    assert clean(cleaner) is None
    assert path.read_bytes() == damaged


def test_max_compaction_lag_seals_segments(log: Log, clock: ManualClock) -> None:
    log.update_config(replace(COMPACT, max_compaction_lag_ms=1000))
    append(log, (b"a", b"1"))
    clock.advance(1001)
    append(log, (b"a", b"2"))
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_io_error_takes_the_directory_offline(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    cleaner = make_cleaner(log)
    task = cleaner.choose()
    assert task is not None
    task.run()
    task.finish()
    log.directory.rename(log.directory.with_name("gone"))
    task.run()
    task.finish()
    assert task.is_done
    assert not log.log_directory.is_online
    assert cleaner.choose() is None


def test_bomb_in_the_log_is_not_decompressed(log: Log, clock: ManualClock) -> None:
    append(log, (b"a", bytes(1 << 20)), codec=Codec.GZIP)
    seal(log)
    cleaner = Cleaner(lambda: [log], clock, lambda: CleanerSettings(decompressed_size_max=1 << 16))
    assert clean(cleaner) is not None
    assert clean(cleaner) is None
    assert len(read_records(log)) == 1


def test_clean_one_on_the_event_loop(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    cleaner = make_cleaner(log)

    async def run() -> list[bool]:
        return [await cleaner.clean_one(), await cleaner.clean_one()]

    assert asyncio.run(run()) == [True, False]
    assert _values(log) == [(1, b"a", b"2")]


def test_cancelled_cleaning_leaves_no_files(log: Log) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    cleaner = make_cleaner(log)

    async def run() -> None:
        work = asyncio.create_task(cleaner.clean_one())
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(run())
    assert not [name for name in log.files.list_directory(log.directory) if name.endswith(STAGE_SUFFIXES)]
    assert clean(cleaner) is not None


def test_flush_skips_segments_that_were_replaced(log: Log) -> None:
    """Flushed while active and rolled later, a segment still waits for the sync of its indexes when replaced."""
    append(log, (b"a", b"1"), (b"a", b"2"), producer=(7, 0))
    log.flush()
    log.roll()
    append(log, (b"a", b"3"))
    log.flush()
    log.roll()
    append(log, (b"b", b"1"))
    assert clean(make_cleaner(log)) is not None
    log.flush()
    assert log.recovery_point == log.end_offset
