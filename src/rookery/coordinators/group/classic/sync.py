"""SyncGroup of a classic group: the leader brings the assignments, the members fetch theirs."""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import SyncRequest, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.classic.turn import Turn
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SyncTimer
from rookery.coordinators.result import PARKED, CoordinatorResult, Parked, Token


def sync(
    group: ClassicGroup | None, request: SyncRequest, token: Token, *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[SyncResult]:
    code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check(group, request)
    if group is None or code is not ErrorCode.NONE:
        return CoordinatorResult(response=SyncResult(code))
    turn = Turn(group, settings, now_ms)
    return turn.decision(_sync(turn, request, token))


def _check(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    code = group.check_member(request.member_id, request.instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE


def _sync(turn: Turn, request: SyncRequest, token: Token) -> SyncResult | Parked:
    group, member = turn.group, turn.group.members[request.member_id]
    group.pending_syncs.pop(member.member_id, None)
    if group.state is State.STABLE:
        turn.restart_session(member)
        _stop_waiting(turn)
        return assigned(group, member.member_id)
    # Of two requests of one member, the older one has lost its sender.
    member = turn.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.leader_id != member.member_id:
        group.update(replace(member, sync_token=token))
        return PARKED
    _assign(turn, dict(request.assignments))
    return assigned(group, member.member_id)


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    """Members that the leader did not name get nothing to do; names of others are ignored."""
    group = turn.group
    group.move_to(State.STABLE, turn.now_ms)
    for member in list(group.members.values()):
        group.update(replace(member, assignment=assignments.get(member.member_id, b"")))
    for member in list(group.members.values()):
        turn.answer_sync(member, assigned(group, member.member_id))
        turn.restart_session(member)
    _stop_waiting(turn)
    turn.store()


def _stop_waiting(turn: Turn) -> None:
    if not turn.group.pending_syncs:
        turn.set_timer(SyncTimer(turn.group.group_id), None)


def assigned(group: ClassicGroup, member_id: str) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, group.members[member_id].assignment)
