"""ListPartitionReassignments (46): the partitions that are moved to other brokers at the moment (KIP-455).

Null instead of topics means all. Partitions that are not moved, or do not exist, are left out.

Versions: v0.
"""

from itertools import groupby

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import PartitionIndex, TopicName
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.protocol.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    context: ClusterContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    submitted = context.services.controller.list_reassignments(_partitions(request))
    ongoing = await within(request.timeout_ms, submitted)
    if ongoing is None:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=each.index,
                        replicas=list(each.replicas),
                        adding_replicas=list(each.adding),
                        removing_replicas=list(each.removing),
                    )
                    for each in group
                ],
            )
            for topic, group in groupby(ongoing, key=lambda each: each.topic)
        ],
    )


def _partitions(request: ListPartitionReassignmentsRequest) -> list[tuple[TopicName, PartitionIndex]] | None:
    if request.topics is None:
        return None
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
