"""AlterPartitionReassignments (45): move partitions to other brokers, or cancel that (KIP-455).

The response is sent when the reassignment has begun. Null instead of replicas cancels the one that is in progress.

Versions: v1 `allow_replication_factor_change`, by default true (KIP-860).
"""

from itertools import groupby

from rookery.base.errors import ApiError, ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.metadata.requests import Reassignment
from rookery.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    context: ClusterContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    reassignments = [
        Reassignment(topic.name, each.partition_index, None if each.replicas is None else tuple(each.replicas))
        for topic in request.topics
        for each in topic.partitions
    ]
    may_change_factor = request.get("allow_replication_factor_change", True)
    submitted = context.services.controller.alter_reassignments(reassignments, allow_factor_change=may_change_factor)
    altered = await within(request.timeout_ms, submitted)
    if altered is None:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
    return AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        allow_replication_factor_change=may_change_factor,
        responses=[
            ReassignableTopicResponse(
                name=topic,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.index, error_code=each.outcome.code, error_message=each.outcome.message
                    )
                    for each in group
                ],
            )
            for topic, group in groupby(altered, key=lambda each: each.topic)
        ],
    )
