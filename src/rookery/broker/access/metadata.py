"""The guard of Metadata: topics that a client may not describe are errors, or left out of a list of all topics.

A response never tells whether a topic exists that its client may not describe. The handler's responses are cached and
shared by all clients (`broker.known_answers`), so what depends on the client is added here: the handler is never asked
for authorized operations if there is an authorizer.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicId
from rookery.broker.access.guards import Restricted, Verdict, with_fields
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.broker.visibility import NO_OPERATIONS, allowed_bits, cluster_operations
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.message import Struct
from rookery.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

_TOPIC: Final = AclResourceType.TOPIC
_NULL_MEANS_ALL_SINCE = 1
_TOPIC_IDS_SINCE = 12


class _Topics(NamedTuple):
    """The topics that the handler describes, and the errors of the others."""

    left: list[MetadataRequestTopic]
    errors: list[MetadataResponseTopic]


def metadata(client: Client, context: ClusterContext, request: MetadataRequest) -> Verdict:
    topics = request.topics
    if topics is None or (not topics and context.api_version < _NULL_MEANS_ALL_SINCE):
        return _restrict(client, context, request, None)
    if context.api_version < _TOPIC_IDS_SINCE and any(_is_malformed(topic) for topic in topics):
        return None
    if any(_id(topic) != NO_TOPIC_ID for topic in topics):
        return _restrict(client, context, request, _by_id(client, context, topics))
    return _restrict(client, context, request, _by_name(client, context, request))


def _id(topic: MetadataRequestTopic) -> TopicId:
    return topic.get("topic_id", NO_TOPIC_ID)


def _is_malformed(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or _id(topic) != NO_TOPIC_ID


def _by_id(client: Client, context: ClusterContext, topics: Sequence[MetadataRequestTopic]) -> _Topics:
    """Ids are no secret: the error of a denied topic has its id, and no name."""
    names = context.services.image.topic_names
    wanted = {_id(topic): topic for topic in topics if _id(topic) != NO_TOPIC_ID}
    found = {topic_id: names[topic_id] for topic_id in wanted if topic_id in names}
    denied = client.denied(AclOperation.DESCRIBE, _TOPIC, found.values())
    left = [topic for topic_id, topic in wanted.items() if found.get(topic_id) not in denied]
    return _Topics(left, [_failed(None, topic_id) for topic_id, name in found.items() if name in denied])


def _by_name(client: Client, context: ClusterContext, request: MetadataRequest) -> _Topics:
    wanted = {topic.name: topic for topic in request.topics or () if topic.name is not None}
    denied = client.denied(AclOperation.DESCRIBE, _TOPIC, wanted)
    known = context.services.image.topics
    missing = [name for name in wanted if name not in denied and name not in known]
    uncreated = _not_to_create(client, context, request, missing)
    left = [topic for name, topic in wanted.items() if name not in denied and name not in uncreated]
    failed = [_failed(name, is_internal=name in INTERNAL_TOPICS) for name in wanted if name in uncreated]
    return _Topics(left, [*failed, *(_failed(name) for name in wanted if name in denied)])


def _not_to_create(
    client: Client, context: ClusterContext, request: MetadataRequest, missing: Sequence[str]
) -> set[str]:
    """Return the topics that the handler would create, and that the client may not create."""
    if not missing or not request.get("allow_auto_topic_creation", True):
        return set()
    if not context.services.config().boolean("auto.create.topics.enable"):
        return set()
    if client.allows_on_cluster(AclOperation.CREATE, is_logged=False):
        return set()
    return client.denied(AclOperation.CREATE, _TOPIC, missing)


def _failed(name: str | None, topic_id: TopicId = NO_TOPIC_ID, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=[],
        topic_authorized_operations=NO_OPERATIONS,
    )


def _restrict(client: Client, context: ClusterContext, request: MetadataRequest, topics: _Topics | None) -> Verdict:
    """Let the handler describe some topics, or all if `topics` is None, and add what depends on the client."""
    wants_operations = request.get("include_topic_authorized_operations", False)
    wants_cluster_operations = request.get("include_cluster_authorized_operations", False)
    if topics is not None and not topics.errors and not wants_operations and not wants_cluster_operations:
        return None

    def finish(response: MetadataResponse) -> Struct:
        described = response.topics
        if topics is None:
            visible = client.sees(AclOperation.DESCRIBE, _TOPIC)
            described = [each for each in described if each.name is not None and visible[each.name].allowed]
        elif not topics.left:
            # In version 0, the handler takes the empty list for all topics.
            described = []
        if wants_operations:
            described = [_with_operations(client, each) for each in described]
        return with_fields(
            response,
            topics=described if topics is None else [*described, *topics.errors],
            cluster_authorized_operations=cluster_operations(context, requested=wants_cluster_operations),
        )

    reduced = request if topics is None else with_fields(request, topics=topics.left)
    return Restricted(_without_operations(reduced), finish)


def _without_operations(request: Struct) -> Struct:
    return with_fields(request, include_topic_authorized_operations=False, include_cluster_authorized_operations=False)


def _with_operations(client: Client, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    bits = NO_OPERATIONS if topic.name is None else allowed_bits(client, _TOPIC, topic.name)
    return MetadataResponseTopic(**{**vars(topic), "topic_authorized_operations": bits})
