"""DescribeTopicPartitions (75): topics and their partitions, page by page (KIP-966).

Topics are sorted by name; an empty list requests all. A response has at most as many partitions as the request and
`max.request.partition.size.limit` allow, and a cursor with which the next request continues. A cursor must have a valid
partition and, if topics are listed, name one of them; otherwise every listed topic gets INVALID_REQUEST.
Unknown topics are errors only if they were listed.

Versions: v0.
"""

from collections.abc import Sequence

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.base.topic_names import name_problem
from rookery.base.types import NO_TOPIC_ID, NodeId, TopicId
from rookery.broker.context import RequestContext
from rookery.broker.offline_replicas import offline_replicas
from rookery.broker.visibility import authorized_operations, describable_topics
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    listed = sorted({topic.name for topic in request.topics})
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (listed and cursor.topic_name not in listed)):
        return _response([_fail(context, name, ErrorCode.INVALID_REQUEST) for name in listed])
    first = cursor.topic_name if cursor is not None else ""
    names = [
        name for name in (listed or describable_topics(context, sorted(context.services.image.topics))) if name >= first
    ]
    return _page(context, names, cursor, _limit(context, request))


def _limit(context: RequestContext, request: DescribeTopicPartitionsRequest) -> int:
    asked = request.response_partition_limit
    return max(min(context.services.config().integer("max.request.partition.size.limit"), asked), 1)


def _page(
    context: RequestContext, names: Sequence[str], cursor: DescribeTopicPartitionsRequestCursor | None, remaining: int
) -> DescribeTopicPartitionsResponse:
    live = {broker.node_id for broker in context.services.live_endpoints(context.listener)}
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if remaining == 0:
            return _response(topics, DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0))
        topic = context.services.image.topics.get(name)
        if topic is None:
            topics.append(_fail(context, name, _missing(name)))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(len(topic.partitions), start + remaining)
        partitions = [
            _partition(context.services.image, topic.partitions[index], live)
            for index in range(start, end)
            if index in topic.partitions
        ]
        topics.append(_topic(context, ErrorCode.NONE, name, topic.topic_id, partitions))
        if end < len(topic.partitions):
            return _response(topics, DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end))
        remaining -= len(partitions)
    return _response(topics)


def _response(
    topics: list[DescribeTopicPartitionsResponseTopic], next_cursor: DescribeTopicPartitionsResponseCursor | None = None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _missing(name: str) -> ErrorCode:
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _fail(context: RequestContext, name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return _topic(context, code, name, NO_TOPIC_ID, [])


def _topic(
    context: RequestContext,
    code: ErrorCode,
    name: str,
    topic_id: TopicId,
    partitions: list[DescribeTopicPartitionsResponsePartition],
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=authorized_operations(
            context, AclResourceType.TOPIC, name, requested=code is ErrorCode.NONE
        ),
    )


def _partition(
    image: ClusterImage, partition: PartitionImage, live: set[NodeId]
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader if partition.leader in live else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, live),
    )
