"""SyncGroup (14): a classic group's leader sends the assignments of a generation, and every member gets its own.

The members' responses wait for the leader's request.

Versions: v1 throttle time. v3 group instance id. v4 flexible. v5 protocol type and name, both needed, which must be the
group's (INCONSISTENT_GROUP_PROTOCOL).
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond
from rookery.broker.context import RequestContext
from rookery.coordinators.group.classic.results import SyncRequest, SyncResult
from rookery.protocol.messages import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_SINCE = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if not request.group_id:
        return _respond(ErrorCode.INVALID_GROUP_ID)
    protocol = (request.get("protocol_type"), request.get("protocol_name"))
    if context.api_version >= _PROTOCOL_SINCE and None in protocol:
        return _respond(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = context.services.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.get("group_instance_id"),
            generation=request.generation_id,
            protocol_type=protocol[0],
            protocol_name=protocol[1],
            assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
        )
    )
    return respond(answer, _respond)


def _respond(result: SyncResult | ErrorCode) -> SyncGroupResponse:
    # While the coordinator loads, the member should join again instead of repeating this request.
    if result is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        result = ErrorCode.REBALANCE_IN_PROGRESS
    synced = SyncResult(result) if isinstance(result, ErrorCode) else result
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
