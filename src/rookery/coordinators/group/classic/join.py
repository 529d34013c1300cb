"""JoinGroup of a classic group: which members are admitted, under which member id, and how the group changes."""

from collections.abc import Callable
from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.rebalance import (
    all_members,
    begin_rebalance,
    complete_if_all_joined,
    join_result,
    rebalance_or_complete,
)
from rookery.coordinators.group.classic.results import JoinRequest, JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.result import PARKED, CoordinatorResult, Parked, Token

# How long a new member may wait for its first generation: while its JoinGroup waits it can send no heartbeats.
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
    """Decide a JoinGroup; `new_id` returns the random part of member ids."""
    if not settings.allows_session(request.session_timeout_ms):
        return _rejected(ErrorCode.INVALID_SESSION_TIMEOUT, request)
    if group is None:
        if request.member_id:
            return _rejected(ErrorCode.UNKNOWN_MEMBER_ID, request)
        group = ClassicGroup(group_id=request.group_id)
    if not _has_capacity(group, request, settings):
        return CoordinatorResult(response=JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    if not group.supports(request.protocol_type, request.protocols):
        return _rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request)
    draft = ClassicDraft(group, settings, now_ms)
    response = (
        _join_as_member(draft, request, token) if request.member_id else _join_as_new(draft, request, token, new_id)
    )
    if isinstance(response, JoinResult) and response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return CoordinatorResult(response=response)
    return draft.result(response)


def _rejected(code: ErrorCode, request: JoinRequest) -> CoordinatorResult[JoinResult]:
    return CoordinatorResult(response=JoinResult(code, request.member_id))


def _has_capacity(group: ClassicGroup, request: JoinRequest, settings: GroupSettings) -> bool:
    """Whether the group may take the member. While a rebalance is prepared, only members that have joined it count."""
    member = group.members.get(request.member_id)
    if request.instance_id in group.instances:
        return True
    if group.state is State.PREPARING_REBALANCE:
        waiting = sum(other.join_token is not None for other in group.members.values())
        return (member is not None and member.join_token is not None) or waiting < settings.size_max
    return member is not None or len(group.members) < settings.size_max


def _join_as_new(
    draft: ClassicDraft, request: JoinRequest, token: Token, new_id: Callable[[], str]
) -> JoinResult | Parked:
    group = draft.group
    member_id = f"{request.instance_id or request.client_id}-{new_id()}"
    if request.instance_id is not None:
        known = group.instances.get(request.instance_id)
        if known is not None:
            return _take_over(draft, group.members[known], member_id, request, token)
    elif request.needs_member_id:
        # The client joins again with this id. Without this step, a client that repeats a JoinGroup after a lost
        # connection would add a member each time, and every rebalance would wait for the dead ones to expire.
        group.pending_joins[member_id] = None
        draft.set_timer(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return _add(draft, member_id, request, token)


def _join_as_member(draft: ClassicDraft, request: JoinRequest, token: Token) -> JoinResult | Parked:
    group = draft.group
    if request.member_id in group.pending_joins:
        return _add(draft, request.member_id, request, token)
    code = group.check_member(request.member_id, request.instance_id)
    if code is not ErrorCode.NONE:
        return JoinResult(code, request.member_id)
    member = group.members[request.member_id]
    if _missed_response(group, member, request):
        return join_result(group, member)
    if group.state is State.EMPTY:
        return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    _update(draft, member, request, token)
    rebalance_or_complete(draft)
    return PARKED


def _missed_response(group: ClassicGroup, member: Member, request: JoinRequest) -> bool:
    """Whether a member that joins again, with the same protocols, did so because it missed the response.

    A leader of a stable group that does so requests a rebalance, for example because topics have changed.
    """
    if member.protocols != request.protocols:
        return False
    if group.state is State.STABLE:
        return group.leader_id != member.member_id
    return group.state is State.COMPLETING_REBALANCE


def _add(draft: ClassicDraft, member_id: str, request: JoinRequest, token: Token) -> Parked:
    group = draft.group
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
    draft.set_timer(SessionTimer(group.group_id, member_id), NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete(draft)
    return PARKED


def _update(draft: ClassicDraft, member: Member, request: JoinRequest, token: Token) -> Member:
    # When a member has two requests, its connection was lost and it has sent the second one on another.
    member = draft.respond_to_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    updated = replace(
        member,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        join_token=token,
    )
    draft.group.update(updated)
    return updated


def _take_over(
    draft: ClassicDraft, member: Member, member_id: str, request: JoinRequest, token: Token
) -> JoinResult | Parked:
    """Replace a static member by a process that joined with its instance id, under a new member id."""
    group, former_leader = draft.group, draft.group.leader_id
    # The former process may be alive. Its waiting requests are fenced, or it would take part in the group next to its
    # successor and read the same partitions.
    member = draft.respond_to_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    member = draft.respond_to_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    draft.set_timer(SessionTimer(group.group_id, member.member_id), None)
    member = group.rename(member, member_id)
    draft.restart_session(member)
    member = _update(draft, member, request, token)
    # If the successor's protocols would change the group's protocol, the present assignments may be unreadable to it:
    # it cannot continue the generation.
    if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
        return _continue_generation(draft, member, request, former_leader)
    if group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(draft)
    else:
        begin_rebalance(draft)
    return PARKED


def _continue_generation(
    draft: ClassicDraft, member: Member, request: JoinRequest, former_leader: str | None
) -> JoinResult | Parked:
    """Give the member its predecessor's assignment, without a rebalance.

    If it is the leader it must not assign again. Since v9 the response says so (`skip_assignment`); before v9 it names
    the predecessor as leader, so that the member acts as a follower.
    """
    group = draft.group
    group.update(replace(member, join_token=None))
    draft.store()
    is_leader = group.leader_id == member.member_id
    result = join_result(group, member)._replace(members=())
    if not request.can_skip_assignment:
        return result._replace(leader=former_leader or "")
    return result._replace(skip_assignment=is_leader, members=all_members(group) if is_leader else ())
