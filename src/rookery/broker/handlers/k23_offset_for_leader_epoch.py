"""OffsetForLeaderEpoch (23): where a leader epoch ended, for consumers and followers that check for truncation.

Returns the end offset of the newest epoch that is not newer than the requested one; -1 and -1 if none is known. The
current leader epoch of the request is checked first (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).

Versions: v2 is the oldest that Kafka 4 has (and the only one that librdkafka sends); v3 replica id; v4 flexible.
"""

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from rookery.replication.replica import EpochEnd


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(context, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(
    context: RequestContext, topic: str, wanted: OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponseEpochEndOffset:
    error_code, end = _find(context, TopicPartition(topic, wanted.partition), wanted)
    return OffsetForLeaderEpochResponseEpochEndOffset(
        error_code=error_code, partition=wanted.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )


def _find(
    context: RequestContext, partition: TopicPartition, wanted: OffsetForLeaderPartition
) -> tuple[ErrorCode, EpochEnd]:
    replica = context.services.replicas.find(partition)
    if isinstance(replica, ErrorCode):
        return replica, EpochEnd()
    return replica.find_epoch_end(wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch)
