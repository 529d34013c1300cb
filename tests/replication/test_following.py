"""A follower's decisions: what it fetches, which answers count, and where it truncates."""

from collections.abc import Callable

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.protocol.fetch_session import SessionRow
from rookery.replication.following import (
    Following,
    NewStart,
    Position,
    Reaction,
    backoff_s,
    place_after_out_of_range,
    react,
    truncation_offset,
)
from tests.storage.samples import TOPIC_ID

_TP = TopicPartition("orders", 0)
_AT_10 = Position(end_offset=10, last_epoch=3, start_offset=2, high_watermark=8)


def follow() -> Following:
    following = Following(backoff_s=1.0)
    following.start(_TP, TOPIC_ID, 4)
    return following


def rows(
    following: Following, now_s: float, position_of: Callable[[TopicPartition], Position | None]
) -> dict[TopicPartition, SessionRow]:
    following.settle(following.unsettled, now_s, 1000, position_of)
    return following.rows()


def test_a_fetch_says_where_the_log_ends_and_what_is_known() -> None:
    (row,) = rows(follow(), 0.0, lambda _: _AT_10).values()
    assert row.topic_id == TOPIC_ID
    assert row.row == (0, 10, 1000, 4, 3, 2, row.row.replica_directory_id, 8)
    assert rows(follow(), 0.0, lambda _: None) == {}


def test_an_answer_counts_only_for_the_same_log_and_epoch() -> None:
    following = follow()
    (asked,) = rows(following, 0.0, lambda _: _AT_10).values()
    assert following.matches(_TP, asked, _AT_10)
    assert not following.matches(_TP, asked, _AT_10._replace(end_offset=11))
    assert not following.matches(_TP, asked, _AT_10._replace(last_epoch=4))
    following.start(_TP, TOPIC_ID, 5)
    assert not following.matches(_TP, asked, _AT_10)
    following.stop(_TP)
    assert not following.matches(_TP, asked, _AT_10)


def test_a_partition_that_is_stopped_between_two_slices_is_not_fetched() -> None:
    following = follow()
    unsettled = following.unsettled
    following.stop(_TP)
    following.settle(unsettled, 0.0, 1000, lambda _: _AT_10)
    assert following.rows() == {}


def test_errors_delay_a_partition_longer_each_time_until_it_succeeds() -> None:
    following = follow()
    following.back_off(_TP, 100.0)
    assert rows(following, 100.01, lambda _: _AT_10) == {}
    assert following.wait_s(100.01) == pytest.approx(0.01)
    assert rows(following, 100.02, lambda _: _AT_10)
    following.back_off(_TP, 200.0)
    assert following.wait_s(200.0) == pytest.approx(0.04)
    following.succeeded(_TP)
    following.back_off(_TP, 300.0)
    assert following.wait_s(300.0) == pytest.approx(0.02)
    assert backoff_s(50, 1.0) == 1.0


def test_a_parked_partition_waits_for_a_new_epoch() -> None:
    following = follow()
    following.park(_TP)
    assert rows(following, 1e9, lambda _: _AT_10) == {}
    assert following.wait_s(0.0) == float("inf")
    assert not following.follows(_TP, 4)
    following.start(_TP, TOPIC_ID, 5)
    assert rows(following, 0.0, lambda _: _AT_10)


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Reaction.FIND_OFFSETS),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.PARK),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Reaction.RETRY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Reaction.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_ID, Reaction.RETRY),
        (ErrorCode.INCONSISTENT_TOPIC_ID, Reaction.RETRY),
        (ErrorCode.KAFKA_STORAGE_ERROR, Reaction.RETRY),
    ],
)
def test_reactions(code: ErrorCode, reaction: Reaction) -> None:
    assert react(code) is reaction


@pytest.mark.parametrize(
    ("leader", "own", "end", "expected"),
    [
        # The leader's epoch ends earlier, later, and beyond the end of this log.
        ((3, 8), (3, 12), 12, 8),
        ((3, 8), (3, 5), 12, 5),
        ((3, 80), (3, 70), 12, 12),
        # This log does not have the leader's epoch: back to the end of the newest one before it.
        ((3, 8), (2, 4), 12, 4),
        # This log has no epochs at all.
        ((3, 8), (-1, -1), 12, 8),
    ],
)
def test_truncation(leader: tuple[int, int], own: tuple[int, int], end: int, expected: int) -> None:
    assert truncation_offset(*leader, own, end) == expected


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "end", "expected"),
    [
        (0, 5, 9, NewStart(5, is_restart=False)),
        (20, 30, 9, NewStart(20, is_restart=True)),
        (0, 30, 9, None),
        (9, 9, 9, None),
    ],
)
def test_out_of_range(leader_start: int, leader_end: int, end: int, expected: NewStart | None) -> None:
    assert place_after_out_of_range(leader_start, leader_end, end) == expected
