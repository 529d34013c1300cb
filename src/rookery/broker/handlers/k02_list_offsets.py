"""ListOffsets (2): the offset of a place in a partition, or the first at or after a timestamp.

A negative timestamp names a place in the log: -1 the end that the reader may see (high watermark, or last stable offset
for `read_committed`), -2 the start, -3 the record with the largest timestamp, -4 the start on local disk, -5 the end of
tiered storage (there is none: offset -1), -6 the start of what is not tiered yet (none: -1). For a real timestamp the
offset is that of the record, not of its batch; if no record is that new, it is -1 without an error.

Versions: v1 is the first with single offsets. v2 isolation level. v4 leader epochs (FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH). v5 may return OFFSET_NOT_AVAILABLE, before it is LEADER_NOT_AVAILABLE. v6 flexible. v7 takes -3,
v8 -4, v9 -5, v11 -6; a request for them in an older version gets UNSUPPORTED_VERSION. v10 timeout (only tiered reads
need it).
"""

from collections import Counter
from typing import Final

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, TopicPartition
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from rookery.replication import offset_search as places
from rookery.replication.offset_search import OffsetFound

# Not a field of the protocol: the partitions that `note_repeated` has found, for all pieces of a split request.
_REPEATED = "repeated"
_READ_COMMITTED = 1
_OFFSET_NOT_AVAILABLE_SINCE = 5
_VERSION_MIN_BY_PLACE: Final = {
    places.LATEST: 1,
    places.EARLIEST: 1,
    places.MAX_TIMESTAMP: 7,
    places.EARLIEST_LOCAL: 8,
    places.LATEST_TIERED: 9,
    places.EARLIEST_PENDING_UPLOAD: 11,
}


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    if _REPEATED not in vars(request):
        note_repeated(request)
    repeated: set[TopicPartition] = vars(request)[_REPEATED]
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(partition, _find(context, request, topic.name, partition, repeated), context.api_version)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def note_repeated(request: ListOffsetsRequest) -> None:
    """Find the partitions that a request names twice: they are rejected. Called before a request is cut into pieces."""
    counts = Counter(
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    vars(request)[_REPEATED] = {partition for partition, count in counts.items() if count > 1}


def _find(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    repeated: set[TopicPartition],
) -> OffsetFound:
    partition = TopicPartition(topic, wanted.partition_index)
    if partition in repeated:
        return OffsetFound(ErrorCode.INVALID_REQUEST)
    if wanted.timestamp < 0:
        version_min = _VERSION_MIN_BY_PLACE.get(wanted.timestamp)
        if version_min is None or context.api_version < version_min:
            return OffsetFound(ErrorCode.UNSUPPORTED_VERSION)
    replica = context.services.replicas.find(partition)
    if isinstance(replica, ErrorCode):
        return OffsetFound(replica)
    return replica.find_offset(
        wanted.timestamp,
        current_leader_epoch=wanted.get("current_leader_epoch", NO_LEADER_EPOCH),
        node_id=request.replica_id,
        read_committed=request.get("isolation_level", 0) == _READ_COMMITTED,
    )


def _answer(wanted: ListOffsetsPartition, found: OffsetFound, version: int) -> ListOffsetsPartitionResponse:
    error_code = found.error_code
    if error_code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _OFFSET_NOT_AVAILABLE_SINCE:
        error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error_code,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
