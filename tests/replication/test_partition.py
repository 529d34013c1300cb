"""The high watermark, and the checks of leader epochs and followers, as a table of situations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.replication.partition import Partition

_TP = TopicPartition("orders", 0)


def make(*, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] | None = None, leader: int = 1) -> Partition:
    partition = Partition(_TP, NO_TOPIC_ID, node_id=1)
    partition.set_leader(leader, leader_epoch=5, partition_epoch=9, replicas=replicas or isr, isr=isr)
    return partition


def test_one_replica_commits_immediately() -> None:
    partition = make()
    assert partition.local_end_moved(10)
    assert partition.high_watermark == 10
    assert not partition.local_end_moved(10)


def test_high_watermark_is_the_slowest_in_sync_replica() -> None:
    partition = make(isr=(1, 2, 3))
    assert not partition.local_end_moved(10)
    assert not partition.follower_fetched(2, 10)
    assert partition.follower_fetched(3, 7)
    assert partition.high_watermark == 7
    assert partition.follower_fetched(3, 12)
    assert partition.high_watermark == 10


def test_a_replica_that_left_the_isr_does_not_hold_others_back() -> None:
    partition = make(isr=(1, 2))
    partition.local_end_moved(10)
    assert partition.high_watermark == 0
    assert partition.set_leader(1, leader_epoch=5, partition_epoch=10, replicas=(1, 2), isr=(1,))
    assert partition.high_watermark == 10


def test_followers_are_unknown_after_a_new_election() -> None:
    partition = make(isr=(1, 2))
    partition.local_end_moved(10)
    partition.follower_fetched(2, 10)
    partition.set_leader(1, leader_epoch=6, partition_epoch=10, replicas=(1, 2), isr=(1, 2))
    assert partition.epoch_start_offset == 10
    partition.local_end_moved(12)
    assert partition.high_watermark == 10
    assert not partition.is_catching_up


def test_new_leader_catches_up() -> None:
    partition = Partition(_TP, NO_TOPIC_ID, node_id=1)
    partition.restore(high_watermark=3, start_offset=0, end_offset=8)
    partition.set_leader(1, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    assert partition.is_catching_up
    assert partition.follower_fetched(2, 8)
    assert not partition.is_catching_up


@pytest.mark.parametrize(
    ("checkpointed", "start", "end", "expected"), [(5, 0, 10, 5), (0, 4, 10, 4), (20, 0, 10, 10), (0, 0, 0, 0)]
)
def test_start_keeps_the_checkpoint_within_the_log(checkpointed: int, start: int, end: int, expected: int) -> None:
    partition = Partition(_TP, NO_TOPIC_ID, node_id=1)
    partition.restore(high_watermark=checkpointed, start_offset=start, end_offset=end)
    assert partition.high_watermark == expected


def test_follower_never_moves_the_high_watermark_itself() -> None:
    partition = make(isr=(1, 2), leader=2)
    assert not partition.local_end_moved(10)
    assert partition.high_watermark == 0


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epoch_checks(epoch: int, expected: ErrorCode) -> None:
    assert make().check_leader(epoch) is expected


def test_leadership_and_membership_checks() -> None:
    follower = make(isr=(1, 2), leader=2)
    assert follower.check_epoch(5) is ErrorCode.NONE
    assert follower.check_leader(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = make(isr=(1,), replicas=(1, 2))
    assert leader.check_follower(2, -1) is ErrorCode.NONE
    assert leader.check_follower(3, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.check_follower(3, 5) is ErrorCode.UNKNOWN_LEADER_EPOCH


@given(st.lists(st.tuples(st.sampled_from((1, 2, 3)), st.integers(0, 50)), max_size=40))
def test_high_watermark_never_falls_nor_passes_an_in_sync_replica(events: list[tuple[int, int]]) -> None:
    partition = make(isr=(1, 2, 3))
    ends = {1: 0, 2: -1, 3: -1}
    for node, offset in events:
        before = partition.high_watermark
        ends[node] = max(ends[node], offset)
        moved = partition.local_end_moved(ends[1]) if node == 1 else partition.follower_fetched(node, ends[node])
        assert partition.high_watermark == max(0, min(ends.values()))
        assert moved == (partition.high_watermark > before)
