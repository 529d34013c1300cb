"""OffsetFetch (9): how far a group has read.

A partition without a committed offset, and a group that nobody knows, are offset -1 without an error. `require_stable`
asks not to be told offsets that an open transaction is about to replace: those are UNSTABLE_OFFSET_COMMIT, and the
client asks again.

Versions: v1 reads from the offsets topic. v2 null topics for all, and an error for the whole response. v3 throttle
time. v5 leader epochs. v6 flexible. v7 `require_stable`. v8 several groups in one request. v9 member id and epoch, for
groups of the new protocol. v10 topic ids instead of names (UNKNOWN_TOPIC_ID).
"""

from collections.abc import Awaitable, Iterable
from itertools import groupby

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicName, TopicPartition
from rookery.broker.answers import respond, respond_to_all
from rookery.broker.context import RequestContext
from rookery.coordinators.group.offsets.commit import FetchedOffset, FetchedOffsets, FetchRequest
from rookery.protocol.message import Message

_GROUP_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def handle(context: RequestContext, request: Message) -> Message | Awaitable[Message]:
    groups = context.services.groups
    if context.api_version < _GROUPS_SINCE:
        asked = _request(context, request, require_stable=request.get("require_stable", False))
        return respond(groups.fetch(asked), lambda result: _group(context, request, result))
    return respond_to_all(
        [groups.fetch(_request(context, group, require_stable=request.require_stable)) for group in request.groups],
        lambda results: Message(
            throttle_time_ms=0,
            groups=[_group(context, *pair) for pair in zip(request.groups, results, strict=True)],
        ),
    )


def _request(context: RequestContext, group: Message, *, require_stable: bool) -> FetchRequest:
    partitions = None
    if group.topics is not None:
        partitions = tuple(
            TopicPartition(name, index)
            for topic in group.topics
            if (name := _name(context, topic)) is not None
            for index in topic.partition_indexes
        )
    return FetchRequest(
        group_id=group.group_id,
        member_id=group.get("member_id"),
        member_epoch=group.get("member_epoch", -1),
        partitions=partitions,
        require_stable=require_stable,
    )


def _name(context: RequestContext, topic: Message) -> TopicName | None:
    if context.api_version >= _TOPIC_IDS_SINCE:
        return context.services.image.topic_names.get(topic.topic_id)
    name: str = topic.name
    return name


def _group(context: RequestContext, group: Message, result: FetchedOffsets | ErrorCode) -> Message:
    """One group of a batched response, or the whole of an older one."""
    code = result if isinstance(result, ErrorCode) else result.error_code
    if code is not ErrorCode.NONE or isinstance(result, ErrorCode):
        # Before there was a place for the group's error, every partition has it.
        topics = [] if context.api_version >= _GROUP_ERROR_SINCE else _refused(group, code)
    elif group.topics is None:
        topics = _all_topics(context, result.offsets)
    else:
        topics = _asked_topics(context, group, result.offsets)
    return Message(throttle_time_ms=0, group_id=group.group_id, error_code=code, topics=topics)


def _asked_topics(context: RequestContext, group: Message, offsets: Iterable[FetchedOffset]) -> list[Message]:
    """In the order of the request."""
    found = {offset.partition: offset for offset in offsets}
    topics = []
    for topic in group.topics:
        name = _name(context, topic)
        if name is None:
            partitions = [_failed(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
        else:
            partitions = [_partition(found[TopicPartition(name, index)]) for index in topic.partition_indexes]
        topics.append(Message(name=name or "", topic_id=topic.get("topic_id"), partitions=partitions))
    return topics


def _all_topics(context: RequestContext, offsets: Iterable[FetchedOffset]) -> list[Message]:
    """Where topics have ids, one that is being deleted has none any more and is left out."""
    known = context.services.image.topics
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    topics = []
    for name, items in groupby(sorted(offsets), key=lambda offset: offset.partition.topic):
        if by_id and name not in known:
            continue
        topic_id = known[name].topic_id if name in known else NO_TOPIC_ID
        topics.append(Message(name=name, topic_id=topic_id, partitions=[_partition(item) for item in items]))
    return topics


def _refused(group: Message, code: ErrorCode) -> list[Message]:
    return [
        Message(name=topic.name, partitions=[_failed(index, code) for index in topic.partition_indexes])
        for topic in group.topics
    ]


def _partition(offset: FetchedOffset) -> Message:
    return Message(
        partition_index=offset.partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error_code,
    )


def _failed(index: int, code: ErrorCode) -> Message:
    return Message(partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code)
