"""ElectLeaders (43): elect the preferred leaders of partitions, or leaders that are not in sync (KIP-460).

Null instead of partitions means all partitions that need an election; the response then lists those that had one.

Versions: v1 the type of the election (before, preferred leaders), and an error for the whole request. v2 flexible.
"""

from itertools import groupby

from rookery.base.codes import ElectionType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import PartitionIndex, TopicName
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.protocol.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def handle(context: ClusterContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    election = _election_type(request.get("election_type", ElectionType.PREFERRED))
    submitted = context.services.controller.elect_leaders(election, _partitions(request))
    elected = await within(request.timeout_ms, submitted)
    if elected is None:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    PartitionResult(
                        partition_id=each.index, error_code=each.outcome.code, error_message=each.outcome.message
                    )
                    for each in group
                ],
            )
            for topic, group in groupby(elected, key=lambda each: each.topic)
        ],
    )


def _election_type(code: int) -> ElectionType:
    try:
        return ElectionType(code)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no election type {code}") from None


def _partitions(request: ElectLeadersRequest) -> list[tuple[TopicName, PartitionIndex]] | None:
    if request.topic_partitions is None:
        return None
    return [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
