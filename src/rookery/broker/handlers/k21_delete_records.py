"""DeleteRecords (21): move the start of partitions, which deletes the records before it.

Offset -1 means the high watermark. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE, one below the start
changes nothing. The response is sent when all replicas that are alive have moved their start; those that have not done
so within the request's time-out are REQUEST_TIMED_OUT.
A topic that is only compacted is POLICY_VIOLATION, an internal topic INVALID_TOPIC_EXCEPTION.

Versions: v0 to v2 are the same; v2 is flexible.
"""

from collections.abc import Awaitable, Sequence
from itertools import groupby

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, Offset, TopicPartition
from rookery.broker.context import RequestContext
from rookery.broker.delayed_response import delay_response
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.messages import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from rookery.replication.replica import RecordsDeleted


def handle(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    deletions = [
        _Deletion(context, TopicPartition(topic.name, wanted.partition_index), wanted.offset)
        for topic in request.topics
        for wanted in topic.partitions
    ]
    if all(deletion.is_settled() for deletion in deletions):
        return _respond(deletions)
    return delay_response(
        context.services.pending,
        [deletion.partition for deletion in deletions],
        timeout_ms=request.timeout_ms,
        is_ready=lambda _: all(deletion.is_settled() for deletion in deletions),
        finish=lambda: _respond(deletions),
    )


class _Deletion:
    """The deletion of one partition's records, which is complete when the followers have made it too."""

    def __init__(self, context: RequestContext, partition: TopicPartition, offset: Offset) -> None:
        self.partition = partition
        self._replicas = context.services.replicas
        self._epoch = NO_LEADER_EPOCH
        self.deleted = self._delete(offset)

    def _delete(self, offset: Offset) -> RecordsDeleted:
        replica = self._replicas.find(self.partition)
        if isinstance(replica, ErrorCode):
            return RecordsDeleted(replica)
        if self.partition.topic in INTERNAL_TOPICS:
            return RecordsDeleted(ErrorCode.INVALID_TOPIC_EXCEPTION)
        self._epoch = replica.state.leader_epoch
        return replica.delete_records(offset)

    def is_settled(self) -> bool:
        """Return whether the deletion is complete or has failed."""
        deleted = self.deleted
        if deleted.error_code is ErrorCode.NONE and deleted.low_watermark < deleted.offset:
            replica = self._replicas.find(self.partition)
            if isinstance(replica, ErrorCode):
                self.deleted = RecordsDeleted(replica)
            elif not replica.state.still_leads(self._epoch):
                self.deleted = RecordsDeleted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self.deleted = deleted._replace(low_watermark=replica.low_watermark)
            deleted = self.deleted
        return deleted.error_code is not ErrorCode.NONE or deleted.low_watermark >= deleted.offset

    def answer(self) -> DeleteRecordsPartitionResult:
        code, low_watermark, _ = self.deleted
        if not self.is_settled():
            code, low_watermark = ErrorCode.REQUEST_TIMED_OUT, NO_OFFSET
        return DeleteRecordsPartitionResult(
            partition_index=self.partition.partition, low_watermark=low_watermark, error_code=code
        )


def _respond(deletions: Sequence[_Deletion]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic, partitions=[deletion.answer() for deletion in group])
            for topic, group in groupby(deletions, key=lambda deletion: deletion.partition.topic)
        ],
    )
