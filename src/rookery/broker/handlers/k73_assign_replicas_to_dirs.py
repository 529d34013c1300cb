"""AssignReplicasToDirs (73): a broker reports which of its log directories holds which replica (KIP-858).

Versions: v0.
"""

from collections.abc import Iterator

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import AssignedReplica
from rookery.protocol.messages import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


async def handle(context: ClusterContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    replicas = [
        AssignedReplica(directory.id_, topic.topic_id, each.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for each in topic.partitions
    ]
    assigned = await context.services.controller.assign_replicas(request.broker_id, request.broker_epoch, replicas)
    if assigned.outcome.code is not ErrorCode.NONE:
        return AssignReplicasToDirsResponse(error_code=assigned.outcome.code, directories=[])
    codes = iter(assigned.codes)
    return AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=_directories(request, codes))


def _directories(
    request: AssignReplicasToDirsRequest, codes: Iterator[ErrorCode]
) -> list[AssignReplicasToDirsResponseDirectoryData]:
    """Return the request's directories with the error codes, which are in the order of the request."""
    return [
        AssignReplicasToDirsResponseDirectoryData(
            id_=directory.id_,
            topics=[
                AssignReplicasToDirsResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        AssignReplicasToDirsResponsePartitionData(
                            partition_index=each.partition_index, error_code=next(codes)
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
