"""Guards of requests about consumer groups."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rookery.base.codes import AclOperation, AclResourceType, KeyType
from rookery.base.errors import ErrorCode
from rookery.broker.access.guards import (
    CODES,
    Asked,
    Guard,
    Restricted,
    Verdict,
    item_arrays,
    on_fields,
    refuse,
    with_fields,
    without_items,
)
from rookery.broker.access.topics import on_topics, topic_name
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.metadata.features import GROUP_VERSION, GROUP_VERSION_LEVEL
from rookery.protocol.message import Struct
from rookery.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
)

_GROUP: Final = AclResourceType.GROUP
_TOPIC: Final = AclResourceType.TOPIC
_DESCRIBE: Final = AclOperation.DESCRIBE
_GROUPS_SINCE = 8
_KEYS_SINCE = 4
_PROTOCOL_REQUIRED_SINCE = 5
_NO_OFFSET = -1

READ_GROUP: Final = Asked(AclOperation.READ, _GROUP, "group_id")

# Heartbeat, LeaveGroup.
member: Final[Guard] = on_fields(READ_GROUP)
offset_commit: Final[Guard] = on_topics(AclOperation.READ, READ_GROUP)
offset_delete: Final[Guard] = on_topics(AclOperation.READ, Asked(AclOperation.DELETE, _GROUP, "group_id"))


def join_group(client: Client, context: ClusterContext, request: JoinGroupRequest) -> Verdict:
    refused = member(client, context, request)
    # The response to a refused member has no member id, not even its own.
    return None if refused is None else with_fields(_message(refused), member_id="")


def _message(verdict: Verdict) -> Struct:
    assert isinstance(verdict, Struct)
    return verdict


def sync_group(client: Client, context: ClusterContext, request: SyncGroupRequest) -> Verdict:
    protocol = (request.get("protocol_type"), request.get("protocol_name"))
    if context.api_version >= _PROTOCOL_REQUIRED_SINCE and None in protocol:
        # The handler's error comes first.
        return None
    return member(client, context, request)


def on_names(operation: AclOperation, resource_type: AclResourceType) -> Guard:
    """A guard of a request whose items are the names of resources."""

    def guard(client: Client, context: ClusterContext, request: Struct) -> Verdict:
        names = vars(request)[item_arrays(context.api_key, context.api_version).in_request]
        denied = client.denied(operation, resource_type, names)
        positions = {position for position, name in enumerate(names) if name in denied}
        return without_items(context, request, positions, lambda _: CODES[resource_type])

    return guard


describe_groups: Final[Guard] = on_names(_DESCRIBE, _GROUP)
delete_groups: Final[Guard] = on_names(AclOperation.DELETE, _GROUP)


def list_groups(client: Client, _: ClusterContext, request: ListGroupsRequest) -> Verdict:
    """Show all groups to a client that may describe the cluster, to others those that they may describe."""
    if client.allows_on_cluster(_DESCRIBE, is_logged=False):
        return None
    visible = client.sees(_DESCRIBE, _GROUP)

    def finish(response: ListGroupsResponse) -> Struct:
        return with_fields(response, groups=[each for each in response.groups if visible[each.group_id].allowed])

    return Restricted(request, finish)


_KEY_TYPES: Final[Mapping[int, AclResourceType]] = {
    KeyType.GROUP: _GROUP,
    KeyType.TRANSACTION: AclResourceType.TRANSACTIONAL_ID,
}


def find_coordinator(client: Client, context: ClusterContext, request: FindCoordinatorRequest) -> Verdict:
    resource_type = _KEY_TYPES.get(request.get("key_type", KeyType.GROUP))
    if resource_type is None:
        return None
    if context.api_version < _KEYS_SINCE:
        if client.allows(_DESCRIBE, resource_type, request.get("key", "")):
            return None
        return refuse(context, request, CODES[resource_type])
    return on_names(_DESCRIBE, resource_type)(client, context, request)


# OffsetFetch


def offset_fetch(client: Client, context: ClusterContext, request: OffsetFetchRequest) -> Verdict:
    if context.api_version >= _GROUPS_SINCE:
        return _fetch_offsets_of_groups(client, context, request)
    if not client.allows(_DESCRIBE, _GROUP, request.get("group_id", "")):
        return refuse(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.get("topics") is not None:
        return _OF_TOPICS(client, context, request)
    return Restricted(request, lambda response: with_fields(response, topics=_visible(client, response.topics)))


_OF_TOPICS: Final = on_topics(_DESCRIBE)


def _visible(client: Client, topics: Iterable[Any]) -> list[Any]:
    """Return the topics of a response that the client may describe."""
    denied = client.denied(_DESCRIBE, _TOPIC, (topic.name for topic in topics))
    return [topic for topic in topics if topic.name not in denied]


def _fetch_offsets_of_groups(client: Client, context: ClusterContext, request: OffsetFetchRequest) -> Verdict:
    """Several groups in one request: some may be denied, and some topics of the others."""
    requested = request.get("groups") or []
    denied = client.denied(_DESCRIBE, _GROUP, (group.group_id for group in requested))
    split = [_split_topics(client, context, group) for group in requested if group.group_id not in denied]
    reduced = with_fields(request, groups=[group for group, _ in split])

    def finish(response: OffsetFetchResponse) -> Struct:
        answers = iter(
            _complete(client, group, found, errors)
            for (group, errors), found in zip(split, response.get("groups") or (), strict=True)
        )
        groups = [_denied_group(group) if group.group_id in denied else next(answers) for group in requested]
        return with_fields(response, groups=groups)

    return Restricted(reduced, finish)


def _split_topics(
    client: Client, context: ClusterContext, group: OffsetFetchRequestGroup
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """Return the group without the topics that may not be described, and the errors of these."""
    if group.topics is None:
        return group, []
    names = [topic_name(context, topic) for topic in group.topics]
    denied = client.denied(_DESCRIBE, _TOPIC, (name for name in names if name is not None))
    pairs = list(zip(group.topics, names, strict=True))
    left = [topic for topic, name in pairs if name not in denied]
    errors = [
        OffsetFetchResponseTopics(
            **{key: value for key, value in vars(topic).items() if key in ("name", "topic_id")},
            partitions=[_denied_partition(index) for index in topic.partition_indexes],
        )
        for topic, name in pairs
        if name in denied
    ]
    return OffsetFetchRequestGroup(**{**vars(group), "topics": left}), errors


def _denied_partition(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _complete(
    client: Client,
    group: OffsetFetchRequestGroup,
    found: OffsetFetchResponseGroup,
    errors: list[OffsetFetchResponseTopics],
) -> OffsetFetchResponseGroup:
    if found.error_code != ErrorCode.NONE:
        return found
    topics = _visible(client, found.topics) if group.topics is None else [*found.topics, *errors]
    return OffsetFetchResponseGroup(**{**vars(found), "topics": topics})


def _denied_group(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])


# Groups of the new protocol


def _is_supported(context: ClusterContext) -> bool:
    """Return whether the new protocol is enabled; if not, the handler refuses all requests."""
    return context.services.image.feature_level(GROUP_VERSION) >= GROUP_VERSION_LEVEL


def consumer_group_heartbeat(
    client: Client, context: ClusterContext, request: ConsumerGroupHeartbeatRequest
) -> Verdict:
    """One topic that may not be described fails the heartbeat. What a pattern matches is filtered by the coordinator:
    see `visibility.visible_topics`.
    """
    if not _is_supported(context):
        return None
    if not client.allows(AclOperation.READ, _GROUP, request.group_id):
        return refuse(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if client.denied(_DESCRIBE, _TOPIC, request.subscribed_topic_names or ()):
        return refuse(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def consumer_group_describe(client: Client, context: ClusterContext, request: ConsumerGroupDescribeRequest) -> Verdict:
    if not _is_supported(context):
        return None
    verdict = describe_groups(client, context, request)
    if not isinstance(verdict, Restricted):
        return Restricted(request, lambda response: _hide_groups(client, response))
    return verdict._replace(finish=lambda response: verdict.finish(_hide_groups(client, response)))


def _hide_groups(client: Client, response: ConsumerGroupDescribeResponse) -> Struct:
    """Give an error to groups with topics that the client may not describe."""
    assigned = {each.group_id: _assigned_topics(each) for each in response.groups}
    denied = client.denied(_DESCRIBE, _TOPIC, (name for names in assigned.values() for name in sorted(names)))
    groups = [_hidden(each) if assigned[each.group_id] & denied else each for each in response.groups]
    return with_fields(response, groups=groups)


def _assigned_topics(group: ConsumerGroupDescribeResponseDescribedGroup) -> set[str]:
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment)]
    return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}


def _hidden(group: ConsumerGroupDescribeResponseDescribedGroup) -> ConsumerGroupDescribeResponseDescribedGroup:
    return ConsumerGroupDescribeResponseDescribedGroup(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
        group_id=group.group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
