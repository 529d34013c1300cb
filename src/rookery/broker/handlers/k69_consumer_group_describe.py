"""ConsumerGroupDescribe (69): groups of the new protocol with their members, and their current and target assignments.

An unknown group, or a classic one, is GROUP_ID_NOT_FOUND; an empty group id is INVALID_GROUP_ID.
While the feature `group.version` is at level 0 there are no such groups: UNSUPPORTED_VERSION.

Versions: v1 says whether a member uses the classic protocol (0) or the new one (1).
"""

from collections.abc import Awaitable

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond_to_all
from rookery.broker.context import RequestContext
from rookery.broker.visibility import authorized_operations
from rookery.coordinators.group.consumer.describe import DescribedConsumerGroup, DescribedMember, DescribedTopic
from rookery.metadata.features import GROUP_VERSION, GROUP_VERSION_LEVEL
from rookery.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseTopicPartitions,
    Member,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    if context.services.image.feature_level(GROUP_VERSION) < GROUP_VERSION_LEVEL:
        refused = [DescribedConsumerGroup(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(
            groups=[_group(context, group, wants_operations=False) for group in refused]
        )
    wants_operations = request.include_authorized_operations

    def convert(results: list[DescribedConsumerGroup | ErrorCode]) -> ConsumerGroupDescribeResponse:
        groups = [_described(*pair) for pair in zip(request.group_ids, results, strict=True)]
        return ConsumerGroupDescribeResponse(
            groups=[_group(context, group, wants_operations=wants_operations) for group in groups]
        )

    return respond_to_all(
        [context.services.groups.describe_consumer(group_id) for group_id in request.group_ids], convert
    )


def _described(group_id: str, result: DescribedConsumerGroup | ErrorCode) -> DescribedConsumerGroup:
    if not group_id:
        return DescribedConsumerGroup(group_id, ErrorCode.INVALID_GROUP_ID)
    return DescribedConsumerGroup(group_id, result) if isinstance(result, ErrorCode) else result


def _group(
    context: RequestContext, group: DescribedConsumerGroup, *, wants_operations: bool
) -> ConsumerGroupDescribeResponseDescribedGroup:
    requested = wants_operations and group.error_code is ErrorCode.NONE
    return ConsumerGroupDescribeResponseDescribedGroup(
        error_code=group.error_code,
        error_message=group.message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=authorized_operations(
            context, AclResourceType.GROUP, group.group_id, requested=requested
        ),
    )


def _member(described: DescribedMember) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or None,
        assignment=_assignment(described.assigned),
        target_assignment=_assignment(described.target),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(topics: list[DescribedTopic]) -> ConsumerGroupDescribeResponseAssignment:
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=topic.partitions
            )
            for topic in topics
        ]
    )
