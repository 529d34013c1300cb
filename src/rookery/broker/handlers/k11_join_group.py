"""JoinGroup (11): make a client a member of a classic group in its next generation.

The response is sent when all members have joined, or after the rebalance time-out. An empty group id is
INVALID_GROUP_ID.

Versions: v0 has no rebalance time-out, the session's is used. v1 rebalance time-out. v2 throttle time. v4 a new member
gets its id with MEMBER_ID_REQUIRED and joins again with it (KIP-394), so that a client that stops retrying leaves no
member. v5 group instance id (static membership). v6 flexible. v7 protocol type in the response; before, the protocol's
name may not be null. v8 a reason, for logs. v9 `skip_assignment`: a static leader that came back need not assign.
"""

from collections.abc import Awaitable

import structlog

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.coordinators.group.classic.results import JoinRequest, JoinResult
from rookery.protocol.messages import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

logger = structlog.get_logger(__name__)

_MEMBER_ID_REQUIRED_SINCE = 4
_NULLABLE_PROTOCOL_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    if not request.group_id:
        return _respond(context, request, ErrorCode.INVALID_GROUP_ID)
    reason = request.get("reason")
    if reason:
        logger.info("member joins", group=request.group_id, member=request.member_id, reason=reason)
    answer = context.services.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.get("group_instance_id"),
            client_id=context.client_id or "",
            client_host=f"/{context.connection.peer_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.get("rebalance_timeout_ms", request.session_timeout_ms),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            needs_member_id=context.api_version >= _MEMBER_ID_REQUIRED_SINCE,
            can_skip_assignment=context.api_version >= _SKIP_ASSIGNMENT_SINCE,
        )
    )
    return respond(answer, lambda result: _respond(context, request, result))


def _respond(context: RequestContext, request: JoinGroupRequest, result: JoinResult | ErrorCode) -> JoinGroupResponse:
    joined = JoinResult(result, request.member_id) if isinstance(result, ErrorCode) else result
    no_protocol = None if context.api_version >= _NULLABLE_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=joined.error_code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=no_protocol if joined.protocol_name is None else joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )
