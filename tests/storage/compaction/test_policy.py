from dataclasses import dataclass, replace

from rookery.storage.compaction.policy import CleanableRange, can_merge, cleanable_range, first_dirty_offset
from rookery.storage.config import LogConfig

_NOW_MS = 1_700_000_000_000
_CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


@dataclass
class FakeSegment:
    base_offset: int
    size_bytes: int = 100
    first_timestamp_ms: int = _NOW_MS - 1000
    max_timestamp_ms: int = _NOW_MS - 1000


def _segments(*bases: int) -> list[FakeSegment]:
    return [FakeSegment(base) for base in bases]


def _range(
    segments: list[FakeSegment], config: LogConfig = _CONFIG, *, first_dirty: int = 0, stable_offset: int = 10**9
) -> CleanableRange:
    return cleanable_range(segments, config, first_dirty=first_dirty, stable_offset=stable_offset, now_ms=_NOW_MS)


def test_checkpoint_outside_the_log_makes_all_of_it_dirty() -> None:
    assert first_dirty_offset(None, start_offset=5, end_offset=20) == 5
    assert first_dirty_offset(4, start_offset=5, end_offset=20) == 5
    assert first_dirty_offset(21, start_offset=5, end_offset=20) == 5
    assert first_dirty_offset(20, start_offset=5, end_offset=20) == 20


def test_the_active_segment_is_never_cleaned() -> None:
    found = _range(_segments(0, 10, 20))
    assert (found.first_dirty_offset, found.end_offset, found.dirty_bytes) == (0, 20, 200)
    assert _range(_segments(0)).dirty_bytes == 0


def test_dirty_ratio_counts_whole_segments() -> None:
    found = _range(_segments(0, 10, 20, 30, 40), first_dirty=30)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (300, 100, 0.25)
    assert not found.is_due(0.25)
    assert found.is_due(0.24)
    # A segment that was partially cleaned is dirty.
    assert _range(_segments(0, 10, 20, 30, 40), first_dirty=25).dirty_bytes == 200


def test_nothing_dirty_is_never_due() -> None:
    found = _range(_segments(0, 10, 20), first_dirty=20)
    assert (found.end_offset, found.dirty_bytes, found.dirty_ratio) == (20, 0, 0.0)
    assert not found.is_due(0.0)
    assert _range(_segments(0, 10, 20), first_dirty=25).end_offset == 25


def test_cleaning_stops_at_the_segment_of_the_stable_offset() -> None:
    assert _range(_segments(0, 10, 20, 30), stable_offset=20).end_offset == 20
    assert _range(_segments(0, 10, 20, 30), stable_offset=19).end_offset == 10
    assert _range(_segments(0, 10, 20, 30), stable_offset=5).dirty_bytes == 0


def test_min_compaction_lag_protects_young_segments() -> None:
    segments = _segments(0, 10, 20, 30)
    segments[1].max_timestamp_ms = _NOW_MS - 100
    config = replace(_CONFIG, min_compaction_lag_ms=100)
    assert _range(segments, config).end_offset == 30
    segments[1].max_timestamp_ms += 1
    assert _range(segments, config).end_offset == 10


def test_max_compaction_lag_forces_a_log_that_is_not_dirty_enough() -> None:
    segments = _segments(0, 10, 20, 30)
    config = replace(_CONFIG, max_compaction_lag_ms=500)
    segments[2].first_timestamp_ms = _NOW_MS - 500
    assert not _range(segments, config, first_dirty=20).is_due(0.9)
    segments[2].first_timestamp_ms = _NOW_MS - 501
    assert _range(segments, config, first_dirty=20).is_due(0.9)
    # Clean segments are old and do not matter, and neither does a log that has nothing to clean.
    assert not _range(segments, config, first_dirty=30).is_due(0.0)


def _fits(segment: FakeSegment, config: LogConfig, *, size_bytes: int, end_offset: int = 30) -> bool:
    return can_merge(segment, config, base_offset=0, size_bytes=size_bytes, end_offset=end_offset)


def test_small_neighbours_are_merged() -> None:
    config = replace(_CONFIG, segment_bytes=100)
    assert _fits(FakeSegment(10, 40), config, size_bytes=60)
    assert not _fits(FakeSegment(10, 40), config, size_bytes=61)


def test_merged_segments_stay_within_the_capacity_of_an_index() -> None:
    config = replace(_CONFIG, index_interval_bytes=1000, segment_index_bytes=12 * 21)
    assert _fits(FakeSegment(10, 10_000), config, size_bytes=10_000)
    assert not _fits(FakeSegment(10, 10_000), config, size_bytes=11_000)
    assert _fits(FakeSegment(10), _CONFIG, size_bytes=0, end_offset=2**31)
    assert not _fits(FakeSegment(10), _CONFIG, size_bytes=0, end_offset=2**31 + 1)
