"""The leader of a classic group: members' subscriptions to encoded assignments."""

from collections.abc import Mapping

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.client.membership.assignors.base import (
    MemberSubscription,
    PartitionRacks,
    RebalanceProtocol,
    StatelessAssignor,
)
from rookery.client.membership.leader import GroupMembers, partition_counts, partition_racks
from rookery.client.metadata import Broker, ClusterMetadata, Partition, Topic
from rookery.protocol.consumer_protocol import Subscription, read_assignment, write_subscription
from rookery.protocol.messages import JoinGroupResponseMember
from tests.client.membership.random_groups import plain

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Fixed(StatelessAssignor):
    name = "fixed"

    def __init__(self, assignment: Mapping[str, list[TopicPartition]]) -> None:
        self._assignment = assignment

    def assign(
        self, topics: PartitionRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, list[TopicPartition]]:
        return self._assignment


def row(member_id: str, *owned: TopicPartition, version: int = 3) -> JoinGroupResponseMember:
    subscription = Subscription(version, frozenset({"t"}), owned, "east", 4, b"data")
    return JoinGroupResponseMember(
        member_id=member_id, group_instance_id=None, metadata=write_subscription(subscription)
    )


def read(data: bytes) -> list[TopicPartition]:
    found = read_assignment(data)
    assert found is not None
    return found


def test_subscriptions_of_members() -> None:
    group = GroupMembers([row("a", ONE), row("b", version=0)])
    assert group.topics == {"t"}
    assert group.subscriptions["a"] == MemberSubscription(frozenset({"t"}), (ONE,), 4, b"data", None, "east")
    assert group.subscriptions["b"] == MemberSubscription(frozenset({"t"}), user_data=b"data")
    with pytest.raises(ApiError, match="the subscription of member c is malformed"):
        GroupMembers([JoinGroupResponseMember(member_id="c", metadata=b"?")])


def test_each_member_gets_an_assignment_in_its_version() -> None:
    group = GroupMembers([row("a"), row("b", version=0)])
    assignments = group.assign(Fixed({"a": [ONE], "b": [TWO]}), plain({"t": 2}), protocol=RebalanceProtocol.EAGER)
    assert [data[:2] for data in assignments.values()] == [b"\0\3", b"\0\0"]
    assert [read(data) for data in assignments.values()] == [[ONE], [TWO]]


def test_a_cooperative_leader_assigns_nothing_that_another_member_owns() -> None:
    group = GroupMembers([row("a", ONE, TWO), row("b")])
    moved = Fixed({"a": [ONE], "b": [TWO]})
    assignments = group.assign(moved, plain({"t": 2}), protocol=RebalanceProtocol.COOPERATIVE)
    assert [read(data) for data in assignments.values()] == [[ONE], []]


def test_no_partition_is_assigned_twice() -> None:
    group = GroupMembers([row("a"), row("b")])
    with pytest.raises(ApiError, match="assignor fixed assigned t-0 to several members"):
        group.assign(Fixed({"a": [ONE], "b": [ONE]}), plain({"t": 2}), protocol=RebalanceProtocol.EAGER)


def topic(name: str, error: ErrorCode, *replicas: tuple[int, ...]) -> Topic:
    partitions = tuple(
        Partition(
            index=index,
            leader=nodes[0],
            leader_epoch=0,
            replicas=nodes,
            in_sync_replicas=nodes,
            offline_replicas=(),
            error=ErrorCode.NONE,
        )
        for index, nodes in enumerate(replicas)
    )
    return Topic(name=name, topic_id=NO_TOPIC_ID, is_internal=False, error=error, partitions=partitions)


def test_partitions_and_racks_from_metadata() -> None:
    brokers = {1: Broker(1, "h", 1, "east"), 2: Broker(2, "h", 2, "west"), 3: Broker(3, "h", 3)}
    topics = {
        "t": topic("t", ErrorCode.NONE, (1, 2), (2, 3), (3, 4)),
        "gone": topic("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        "away": topic("away", ErrorCode.LEADER_NOT_AVAILABLE),
    }
    metadata = ClusterMetadata(brokers=brokers, topics=topics)
    names = ["t", "gone", "away", "unknown"]
    assert partition_racks(metadata, names) == {"t": [frozenset({"east", "west"}), frozenset({"west"}), frozenset()]}
    assert partition_counts(metadata, names) == {"t": 3, "gone": 0, "unknown": 0}
