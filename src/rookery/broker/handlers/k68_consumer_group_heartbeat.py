"""ConsumerGroupHeartbeat (68): members of the new protocol join, stay alive and leave with this request (KIP-848).

A member joins with epoch 0 and leaves with -1, or with -2 if it is static and will return. A request has the fields
that changed since the last one, and null for the others; the assignment in the response is null if the member has it
already. While the feature `group.version` is at level 0 there is no such protocol: UNSUPPORTED_VERSION.

Versions: v1 has the topic pattern, and the client generates the member's id; in v0 it may be empty, and the coordinator
generates it.
"""

from collections.abc import Awaitable
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.broker.visibility import visible_topics
from rookery.coordinators.group.consumer.assignment import Assignment, collect, in_order
from rookery.coordinators.group.consumer.environment import ErrorResponse
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest, HeartbeatResponse, validate
from rookery.coordinators.runtime import ResponseFuture
from rookery.metadata.features import GROUP_VERSION, GROUP_VERSION_LEVEL
from rookery.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_MEMBER_ID_REQUIRED_SINCE = 1


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if context.services.image.feature_level(GROUP_VERSION) < GROUP_VERSION_LEVEL:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION, f"the feature {GROUP_VERSION} is at level 0")
    groups, beat = context.services.groups, _request(context, request)
    problem = validate(
        beat,
        groups.consumer_settings.assignors,
        member_id_required=context.api_version >= _MEMBER_ID_REQUIRED_SINCE,
    )
    if problem is not None:
        return _refuse(problem.code, problem.message)
    # mypy cannot infer the type of a union of unions.
    answer: ResponseFuture[Any] = groups.consumer_heartbeat(beat)
    return respond(answer, _respond)


def _request(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    names = request.subscribed_topic_names
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.get("subscribed_topic_regex"),
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        visible=visible_topics(context),
    )


def _owned(topics: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None) -> Assignment | None:
    if topics is None:
        return None
    return collect((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _respond(result: HeartbeatResponse | ErrorResponse | ErrorCode) -> ConsumerGroupHeartbeatResponse:
    if isinstance(result, ErrorCode):
        return _refuse(result, None)
    if isinstance(result, ErrorResponse):
        return _refuse(result.code, result.message)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(assignment: Assignment) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(assignment)
        ]
    )


def _refuse(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )
