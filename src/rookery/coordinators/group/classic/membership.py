"""Heartbeat and LeaveGroup of classic groups, and sessions that expire."""

from collections.abc import Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.rebalance import complete_if_all_joined, rebalance_or_complete
from rookery.coordinators.group.classic.results import HeartbeatRequest, LeaveResult, LeavingMember, LeftMember
from rookery.coordinators.group.classic.states import State
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
    """Return the timer that restarts a member's session."""
    return Timer(SessionTimer(group.group_id, member_id), group.members[member_id].session_timeout_ms)


def leave(
    group: ClassicGroup | None, members: Sequence[LeavingMember], *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[LeaveResult]:
    if group is None:
        left = tuple(LeftMember(item.member_id, item.instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for item in members)
        return CoordinatorResult(response=LeaveResult(ErrorCode.NONE, left))
    draft = ClassicDraft(group, settings, now_ms)
    left = tuple(LeftMember(item.member_id, item.instance_id, _leave(draft, item)) for item in members)
    _after_removal(draft, len(group.members))
    return draft.result(LeaveResult(ErrorCode.NONE, left))


def _leave(draft: ClassicDraft, leaving: LeavingMember) -> ErrorCode:
    group, member_id = draft.group, leaving.member_id
    if not member_id and leaving.instance_id is not None:
        # An administrator removes a static member by its instance id, without its present member id.
        member_id = group.instances.get(leaving.instance_id, "")
    if member_id in group.pending_joins and leaving.instance_id is None:
        _forget_pending(draft, member_id)
        return ErrorCode.NONE
    code = group.check_member(member_id, leaving.instance_id)
    if code is ErrorCode.NONE:
        draft.remove_member(group.members[member_id])
    return code


def on_session_timer(draft: ClassicDraft, member_id: str) -> None:
    """Remove a member, or a pending member id, whose session has expired."""
    member, size_before = draft.group.members.get(member_id), len(draft.group.members)
    if member_id in draft.group.pending_joins:
        _forget_pending(draft, member_id)
    elif member is not None and (member.is_new or not member.is_waiting):
        # A member whose JoinGroup or SyncGroup waits here sends no heartbeats meanwhile and must not expire for that.
        # A new one does expire, after NEW_MEMBER_TIMEOUT_MS: its client may be gone.
        draft.remove_member(member)
    _after_removal(draft, size_before)


def _forget_pending(draft: ClassicDraft, member_id: str) -> None:
    del draft.group.pending_joins[member_id]
    draft.set_timer(SessionTimer(draft.group.group_id, member_id), None)


def _after_removal(draft: ClassicDraft, size_before: int) -> None:
    """Rebalance if members were removed. A group without members does so too: that writes the empty generation."""
    if len(draft.group.members) < size_before:
        rebalance_or_complete(draft)
    else:
        complete_if_all_joined(draft)
