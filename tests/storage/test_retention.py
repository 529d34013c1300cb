"""The decisions of retention, without any files."""

from typing import NamedTuple

import pytest

from rookery.storage.config import LogConfig
from rookery.storage.retention import count_expired

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


class Facts(NamedTuple):
    base_offset: int
    size_bytes: int
    max_timestamp_ms: int


def log(*ages_in_days: int, size_bytes: int = 100) -> list[Facts]:
    """Make segments of ten offsets each, oldest first; the last one is active."""
    return [Facts(10 * slot, size_bytes, NOW_MS - age * DAY_MS) for slot, age in enumerate(ages_in_days)]


def expired(segments: list[Facts], *, start_offset: int = 0, stable_offset: int | None = None, **config: object) -> int:
    end_offset = 10 * len(segments)
    defaults: dict[str, object] = {"retention_ms": -1}
    return count_expired(
        segments,
        LogConfig(**(defaults | config)),  # type: ignore[arg-type]  # the tests name a few of many fields
        start_offset=start_offset,
        stable_offset=end_offset if stable_offset is None else stable_offset,
        end_offset=end_offset,
        now_ms=NOW_MS,
    )


def test_by_time_from_the_oldest_on() -> None:
    assert expired(log(9, 8, 7, 1), retention_ms=7 * DAY_MS) == 2
    assert expired(log(9, 1, 9, 1), retention_ms=7 * DAY_MS) == 1
    assert expired(log(9, 8), retention_ms=7 * DAY_MS) == 2
    assert expired(log(9, 8), retention_ms=-1) == 0


def test_by_size_never_the_active_segment() -> None:
    assert expired(log(1, 1, 1, 1), retention_bytes=200) == 2
    assert expired(log(1, 1, 1, 1), retention_bytes=201) == 1
    assert expired(log(1, 1, 1, 1), retention_bytes=0) == 3
    assert expired(log(1, 1), retention_bytes=-1) == 0


def test_both() -> None:
    assert expired(log(9, 8, 1, 1), retention_ms=7 * DAY_MS, retention_bytes=100) == 3
    assert expired(log(9, 8, 1, 1), retention_ms=7 * DAY_MS, retention_bytes=300) == 2


def test_below_the_start_offset_whatever_the_policy() -> None:
    compacted = frozenset({"compact"})
    assert expired(log(1, 1, 1), start_offset=19, cleanup_policy=compacted) == 1
    assert expired(log(1, 1, 1), start_offset=30, cleanup_policy=compacted) == 2
    assert expired(log(9, 9, 9), cleanup_policy=compacted, retention_ms=1, retention_bytes=1) == 0
    assert expired(log(9, 9, 9), cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1) == 3


@pytest.mark.parametrize(("stable_offset", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_nothing_beyond_the_high_watermark(stable_offset: int, count: int) -> None:
    assert expired(log(9, 9, 9), stable_offset=stable_offset, retention_ms=1) == count


def test_records_without_timestamps_never_expire() -> None:
    assert expired([Facts(0, 100, -1), Facts(10, 100, -1)], retention_ms=1) == 0


def test_an_empty_active_segment_stays() -> None:
    assert expired([Facts(0, 100, 1), Facts(10, 0, -1)], retention_ms=1) == 1
