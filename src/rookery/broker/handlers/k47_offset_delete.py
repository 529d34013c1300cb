"""OffsetDelete (47): delete the offsets of a group for partitions.

While the group has members, offsets of topics that it subscribes to are GROUP_SUBSCRIBED_TO_TOPIC; a group of another
protocol than the consumers' must have no members (NON_EMPTY_GROUP). A topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION; a partition without an offset is no error. An empty group id is INVALID_GROUP_ID. There is
one version.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.broker.partition_codes import codes_by_topic
from rookery.coordinators.group.offsets.commit import CommittedPartition
from rookery.protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        return _respond(request, ErrorCode.INVALID_GROUP_ID)
    known = context.services.image.topics
    partitions = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        if topic.name in known
        for partition in topic.partitions
    ]
    answer = context.services.groups.delete_offsets(request.group_id, partitions)
    return respond(answer, lambda result: _respond(request, result))


def _respond(request: OffsetDeleteRequest, result: tuple[CommittedPartition, ...] | ErrorCode) -> OffsetDeleteResponse:
    if isinstance(result, ErrorCode):
        return OffsetDeleteResponse(error_code=result, topics=[])
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in partitions
                ],
            )
            for name, partitions in codes_by_topic(request.topics, dict(result))
        ],
    )
