"""JoinGroup of a classic group: who may come in, under which id, and what that does to the group."""

from collections.abc import Callable
from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.rebalance import (
    begin_rebalance,
    complete_if_all_joined,
    everyone,
    joined,
    rebalance_or_complete,
)
from rookery.coordinators.group.classic.results import JoinRequest, JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.classic.turn import Turn
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.result import PARKED, CoordinatorResult, Parked, Token

# How long a new member may wait for its first generation: its session cannot be kept up while it does.
NEW_MEMBER_TIMEOUT_MS = 300_000


def join(
    group: ClassicGroup | None,
    request: JoinRequest,
    token: Token,
    *,
    settings: GroupSettings,
    new_id: Callable[[], str],
    now_ms: TimestampMs,
) -> CoordinatorResult[JoinResult]:
    """`new_id` gives the random part of member ids."""
    if not settings.allows_session(request.session_timeout_ms):
        return _refuse(ErrorCode.INVALID_SESSION_TIMEOUT, request)
    if group is None:
        if request.member_id:
            return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, request)
        group = ClassicGroup(group_id=request.group_id)
    if not _has_room(group, request, settings):
        return CoordinatorResult(response=JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    if not group.supports(request.protocol_type, request.protocols):
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request)
    turn = Turn(group, settings, now_ms)
    response = (
        _join_as_member(turn, request, token) if request.member_id else _join_as_new(turn, request, token, new_id)
    )
    if isinstance(response, JoinResult) and response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return CoordinatorResult(response=response)
    return turn.decision(response)


def _refuse(code: ErrorCode, request: JoinRequest) -> CoordinatorResult[JoinResult]:
    return CoordinatorResult(response=JoinResult(code, request.member_id))


def _has_room(group: ClassicGroup, request: JoinRequest, settings: GroupSettings) -> bool:
    """Members count once they are in a generation; while one is prepared, those count who have joined it."""
    member = group.members.get(request.member_id)
    if request.instance_id in group.instances:
        return True
    if group.state is State.PREPARING_REBALANCE:
        waiting = sum(other.join_token is not None for other in group.members.values())
        return (member is not None and member.join_token is not None) or waiting < settings.size_max
    return member is not None or len(group.members) < settings.size_max


def _join_as_new(turn: Turn, request: JoinRequest, token: Token, new_id: Callable[[], str]) -> JoinResult | Parked:
    group = turn.group
    member_id = f"{request.instance_id or request.client_id}-{new_id()}"
    if request.instance_id is not None:
        known = group.instances.get(request.instance_id)
        if known is not None:
            return _take_over(turn, group.members[known], member_id, request, token)
    elif request.needs_member_id:
        group.pending_joins[member_id] = None
        turn.set_timer(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return _add(turn, member_id, request, token)


def _join_as_member(turn: Turn, request: JoinRequest, token: Token) -> JoinResult | Parked:
    group = turn.group
    if request.member_id in group.pending_joins:
        return _add(turn, request.member_id, request, token)
    code = group.check_member(request.member_id, request.instance_id)
    if code is not ErrorCode.NONE:
        return JoinResult(code, request.member_id)
    member = group.members[request.member_id]
    if _has_lost_its_answer(group, member, request):
        return joined(group, member) if group.state is State.COMPLETING_REBALANCE else _told_again(group, member)
    if group.state is State.EMPTY:
        return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    _update(turn, member, request, token)
    rebalance_or_complete(turn)
    return PARKED


def _has_lost_its_answer(group: ClassicGroup, member: Member, request: JoinRequest) -> bool:
    """A member that joins with what is known of it missed the answer. A leader who does so wants a rebalance."""
    if member.protocols != request.protocols:
        return False
    if group.state is State.STABLE:
        return group.leader_id != member.member_id
    return group.state is State.COMPLETING_REBALANCE


def _told_again(group: ClassicGroup, member: Member) -> JoinResult:
    return joined(group, member)._replace(members=())


def _add(turn: Turn, member_id: str, request: JoinRequest, token: Token) -> Parked:
    group = turn.group
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.has_new_member = True
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        is_new=True,
        join_token=token,
    )
    group.add(member, request.protocol_type)
    turn.set_timer(SessionTimer(group.group_id, member_id), NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete(turn)
    return PARKED


def _update(turn: Turn, member: Member, request: JoinRequest, token: Token) -> Member:
    # Of two requests of one member, the older one has lost its sender.
    member = turn.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    updated = replace(
        member,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        join_token=token,
    )
    turn.group.update(updated)
    return updated


def _take_over(turn: Turn, member: Member, member_id: str, request: JoinRequest, token: Token) -> JoinResult | Parked:
    """A static member came back and gets a new id; the one that had its place, if it lives, is fenced."""
    group, former_leader = turn.group, turn.group.leader_id
    member = turn.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    member = turn.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    turn.set_timer(SessionTimer(group.group_id, member.member_id), None)
    member = group.rename(member, member_id)
    turn.restart_session(member)
    member = _update(turn, member, request, token)
    if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
        return _continue_generation(turn, member, request, former_leader)
    if group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(turn)
    else:
        begin_rebalance(turn)
    return PARKED


def _continue_generation(
    turn: Turn, member: Member, request: JoinRequest, former_leader: str | None
) -> JoinResult | Parked:
    """The member goes on with the assignment that it had, without a rebalance.

    A leader need not assign again, and since v9 can be told so. Before, it is told that its former self is the leader.
    """
    group = turn.group
    group.update(replace(member, join_token=None))
    turn.store()
    is_leader = group.leader_id == member.member_id
    result = joined(group, member)._replace(members=())
    if not request.can_skip_assignment:
        return result._replace(leader=former_leader or "")
    return result._replace(skip_assignment=is_leader, members=everyone(group) if is_leader else ())
