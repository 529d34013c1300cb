"""OffsetFetch (9): the committed offsets of groups.

A partition without a committed offset, also of an unknown group, has offset -1 without an error. With `require_stable`,
an offset that an open transaction is about to replace is UNSTABLE_OFFSET_COMMIT, and the client retries.

Versions: v1 reads from the offsets topic. v2 null topics for all, and an error for the whole response. v3 throttle
time. v5 leader epochs. v6 flexible. v7 `require_stable`. v8 several groups in one request. v9 member id and epoch, for
groups of the new protocol. v10 topic ids instead of names (UNKNOWN_TOPIC_ID).
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicId, TopicName, TopicPartition
from rookery.broker.answers import respond, respond_to_all
from rookery.broker.context import RequestContext
from rookery.coordinators.group.offsets.commit import FetchedOffset, FetchedOffsets, FetchRequest
from rookery.protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUP_ERROR_SINCE = 2
GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


class _RequestedTopic(NamedTuple):
    """A topic of a request of any version. The name is None if no topic has the id."""

    name: TopicName | None
    topic_id: TopicId
    indexes: Sequence[int]


class _Found(NamedTuple):
    """A topic of a response of any version."""

    name: TopicName
    topic_id: TopicId
    offsets: Iterable[FetchedOffset]


def handle(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    groups, require_stable = context.services.groups, request.get("require_stable", False)
    if context.api_version < GROUPS_SINCE:
        return _handle_one(context, request, require_stable=require_stable)
    requested = request.get("groups", ())
    topics = [_topics(context, group) for group in requested]
    return respond_to_all(
        [
            groups.fetch(
                FetchRequest(
                    group_id=group.group_id,
                    member_id=group.get("member_id"),
                    member_epoch=group.get("member_epoch", -1),
                    partitions=_partitions(of_group),
                    require_stable=require_stable,
                )
            )
            for group, of_group in zip(requested, topics, strict=True)
        ],
        lambda results: OffsetFetchResponse(
            groups=[_group(context, *each) for each in zip(requested, topics, results, strict=True)],
        ),
    )


def _handle_one(
    context: RequestContext, request: OffsetFetchRequest, *, require_stable: bool
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Handle a request of a version that has one group, and topics by name."""
    named = request.get("topics")
    topics = (
        None if named is None else [_RequestedTopic(each.name, NO_TOPIC_ID, each.partition_indexes) for each in named]
    )
    group_id, partitions = request.get("group_id", ""), _partitions(topics)
    wanted = FetchRequest(group_id=group_id, partitions=partitions, require_stable=require_stable)
    return respond(context.services.groups.fetch(wanted), lambda result: _respond_to_one(context, topics, result))


def _topics(context: RequestContext, group: OffsetFetchRequestGroup) -> list[_RequestedTopic] | None:
    if group.topics is None:
        return None
    if context.api_version < _TOPIC_IDS_SINCE:
        return [_RequestedTopic(topic.get("name", ""), NO_TOPIC_ID, topic.partition_indexes) for topic in group.topics]
    return [_requested_by_id(context, topic) for topic in group.topics]


def _requested_by_id(context: RequestContext, topic: OffsetFetchRequestTopics) -> _RequestedTopic:
    topic_id = topic.get("topic_id", NO_TOPIC_ID)
    return _RequestedTopic(context.services.image.topic_names.get(topic_id), topic_id, topic.partition_indexes)


def _partitions(topics: Iterable[_RequestedTopic] | None) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, index) for topic in topics if topic.name is not None for index in topic.indexes
    )


def _respond_to_one(
    context: RequestContext, requested: list[_RequestedTopic] | None, result: FetchedOffsets | ErrorCode
) -> OffsetFetchResponse:
    code, found = _find(context, requested, result)
    if code is not ErrorCode.NONE and context.api_version < _GROUP_ERROR_SINCE:
        # These versions have no field for the group's error: every partition gets it.
        found = [_failed(topic, code) for topic in requested or ()]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=offset.partition.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=offset.error_code,
                    )
                    for offset in topic.offsets
                ],
            )
            for topic in found
        ],
    )


def _group(
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    requested: list[_RequestedTopic] | None,
    result: FetchedOffsets | ErrorCode,
) -> OffsetFetchResponseGroup:
    code, found = _find(context, requested, result)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=code,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=offset.partition.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=offset.error_code,
                    )
                    for offset in topic.offsets
                ],
            )
            for topic in found
        ],
    )


def _find(
    context: RequestContext, requested: list[_RequestedTopic] | None, result: FetchedOffsets | ErrorCode
) -> tuple[ErrorCode, list[_Found]]:
    """Return the error of a whole group, or its topics: in the order of the request, or all of them."""
    if isinstance(result, ErrorCode):
        return result, []
    if result.error_code is not ErrorCode.NONE:
        return result.error_code, []
    if requested is None:
        return ErrorCode.NONE, list(_all_topics(context, result.offsets))
    offsets = {offset.partition: offset for offset in result.offsets}
    return ErrorCode.NONE, [_found(topic, offsets) for topic in requested]


def _found(topic: _RequestedTopic, offsets: Mapping[TopicPartition, FetchedOffset]) -> _Found:
    if topic.name is None:
        return _failed(topic, ErrorCode.UNKNOWN_TOPIC_ID)
    found = [offsets[TopicPartition(topic.name, index)] for index in topic.indexes]
    return _Found(topic.name, topic.topic_id, found)


def _failed(topic: _RequestedTopic, code: ErrorCode) -> _Found:
    name = topic.name or ""
    failed = [FetchedOffset(TopicPartition(name, index), error_code=code) for index in topic.indexes]
    return _Found(name, topic.topic_id, failed)


def _all_topics(context: RequestContext, offsets: Iterable[FetchedOffset]) -> Iterator[_Found]:
    """Return all topics of a group. If topics have ids, one that is being deleted has none, and is left out."""
    known = context.services.image.topics
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    for name, items in groupby(sorted(offsets), key=lambda offset: offset.partition.topic):
        if name in known:
            yield _Found(name, known[name].topic_id, list(items))
        elif not by_id:
            yield _Found(name, NO_TOPIC_ID, list(items))
