"""Heartbeat (12): a member of a classic group is alive; the response says whether it must join again.

Versions: v1 throttle time. v3 group instance id. v4 flexible.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.coordinators.group.classic import results
from rookery.protocol.messages import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        return _respond(ErrorCode.INVALID_GROUP_ID)
    answer = context.services.groups.heartbeat(
        results.HeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.get("group_instance_id"),
            generation=request.generation_id,
        )
    )
    return respond(answer, _respond_heartbeat)


def _respond_heartbeat(code: ErrorCode) -> HeartbeatResponse:
    # With COORDINATOR_LOAD_IN_PROGRESS a client would look for another coordinator. NONE lets it continue.
    return _respond(ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def _respond(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
