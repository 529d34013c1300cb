"""DeleteRecords (21): move the start of partitions, which deletes the records before it.

Offset -1 means the high watermark. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE, one below the start
changes nothing. The response is sent when all replicas have moved their start, which here is immediately.
A topic that is only compacted is POLICY_VIOLATION, an internal topic INVALID_TOPIC_EXCEPTION.

Versions: v0 to v2 are the same; v2 is flexible.
"""

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.context import RequestContext
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from rookery.replication.replica import RecordsDeleted


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _answer(wanted.partition_index, _delete(context, topic.name, wanted)) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _delete(context: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> RecordsDeleted:
    replica = context.services.replicas.find(TopicPartition(topic, wanted.partition_index))
    if isinstance(replica, ErrorCode):
        return RecordsDeleted(replica)
    if topic in INTERNAL_TOPICS:
        return RecordsDeleted(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return replica.delete_records(wanted.offset)


def _answer(partition_index: int, deleted: RecordsDeleted) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition_index, low_watermark=deleted.low_watermark, error_code=deleted.error_code
    )
