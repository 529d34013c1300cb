"""The consumer groups of a shard: decisions for each request and timer that concerns them.

`Groups` is the shard's own mapping, in which groups of both kinds share one namespace of ids; it is only read here. A
function that takes a ConsumerGroup is called after the shard has found the id's group to be one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import HeartbeatRequest as ClassicHeartbeatRequest
from rookery.coordinators.group.classic.results import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.consumer import classic_members, heartbeat
from rookery.coordinators.group.consumer.draft import Draft
from rookery.coordinators.group.consumer.environment import Environment, ErrorResponse, MemberTimer, TimerKind
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.coordinators.group.consumer.member import JOIN_EPOCH, MemberState
from rookery.coordinators.group.consumer.migration import finish, upgrade
from rookery.coordinators.group.consumer.rebalance import remove, restart_session
from rookery.coordinators.result import CoordinatorResult, Timer, TimerKey

Groups: TypeAlias = Mapping[str, ClassicGroup | ConsumerGroup]


def consumer_heartbeat(
    groups: Groups, request: HeartbeatRequest, environment: Environment
) -> CoordinatorResult[HeartbeatResponse | ErrorResponse]:
    """Decide a valid ConsumerGroupHeartbeat (see `heartbeat.validate`) that has a member id."""
    draft = _open(groups.get(request.group_id), request, environment)
    if isinstance(draft, ErrorResponse):
        return CoordinatorResult(response=draft)
    if request.is_leave:
        member = heartbeat.find_leaving(draft.group, request)
        if isinstance(member, ErrorResponse):
            return CoordinatorResult(response=member)
        response: Any = heartbeat.leave(draft, request, member, environment)
    else:
        response = heartbeat.heartbeat(draft, request, environment)
    if isinstance(response, ErrorResponse):
        # A rejected request changes nothing, not even the kind of the group: the draft is discarded.
        return CoordinatorResult(response=response)
    return finish(draft, response, environment)


def _open(
    group: ClassicGroup | ConsumerGroup | None, request: HeartbeatRequest, environment: Environment
) -> Draft | ErrorResponse:
    if isinstance(group, ConsumerGroup):
        return Draft(group)
    if request.member_epoch != JOIN_EPOCH:
        reason = "not found" if group is None else "is not a consumer group"
        return ErrorResponse(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {reason}.")
    return Draft(ConsumerGroup(request.group_id)) if group is None else upgrade(group, environment)


def classic_join(
    group: ConsumerGroup, request: JoinRequest, new_id: Callable[[], str], environment: Environment
) -> CoordinatorResult[JoinResult]:
    draft = Draft(group)
    member_id = f"{request.instance_id or request.client_id}-{new_id()}"
    result = classic_members.join(draft, request, member_id, environment)
    if result.error_code is not ErrorCode.NONE:
        return CoordinatorResult(response=result)
    return finish(draft, result, environment)


def classic_sync(group: ConsumerGroup, request: SyncRequest, environment: Environment) -> CoordinatorResult[SyncResult]:
    draft = Draft(group)
    return draft.result(classic_members.sync(draft, request, environment))


def classic_heartbeat(
    group: ConsumerGroup, request: ClassicHeartbeatRequest, environment: Environment
) -> CoordinatorResult[ErrorCode]:
    draft = Draft(group)
    return draft.result(classic_members.heartbeat(draft, request, environment))


def classic_leave(
    group: ConsumerGroup, members: Sequence[LeavingMember], environment: Environment
) -> CoordinatorResult[LeaveResult]:
    draft = Draft(group)
    left = classic_members.leave(draft, members, environment)
    return finish(draft, LeaveResult(ErrorCode.NONE, left), environment)


def expire_member(groups: Groups, timer: TimerKey, environment: Environment) -> CoordinatorResult[None]:
    """Remove a member whose timer has fired."""
    assert isinstance(timer, MemberTimer)
    group = groups.get(timer.group_id)
    member = group.members.get(timer.member_id) if isinstance(group, ConsumerGroup) else None
    if not isinstance(group, ConsumerGroup) or member is None:
        return CoordinatorResult(response=None)
    if timer.kind is TimerKind.REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # It has acknowledged the revocation in time.
        return CoordinatorResult(response=None)
    draft = Draft(group)
    remove(draft, [member], environment)
    return finish(draft, None, environment)


def timers_after_loading(groups: Groups, environment: Environment) -> Iterator[Timer]:
    """Yield the timers of a loaded shard: each member has its full session, and its full time for a revocation."""
    for group in groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        draft = Draft(group)
        for member in group.members.values():
            restart_session(draft, member, environment)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                key = MemberTimer(TimerKind.REVOCATION, group.group_id, member.member_id)
                draft.timers.append(Timer(key, member.rebalance_timeout_ms))
        yield from draft.timers
