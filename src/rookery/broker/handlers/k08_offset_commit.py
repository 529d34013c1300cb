"""OffsetCommit (8): store the offsets up to which a group has consumed.

A member must pass its generation (in groups of the new protocol its epoch). In a group without members, any client may
commit without a generation. Topics that do not exist are UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID if they are
named by id; metadata above `offset.metadata.max.bytes` is OFFSET_METADATA_TOO_LARGE. Both are errors of single
partitions.

Versions: v2 to v4 a retention time, which replaces `offsets.retention.minutes` for this offset; -1 is none. v3 throttle
time. v6 leader epochs. v7 group instance id. v8 flexible. v9 member epochs: STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND
instead of ILLEGAL_GENERATION. v10 topic ids instead of names.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.coordinators.group.offsets.commit import CommitRequest, CommittedPartition, OffsetToCommit
from rookery.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_SINCE = 10


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    named = [(topic, _name(context, topic)) for topic in request.topics]
    offsets = tuple(
        OffsetToCommit(
            TopicPartition(name, partition.partition_index),
            partition.committed_offset,
            partition.get("committed_leader_epoch", NO_LEADER_EPOCH),
            partition.committed_metadata or "",
        )
        for topic, name in named
        if name is not None
        for partition in topic.partitions
    )
    if not offsets:
        return _respond(context, named, ())
    retention_ms = request.get("retention_time_ms", -1)
    answer = context.services.groups.commit(
        CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.get("group_instance_id"),
            generation=request.generation_id_or_member_epoch,
            retention_ms=None if retention_ms < 0 else retention_ms,
            api_version=context.api_version,
            offsets=offsets,
        )
    )
    return respond(answer, lambda result: _respond(context, named, result))


def _name(context: RequestContext, topic: OffsetCommitRequestTopic) -> str | None:
    """Return the name of the topic if it exists, else None."""
    image = context.services.image
    if context.api_version >= _TOPIC_IDS_SINCE:
        return image.topic_names.get(topic.get("topic_id", NO_TOPIC_ID))
    name = topic.get("name", "")
    return name if name in image.topics else None


def _respond(
    context: RequestContext,
    named: list[tuple[OffsetCommitRequestTopic, str | None]],
    result: tuple[CommittedPartition, ...] | ErrorCode,
) -> OffsetCommitResponse:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = {} if isinstance(result, ErrorCode) else dict(result)
    refusal = result if isinstance(result, ErrorCode) else ErrorCode.NONE

    def code(name: str | None, partition: OffsetCommitRequestPartition) -> ErrorCode:
        if name is None:
            return missing
        return codes.get(TopicPartition(name, partition.partition_index), refusal)

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.get("name", ""),
                topic_id=topic.get("topic_id", NO_TOPIC_ID),
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code(name, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic, name in named
        ],
    )
