"""From samples to lags: seconds, trends, statuses, and retention."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.lag import ClusterSample, GroupLag, LagHistory, ObservedLag, PartitionSample, Status, Unread
from rookery.lag.samples import NOTHING_UNREAD
from tests.lag.factories import TP, cluster, partition

NOW_MS = 1_700_000_000_000
WINDOW_MS = 60_000


def only(sample: ClusterSample) -> ObservedLag:
    (group,) = LagHistory(WINDOW_MS).add(sample).groups
    (found,) = group.partitions
    return found


def after(samples: list[ClusterSample]) -> GroupLag:
    history = LagHistory(WINDOW_MS)
    reports = [history.add(sample) for sample in samples]
    (group,) = reports[-1].groups
    return group


def test_seconds_are_the_age_of_the_first_unread_record() -> None:
    found = only(cluster(NOW_MS, partition(10, 25, unread=Unread(12, NOW_MS - 192_000))))
    assert (found.lag, found.lag_s) == (15, 192.0)


@pytest.mark.parametrize(
    ("sample", "lag", "lag_s"),
    [
        (partition(25, 25), 0, 0.0),
        (partition(30, 25), 0, 0.0),
        (partition(20, 25, unread=NOTHING_UNREAD), 5, 0.0),
        (partition(20, 25, unread=Unread(20, NOW_MS + 5_000)), 5, 0.0),
        (partition(20, 25, unread=Unread(20, -1)), 5, None),
        (partition(20, 25, unread=None), 5, None),
        (partition(None, 25), None, None),
        (PartitionSample(partition=TP, committed=3, span=None), None, None),
    ],
)
def test_seconds_without_an_age(sample: PartitionSample, lag: int | None, lag_s: float | None) -> None:
    found = only(cluster(NOW_MS, sample))
    assert (found.lag, found.lag_s) == (lag, lag_s)


def test_retention_threatens_the_first_unread_record() -> None:
    unread = Unread(10, NOW_MS - 3_000)
    assert only(cluster(NOW_MS, partition(10, 25, unread=unread), retention_ms=10_000)).expires_s == 7.0
    assert only(cluster(NOW_MS, partition(10, 25, unread=unread), retention_ms=1_000)).expires_s == 0.0
    assert only(cluster(NOW_MS, partition(10, 25, unread=unread))).expires_s is None
    assert only(cluster(NOW_MS, partition(25, 25), retention_ms=1_000)).expires_s is None


def test_offsets_that_retention_has_deleted_are_lost() -> None:
    found = only(cluster(NOW_MS, partition(10, 50, start=40, unread=Unread(40, NOW_MS - 1000))))
    assert (found.lag, found.lost, found.lag_s) == (40, 30, 1.0)


def series(*offsets: tuple[int, int], members: int, step_ms: int = 10_000) -> list[ClusterSample]:
    """Samples with (committed, end), ten seconds apart."""
    return [
        cluster(index * step_ms, partition(committed, end, unread=Unread(committed, 0)), members=members)
        for index, (committed, end) in enumerate(offsets)
    ]


def test_a_status_needs_a_full_window() -> None:
    offsets = [(10, 100 + index) for index in range(7)]
    assert after(series(*offsets[:6], members=1)).status is None
    assert after(series(*offsets, members=1)).status is Status.STALL


def test_nothing_to_read_is_fine_at_once() -> None:
    assert after(series((10, 10), members=1)).status is Status.OK


@pytest.mark.parametrize("members", [0, 3])
def test_progress_that_is_slower_than_the_writers(members: int) -> None:
    group = after(series(*[(index * 5, 100 + index * 10) for index in range(7)], members=members))
    assert group.status is Status.WARNING
    assert group.trend == pytest.approx(0.5)
    assert group.catch_up_s == math.inf


def test_a_group_without_members_that_commits_nothing_has_stopped() -> None:
    assert after(series(*[(10, 100)] * 7, members=0)).status is Status.STOP


def test_a_group_without_members_that_commits_is_fine() -> None:
    """As a Spark query does: it commits after each micro-batch, and joins no group."""
    offsets = [(10, 100), (10, 110), (60, 120), (60, 130), (110, 140), (110, 150), (140, 160)]
    assert after(series(*offsets, members=0)).status is Status.OK


def test_caught_up_in() -> None:
    group = after(series(*[(index * 20, 200 + index * 10) for index in range(7)], members=1))
    assert group.trend == pytest.approx(-1.0)
    assert group.lag == 140
    assert group.catch_up_s == pytest.approx(140.0)


def test_a_reset_is_shown_as_rewound() -> None:
    offsets = [(50, 100), (60, 105), (5, 110), (6, 115), (7, 120), (8, 125), (9, 130)]
    assert after(series(*offsets, members=1)).status is Status.REWIND


def test_sums_of_a_group() -> None:
    other = TopicPartition("orders", 1)
    sample = cluster(
        NOW_MS,
        partition(10, 25, unread=Unread(10, NOW_MS - 5_000)),
        partition(1, 2, tp=other, unread=Unread(1, NOW_MS - 9_000)),
        partition(None, 1000, tp=TopicPartition("orders", 2)),
    )
    (group,) = LagHistory(WINDOW_MS).add(sample).groups
    assert (group.lag, group.lag_s, group.lost) == (16, 9.0, 0)


def test_seconds_of_a_group_are_unknown_if_those_of_a_partition_are() -> None:
    sample = cluster(NOW_MS, partition(10, 25, unread=Unread(10, NOW_MS)), partition(1, 2, tp=TopicPartition("o", 1)))
    (group,) = LagHistory(WINDOW_MS).add(sample).groups
    assert group.lag_s is None


def test_partitions_that_disappear_are_forgotten() -> None:
    history = LagHistory(WINDOW_MS)
    history.add(cluster(0, partition(0, 10)))
    history.add(cluster(1000))
    report = history.add(cluster(2000, partition(5, 10)))
    assert report.groups[0].partitions[0].rates is None


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_memory_and_the_window_are_bounded(steps: list[tuple[int, int, int]]) -> None:
    """The observations always cover the window once, and never two windows more than a step."""
    history = LagHistory(WINDOW_MS)
    at_ms = committed = end = 0
    for pause_ms, read, written in steps:
        at_ms, end = at_ms + pause_ms, end + written
        committed = min(end, committed + read)
        history.add(cluster(at_ms, partition(committed, end)))
        (seen,) = history._observations.values()
        assert at_ms - seen[0].point.at_ms <= WINDOW_MS + 30_000
        assert all(each.point.at_ms > at_ms - WINDOW_MS for each in seen[1:])
