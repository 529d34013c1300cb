"""Comparing two logs by offsets and epochs."""

import pytest

from rookery.quorum.log_view import VALID, Comparison, Diverging, LogPosition, LogView, SnapshotNeeded
from rookery.storage.checkpoints import EpochStart
from rookery.storage.epochs import LeaderEpochs


def log(*epochs: tuple[int, int], end: int, start: LogPosition | None = None) -> LogView:
    entries = LeaderEpochs(EpochStart(epoch, offset) for epoch, offset in epochs)
    at = start or LogPosition(0, 0)
    return LogView(entries, end_offset=end, start=at, snapshot=at)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, VALID),
        (5, 1, VALID),
        (10, 1, VALID),
        (12, 1, Diverging(LogPosition(1, 10))),
        (15, 3, VALID),
        (20, 3, VALID),
        (12, 2, Diverging(LogPosition(1, 10))),
        (25, 3, Diverging(LogPosition(3, 20))),
        (20, 4, Diverging(LogPosition(3, 20))),
    ],
)
def test_a_whole_log(offset: int, epoch: int, expected: Comparison) -> None:
    assert log((1, 0), (3, 10), end=20).compare(offset, epoch) == expected


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, SnapshotNeeded(LogPosition(2, 100))),
        (99, 2, SnapshotNeeded(LogPosition(2, 100))),
        (100, 1, SnapshotNeeded(LogPosition(2, 100))),
        (100, 2, VALID),
        (110, 1, SnapshotNeeded(LogPosition(2, 100))),
        (110, 2, VALID),
        (115, 3, VALID),
    ],
)
def test_a_log_after_a_snapshot(offset: int, epoch: int, expected: Comparison) -> None:
    assert log((2, 100), (3, 112), end=120, start=LogPosition(2, 100)).compare(offset, epoch) == expected


def test_a_log_with_nothing_after_its_snapshot() -> None:
    view = log(end=100, start=LogPosition(2, 100))
    assert view.end == LogPosition(2, 100)
    assert view.compare(100, 2) == VALID
    assert view.compare(101, 2) == Diverging(LogPosition(2, 100))


def test_what_takes_the_place_of_truncated_records_is_not_synced() -> None:
    view = log((1, 0), end=10)
    assert view.synced_offset == 10
    view.truncate(4)
    view.append(2, 3)
    assert (view.end_offset, view.synced_offset) == (7, 4)
    view.synced(10)
    assert view.synced_offset == 7, "a sync that began before the truncation"
