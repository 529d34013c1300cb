"""Metadata (3): brokers, and topics with their partitions and leaders; creates topics that do not exist.

A topic that does not exist is created if the client and `auto.create.topics.enable` allow it. It is in the same
response, because the controller returns when the topic is served. If it is not created, it is
UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if its name is invalid. The controller id is that of a live
broker, the active controller if it is one: every broker forwards requests for the controller. A partition without a
leader is LEADER_NOT_AVAILABLE. Replicas are offline if their broker is fenced or lacks the client's listener, or if
their log directory has failed.

Versions: in v0 an empty list of topics means all, from v1 on null means all and an empty list none. v1 controller id,
rack and internal flag. v2 cluster id. v4 `allow_auto_topic_creation` (before, it was always allowed). v5 offline
replicas. v6 LISTENER_NOT_FOUND if a leader lacks the client's listener (before, LEADER_NOT_AVAILABLE). v7 leader
epochs. v8 authorized operations, -2147483648 if they were not requested; those of the cluster only up to v10. v9
flexible. v10 topic ids in the response, v12 also in requests (UNKNOWN_TOPIC_ID). v13 an error for the whole response,
which is for clients that must start over (never here).
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from types import MappingProxyType

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.base.topic_names import name_problem
from rookery.base.types import NO_TOPIC_ID, NodeId, TopicId
from rookery.broker.context import RequestContext
from rookery.broker.known_answers import TopicAnswer
from rookery.broker.offline_replicas import offline_replicas
from rookery.broker.topic_creation import create_missing_topics
from rookery.broker.visibility import authorized_operations, cluster_operations
from rookery.metadata.image import PartitionImage, TopicImage
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.message import freeze
from rookery.protocol.messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_NULL_MEANS_ALL_SINCE = 1
_LISTENER_NOT_FOUND_SINCE = 6
_TOPIC_IDS_IN_REQUEST_SINCE = 12


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = request.topics
    if topics is None or (not topics and context.api_version < _NULL_MEANS_ALL_SINCE):
        return _answer_known(context, request, None)
    if context.api_version < _TOPIC_IDS_IN_REQUEST_SINCE and any(_is_malformed(topic) for topic in topics):
        return _Answer(context, request).refuse_all(topics)
    if any(topic.get("topic_id", NO_TOPIC_ID) != NO_TOPIC_ID for topic in topics):
        return _Answer(context, request).by_id(topic.get("topic_id", NO_TOPIC_ID) for topic in topics)
    # A name that is given twice is described once.
    names = list(dict.fromkeys(topic.name for topic in topics if topic.name is not None))
    # Internal topics are not created here: they need other settings, and the coordinators' requests create them.
    missing = [name for name in names if name not in context.services.image.topics and name not in INTERNAL_TOPICS]
    if missing and _may_create(context, request):
        return _create_and_answer(context, request, names, missing)
    return _Answer(context, request).by_name(names) if missing else _answer_known(context, request, names)


def remove_repeated(request: MetadataRequest) -> None:
    """Remove names and ids that are given twice, so that each is described once."""
    if request.topics is not None:
        request.topics = list({(topic.name, topic.get("topic_id")): topic for topic in request.topics}.values())


def _answer_known(context: RequestContext, request: MetadataRequest, names: Sequence[str] | None) -> MetadataResponse:
    """Describe topics that exist, or all if `names` is None. The response is cached until the metadata changes."""
    known, image = context.services.known_answers.metadata, context.services.image
    options = (
        request.get("include_topic_authorized_operations"),
        request.get("include_cluster_authorized_operations"),
    )
    leader = context.services.quorum.leader_id
    kind = (context.api_version, context.listener, leader, options, None if names is None else tuple(names))
    found = known.find(image, kind)
    if found is None:
        described = _Answer(context, request).by_name(image.topics if names is None else names)
        found = known.keep(image, kind, described)
    return found


def _is_malformed(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.get("topic_id", NO_TOPIC_ID) != NO_TOPIC_ID


def _may_create(context: RequestContext, request: MetadataRequest) -> bool:
    allowed = request.get("allow_auto_topic_creation", True)
    return allowed and context.services.config().boolean("auto.create.topics.enable")


async def _create_and_answer(
    context: RequestContext, request: MetadataRequest, names: Sequence[str], missing: Sequence[str]
) -> MetadataResponse:
    refused = await create_missing_topics(context, missing)
    return _Answer(context, request).by_name(names, refused=refused)


class _Answer:
    """The response to one request, topic by topic."""

    def __init__(self, context: RequestContext, request: MetadataRequest) -> None:
        self._context = context
        self._request = request
        self._brokers = context.services.live_endpoints(context.listener)
        self._live = {broker.node_id for broker in self._brokers}
        wants_operations = request.get("include_topic_authorized_operations", False)
        # The same for all topics: with an authorizer, `access.metadata` sets the operations.
        self._operations = authorized_operations(context, AclResourceType.TOPIC, "", requested=wants_operations)
        kind = (context.api_version, context.listener, wants_operations)
        self._described = context.services.known_answers.topics(context.services.image, kind)

    def by_name(
        self, names: Iterable[str], refused: Mapping[str, ErrorCode] = MappingProxyType({})
    ) -> MetadataResponse:
        """Describe topics by name. `refused` has the errors of topics that could not be created."""
        return self._respond([self._describe(name, refused.get(name)) for name in names])

    def by_id(self, topic_ids: Iterable[TopicId]) -> MetadataResponse:
        known = [topic_id for topic_id in dict.fromkeys(topic_ids) if topic_id != NO_TOPIC_ID]
        return self._respond([self._describe_id(topic_id) for topic_id in known])

    def refuse_all(self, topics: Iterable[MetadataRequestTopic]) -> MetadataResponse:
        return self._respond(
            [
                self._topic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.get("topic_id", NO_TOPIC_ID))
                for topic in topics
            ]
        )

    def _respond(self, topics: list[MetadataResponseTopic]) -> MetadataResponse:
        services = self._context.services
        wants_operations = self._request.get("include_cluster_authorized_operations", False)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in self._brokers
            ],
            cluster_id=services.cluster_id,
            controller_id=services.controller_id(self._live),
            topics=topics,
            cluster_authorized_operations=cluster_operations(self._context, requested=wants_operations),
            error_code=ErrorCode.NONE,
        )

    def _describe_id(self, topic_id: TopicId) -> MetadataResponseTopic:
        found = self._context.services.image.topic_by_id(topic_id)
        return self._topic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) if found is None else self._found(found)

    def _describe(self, name: str, refusal: ErrorCode | None) -> MetadataResponseTopic:
        found = self._context.services.image.topics.get(name)
        if found is not None:
            return self._found(found)
        if name_problem(name) is not None:
            return self._topic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        return self._topic(refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    def _found(self, topic: TopicImage) -> MetadataResponseTopic:
        described = self._described.get(topic.name)
        if described is None or described.topic is not topic:
            partitions = [self._partition(partition) for _, partition in sorted(topic.partitions.items())]
            answer = freeze(self._topic(ErrorCode.NONE, topic.name, topic.topic_id, partitions))
            described = self._described[topic.name] = TopicAnswer(topic, answer)
        return described.answer

    def _topic(
        self,
        code: ErrorCode,
        name: str | None,
        topic_id: TopicId = NO_TOPIC_ID,
        partitions: Sequence[MetadataResponsePartition] = (),
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=list(partitions),
            topic_authorized_operations=self._operations,
        )

    def _partition(self, partition: PartitionImage) -> MetadataResponsePartition:
        live, replicas, isr = self._live, list(partition.replicas), list(partition.isr)
        if self._context.api_version == 0:
            # v0 has no offline replicas: they are left out, and REPLICA_NOT_AVAILABLE says that some are missing.
            replicas, isr = [[node for node in nodes if node in live] for nodes in (replicas, isr)]
        code = ErrorCode.NONE
        if partition.leader not in live:
            code = self._leader_error(partition.leader)
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=partition.index,
            leader_id=partition.leader if partition.leader in live else -1,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(self._context.services.image, partition, live),
        )

    def _leader_error(self, leader: NodeId) -> ErrorCode:
        broker = self._context.services.image.brokers.get(leader)
        lives_elsewhere = broker is not None and not broker.fenced
        if lives_elsewhere and self._context.api_version >= _LISTENER_NOT_FOUND_SINCE:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE
