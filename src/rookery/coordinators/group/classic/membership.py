"""Staying in a classic group, and leaving it: Heartbeat, LeaveGroup, and sessions that end."""

from collections.abc import Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.rebalance import complete_if_all_joined, rebalance_or_complete
from rookery.coordinators.group.classic.results import HeartbeatRequest, LeaveResult, LeavingMember, LeftMember
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.classic.turn import Turn
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.result import CoordinatorResult, Timer


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest) -> CoordinatorResult[ErrorCode]:
    if group is None:
        return CoordinatorResult(response=ErrorCode.UNKNOWN_MEMBER_ID)
    code = group.check_member(request.member_id, request.instance_id)
    if code is ErrorCode.NONE and request.generation != group.generation:
        code = ErrorCode.ILLEGAL_GENERATION
    if code is not ErrorCode.NONE:
        return CoordinatorResult(response=code)
    if group.state is State.PREPARING_REBALANCE:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return CoordinatorResult(response=code, timers=(session_timer(group, request.member_id),))


def session_timer(group: ClassicGroup, member_id: str) -> Timer:
    """A sign of life: the member's session begins anew."""
    return Timer(SessionTimer(group.group_id, member_id), group.members[member_id].session_timeout_ms)


def leave(
    group: ClassicGroup | None, members: Sequence[LeavingMember], *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[LeaveResult]:
    if group is None:
        left = tuple(LeftMember(item.member_id, item.instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for item in members)
        return CoordinatorResult(response=LeaveResult(ErrorCode.NONE, left))
    turn = Turn(group, settings, now_ms)
    left = tuple(LeftMember(item.member_id, item.instance_id, _leave(turn, item)) for item in members)
    _after_removal(turn, len(group.members))
    return turn.decision(LeaveResult(ErrorCode.NONE, left))


def _leave(turn: Turn, leaving: LeavingMember) -> ErrorCode:
    group, member_id = turn.group, leaving.member_id
    if not member_id and leaving.instance_id is not None:
        # An administrator removes a static member without knowing its present id.
        member_id = group.instances.get(leaving.instance_id, "")
    if member_id in group.pending_joins and leaving.instance_id is None:
        _forget_pending(turn, member_id)
        return ErrorCode.NONE
    code = group.check_member(member_id, leaving.instance_id)
    if code is ErrorCode.NONE:
        turn.remove_member(group.members[member_id])
    return code


def on_session_timer(turn: Turn, member_id: str) -> None:
    """A member that waits for an answer is alive, unless it is new and has waited too long."""
    member, size_before = turn.group.members.get(member_id), len(turn.group.members)
    if member_id in turn.group.pending_joins:
        _forget_pending(turn, member_id)
    elif member is not None and (member.is_new or not member.is_waiting):
        turn.remove_member(member)
    _after_removal(turn, size_before)


def _forget_pending(turn: Turn, member_id: str) -> None:
    del turn.group.pending_joins[member_id]
    turn.set_timer(SessionTimer(turn.group.group_id, member_id), None)


def _after_removal(turn: Turn, size_before: int) -> None:
    """A group without members goes through the rebalance as well: that writes the empty generation."""
    if len(turn.group.members) < size_before:
        rebalance_or_complete(turn)
    else:
        complete_if_all_joined(turn)
