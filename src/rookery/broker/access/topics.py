"""Guards of requests about topics and their records."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.base.topic_names import name_problem
from rookery.base.types import NO_TOPIC_ID
from rookery.broker.access.guards import (
    Asked,
    Guard,
    Restricted,
    Verdict,
    first_denied,
    refuse,
    repeated,
    with_fields,
    without_items,
)
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.metadata.internal_topics import METADATA_TOPIC
from rookery.protocol.message import Struct
from rookery.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    OffsetForLeaderEpochRequest,
)
from rookery.security.authorizer import Rule

_TOPIC: Final = AclResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNKNOWN_COUNT = -1


def topic_name(context: ClusterContext, topic: Any) -> str | None:
    """Return the name of a topic of a request; None if it is named by an id that no topic has."""
    fields = vars(topic)
    topic_id = fields.get("topic_id", NO_TOPIC_ID)
    if topic_id != NO_TOPIC_ID:
        return context.services.image.topic_names.get(topic_id)
    # A request of a version with ids, but without one: the handler refuses it.
    name: str | None = fields.get("name", fields.get("topic"))
    return name


def without_topics(
    client: Client, context: ClusterContext, request: Any, operation: AclOperation, exempt: Collection[str] = ()
) -> Verdict:
    """Take the topics out of a request on which the operation is denied; `exempt` are not asked about."""
    names = [topic_name(context, topic) for topic in request.topics]
    denied = client.denied(operation, _TOPIC, (name for name in names if name is not None and name not in exempt))
    positions = {position for position, name in enumerate(names) if name in denied}
    return without_items(context, request, positions, lambda _: _DENIED)


def on_topics(operation: AclOperation, *asked: Asked) -> Guard:
    """A guard that asks for permissions for the whole request first, then for an operation on each topic."""

    def guard(client: Client, context: ClusterContext, request: Any) -> Verdict:
        code = first_denied(client, request, asked)
        if code is not None:
            return refuse(context, request, code)
        return without_topics(client, context, request, operation)

    return guard


def offset_for_leader_epoch(client: Client, context: ClusterContext, request: OffsetForLeaderEpochRequest) -> Verdict:
    # Followers of old versions, and other nodes, have the permission for the cluster.
    if client.allows_on_cluster(AclOperation.CLUSTER_ACTION, is_logged=False):
        return None
    return without_topics(client, context, request, AclOperation.DESCRIBE)


def describe_producers(client: Client, context: ClusterContext, request: DescribeProducersRequest) -> Verdict:
    invalid = {topic.name for topic in request.topics if name_problem(topic.name) is not None}
    return without_topics(client, context, request, AclOperation.READ, exempt=invalid)


def create_partitions(client: Client, context: ClusterContext, request: CreatePartitionsRequest) -> Verdict:
    return without_topics(client, context, request, AclOperation.ALTER, exempt=_repeated_names(request.topics))


def create_topics(client: Client, context: ClusterContext, request: CreateTopicsRequest) -> Verdict:
    """Ask for CREATE on the cluster or on each topic, and leave out the configs that the client may not describe."""
    exempt = _repeated_names(request.topics) | {METADATA_TOPIC}
    denied: set[int] = set()
    if not client.allows_on_cluster(AclOperation.CREATE, is_logged=False):
        asked = [topic.name for topic in request.topics if topic.name not in exempt]
        names = client.denied(AclOperation.CREATE, _TOPIC, asked)
        denied = {position for position, topic in enumerate(request.topics) if topic.name in names}
    describable = client.sees(AclOperation.DESCRIBE_CONFIGS, _TOPIC)
    hidden = {topic.name for topic in request.topics if not describable[topic.name].allowed}
    verdict = without_items(context, request, denied, lambda _: _DENIED, lambda _: "Authorization failed.")
    if not isinstance(verdict, Restricted):
        return Restricted(request, lambda response: _hide_configs(response, hidden)) if hidden else None
    return verdict._replace(finish=lambda response: _hide_configs(verdict.finish(response), hidden))


def _hide_configs(response: Any, hidden: Collection[str]) -> CreateTopicsResponse:
    """Remove what a topic is configured with; the result of the creation stays."""
    topics = [
        with_fields(
            topic,
            topic_config_error_code=_DENIED,
            num_partitions=_UNKNOWN_COUNT,
            replication_factor=_UNKNOWN_COUNT,
            configs=[],
        )
        if topic.name in hidden and topic.error_code == ErrorCode.NONE
        else topic
        for topic in response.topics
    ]
    return CreateTopicsResponse(**{**vars(response), "topics": topics})


def delete_topics(client: Client, context: ClusterContext, request: DeleteTopicsRequest) -> Verdict:
    """Ask for DELETE on the cluster or on each topic.

    A client that may not describe a topic does not learn from the response whether it exists, or its name.
    """
    if not context.services.config().boolean("delete.topic.enable"):
        return None
    may_delete_all = client.allows_on_cluster(AclOperation.DELETE, is_logged=False)
    by_name = request.get("topic_names")
    if by_name:
        exempt = repeated(by_name)
        denied = {
            position
            for position, name in enumerate(by_name)
            if name not in exempt and _denies_deletion(client, context, name, may_delete_all=may_delete_all)
        }
        return without_items(context, request, denied, lambda _: _DENIED)
    return _delete_topics_by_name_or_id(client, context, request, may_delete_all=may_delete_all)


def _delete_topics_by_name_or_id(
    client: Client, context: ClusterContext, request: DeleteTopicsRequest, *, may_delete_all: bool
) -> Verdict:
    topics = request.get("topics") or []
    exempt = repeated([(topic.name, topic.topic_id) for topic in topics])
    describable = client.sees(AclOperation.DESCRIBE, _TOPIC)
    denied: set[int] = set()
    shown: list[Struct] = []
    for position, topic in enumerate(topics):
        name = topic_name(context, topic)
        is_malformed = topic.name is not None and topic.topic_id != NO_TOPIC_ID
        is_asked = name is not None and not is_malformed and (topic.name, topic.topic_id) not in exempt
        if is_asked and name is not None and _denies_deletion(client, context, name, may_delete_all=may_delete_all):
            denied.add(position)
            # The error of a topic that the client may describe has the name that it did not give.
            is_named = topic.name is not None or not describable[name].allowed
            shown.append(topic if is_named else with_fields(topic, name=name))
        else:
            shown.append(topic)
    return without_items(context, with_fields(request, topics=shown), denied, lambda _: _DENIED)


def _denies_deletion(client: Client, context: ClusterContext, name: str, *, may_delete_all: bool) -> bool:
    """Return whether a topic must not be deleted. One that does not exist may be said not to."""
    if may_delete_all:
        return client.sees(AclOperation.DELETE, _TOPIC)[name].rule is Rule.RESERVED
    if not client.allows(AclOperation.DESCRIBE, _TOPIC, name):
        return True
    return name in context.services.image.topics and not client.allows(AclOperation.DELETE, _TOPIC, name)


def _repeated_names(topics: Iterable[Any]) -> set[Any]:
    return repeated([topic.name for topic in topics])


def describe_topic_partitions(
    client: Client, context: ClusterContext, request: DescribeTopicPartitionsRequest
) -> Verdict:
    """Give errors to listed topics that the client may not describe.

    If none is listed, the handler leaves them out (`visibility.describable_topics`): taken out of its pages, they would
    still be named by the cursors between these.
    """
    cursor, listed = request.cursor, {topic.name for topic in request.topics}
    is_malformed = cursor is not None and (cursor.partition_index < 0 or cursor.topic_name not in listed)
    if not listed or is_malformed:
        return None
    first = "" if cursor is None else cursor.topic_name
    topics = [topic for topic in request.topics if topic.name >= first]
    verdict = without_topics(client, context, with_fields(request, topics=topics), AclOperation.DESCRIBE)
    if not isinstance(verdict, Restricted):
        return None
    left = vars(verdict.request)["topics"]
    if not left:
        # An empty list would mean all topics to the handler.
        return verdict.finish(DescribeTopicPartitionsResponse(topics=[], next_cursor=None))
    if cursor is not None and all(topic.name != first for topic in left):
        # The topic that the page begins with is denied: the page begins with the next one.
        return verdict._replace(request=with_fields(verdict.request, cursor=None))
    return verdict
