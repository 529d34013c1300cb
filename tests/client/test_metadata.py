from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, TopicPartition
from rookery.client.metadata import Broker, ClusterMetadata, Partition, Topic

ONE, TWO, THREE = (Broker(number, f"host{number}", 9092) for number in (1, 2, 3))
TP = TopicPartition("t", 0)


def partition(index: int, leader: NodeId, epoch: LeaderEpoch, error: ErrorCode = ErrorCode.NONE) -> Partition:
    return Partition(
        index=index,
        leader=leader,
        leader_epoch=epoch,
        replicas=(1, 2),
        in_sync_replicas=(1, 2),
        offline_replicas=(),
        error=error,
    )


def topic(*partitions: Partition, name: str = "t", number: int = 7, error: ErrorCode = ErrorCode.NONE) -> Topic:
    return Topic(name=name, topic_id=UUID(int=number), is_internal=False, error=error, partitions=partitions)


def picture(*topics: Topic) -> ClusterMetadata:
    return ClusterMetadata(
        cluster_id="c", controller_id=1, brokers={1: ONE, 2: TWO}, topics={each.name: each for each in topics}
    )


def test_the_leader_with_the_higher_epoch_is_kept() -> None:
    known = picture(topic(partition(0, 2, 5), partition(1, 1, 3)))
    merged = known.merged(picture(topic(partition(0, 1, 4), partition(1, 2, 4))), complete=False)
    assert [(each.leader, each.leader_epoch) for each in merged.topics["t"].partitions] == [(2, 5), (2, 4)]


@pytest.mark.parametrize("complete", [True, False])
def test_a_topic_that_was_created_again_replaces_the_deleted_one(complete: bool) -> None:
    known = picture(topic(partition(0, 2, 5), number=7))
    merged = known.merged(picture(topic(partition(0, 1, 0), number=8)), complete=complete)
    assert merged.leader("t", 0) == 1
    assert merged.topic_name(UUID(int=8)) == "t"
    assert merged.topic_name(UUID(int=7)) is None


def test_a_leader_without_an_epoch_replaces_the_known_one() -> None:
    known = picture(topic(partition(0, 2, 5)))
    assert known.merged(picture(topic(partition(0, 1, -1))), complete=False).leader("t", 0) == 1


def test_partitions_are_added() -> None:
    known = picture(topic(partition(0, 2, 5)))
    merged = known.merged(picture(topic(partition(0, 1, 4), partition(1, 1, 0))), complete=False)
    assert [each.leader for each in merged.topics["t"].partitions] == [2, 1]


def test_only_a_complete_snapshot_removes_topics() -> None:
    known, newer = picture(topic(name="a", number=1)), picture(topic(name="b", number=2))
    assert set(known.merged(newer, complete=False).topics) == {"a", "b"}
    assert set(known.merged(newer, complete=True).topics) == {"b"}


def test_a_reported_leader_with_a_higher_epoch_is_stored() -> None:
    known = picture(topic(partition(0, 1, 4)))
    changed = known.with_leader(TP, 2, 5)
    assert changed.leader("t", 0) == 2
    assert known.leader("t", 0) == 1
    assert changed.topic_name(UUID(int=7)) == "t"


def test_a_reported_leader_may_be_a_broker_that_was_not_known() -> None:
    known = picture(topic(partition(0, 1, 4)))
    assert known.with_leader(TP, 3, 5) is known
    changed = known.with_leader(TP, 3, 5, [THREE])
    assert changed.leader("t", 0) == 3
    assert changed.brokers[3] == THREE


@pytest.mark.parametrize(
    ("where", "leader", "epoch"),
    [(TP, 2, 4), (TP, 2, 3), (TopicPartition("t", 1), 2, 9), (TopicPartition("u", 0), 2, 9)],
)
def test_old_epochs_and_unknown_partitions_in_a_report_change_nothing(
    where: TopicPartition, leader: NodeId, epoch: LeaderEpoch
) -> None:
    known = picture(topic(partition(0, 1, 4)))
    assert known.with_leader(where, leader, epoch) is known


def test_topics_without_all_their_leaders_are_incomplete() -> None:
    away = ErrorCode.LEADER_NOT_AVAILABLE
    assert topic(partition(0, 1, 4), partition(1, -1, 4, away)).is_incomplete
    assert topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).is_incomplete
    assert not topic(partition(0, 1, 4)).is_incomplete
    assert not topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED).is_incomplete
