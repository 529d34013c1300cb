"""SyncGroup of a classic group: the leader sends all assignments, and each member receives its own."""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import SyncRequest, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SyncTimer
from rookery.coordinators.result import PARKED, CoordinatorResult, Parked, Token


def sync(
    group: ClassicGroup | None, request: SyncRequest, token: Token, *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[SyncResult]:
    code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check(group, request)
    if group is None or code is not ErrorCode.NONE:
        return CoordinatorResult(response=SyncResult(code))
    draft = ClassicDraft(group, settings, now_ms)
    return draft.result(_sync(draft, request, token))


def _check(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    code = group.check_member(request.member_id, request.instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation != group.generation:
        # A late SyncGroup of a former leader would give this generation assignments made for other members.
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE


def _sync(draft: ClassicDraft, request: SyncRequest, token: Token) -> SyncResult | Parked:
    group, member = draft.group, draft.group.members[request.member_id]
    group.pending_syncs.pop(member.member_id, None)
    if group.state is State.STABLE:
        draft.restart_session(member)
        _stop_waiting(draft)
        return sync_result(group, member.member_id)
    # When a member has two requests, its connection was lost and it has sent the second one on another.
    member = draft.respond_to_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.leader_id != member.member_id:
        group.update(replace(member, sync_token=token))
        return PARKED
    _assign(draft, dict(request.assignments))
    return sync_result(group, member.member_id)


def _assign(draft: ClassicDraft, assignments: dict[str, bytes]) -> None:
    """Store the leader's `assignments` and respond to all that wait. Members that it does not name get an empty one."""
    group = draft.group
    group.move_to(State.STABLE, draft.now_ms)
    for member in list(group.members.values()):
        group.update(replace(member, assignment=assignments.get(member.member_id, b"")))
    for member in list(group.members.values()):
        draft.respond_to_sync(member, sync_result(group, member.member_id))
        draft.restart_session(member)
    _stop_waiting(draft)
    draft.store()


def _stop_waiting(draft: ClassicDraft) -> None:
    if not draft.group.pending_syncs:
        draft.set_timer(SyncTimer(draft.group.group_id), None)


def sync_result(group: ClassicGroup, member_id: str) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, group.members[member_id].assignment)
