"""ConsumerGroupDescribe: a group with the names of its topics."""

from collections.abc import Mapping
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicId, TopicName
from rookery.coordinators.group.consumer.assignment import Assignment, in_order
from rookery.coordinators.group.consumer.environment import Environment
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.member import Member
from rookery.coordinators.group.consumer.rebalance import assignor_name


class DescribedTopic(NamedTuple):
    topic_id: TopicId
    name: TopicName
    partitions: list[PartitionIndex]


class DescribedMember(NamedTuple):
    member: Member
    assigned: list[DescribedTopic]
    target: list[DescribedTopic]


class DescribedConsumerGroup(NamedTuple):
    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()


def describe(group: ConsumerGroup, environment: Environment) -> DescribedConsumerGroup:
    names = {topic.topic_id: name for name, topic in environment.topics.items()}
    members = tuple(
        DescribedMember(
            member,
            _with_names(member.assigned, names),
            _with_names(group.target_of(member.member_id), names),
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=assignor_name(group, environment),
        members=members,
    )


def describe_missing(group_id: str, *, is_classic: bool) -> DescribedConsumerGroup:
    reason = "is not a consumer group" if is_classic else "not found"
    return DescribedConsumerGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")


def _with_names(partitions: Assignment, names: Mapping[TopicId, TopicName]) -> list[DescribedTopic]:
    """Return the partitions with topic names, without topics that have been deleted."""
    return [
        DescribedTopic(topic_id, names[topic_id], indexes)
        for topic_id, indexes in in_order(partitions)
        if topic_id in names
    ]
