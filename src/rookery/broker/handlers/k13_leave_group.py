"""LeaveGroup (13): members leave, or an administrator removes them.

A static member is removed by its instance id alone, or together with its member id, which must then be the current one.

Versions: up to v2 one member, whose error is that of the response. v1 throttle time. v3 several members, each with its
error and perhaps an instance id. v4 flexible. v5 a reason, for logs.
"""

from collections.abc import Awaitable

import structlog

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.coordinators.group.classic.results import LeaveResult, LeavingMember
from rookery.protocol.messages import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

logger = structlog.get_logger(__name__)

MEMBERS_SINCE = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    if not request.group_id:
        return _respond(context, ErrorCode.INVALID_GROUP_ID)
    if context.api_version < MEMBERS_SINCE:
        members = [LeavingMember(request.get("member_id", ""))]
    else:
        members = [LeavingMember(each.member_id, each.group_instance_id) for each in request.get("members", ())]
    for member in request.get("members", ()):
        if reason := member.get("reason"):
            logger.info("member leaves", group=request.group_id, member=member.member_id, reason=reason)
    answer = context.services.groups.leave(request.group_id, members)
    return respond(answer, lambda result: _respond(context, result))


def _respond(context: RequestContext, result: LeaveResult | ErrorCode) -> LeaveGroupResponse:
    left = LeaveResult(result) if isinstance(result, ErrorCode) else result
    code = left.error_code
    if context.api_version < MEMBERS_SINCE and left.members:
        code = left.members[0].error_code
    return LeaveGroupResponse(
        error_code=code,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error_code
            )
            for member in left.members
        ],
    )
