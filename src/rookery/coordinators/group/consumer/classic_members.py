"""Members of a consumer group that still use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The server assigns their partitions as it does for the others, and there is no leader. A member's generation is its
epoch. JoinGroup moves the member towards its target, SyncGroup returns the partitions that it owns, and Heartbeat
returns REBALANCE_IN_PROGRESS when the member must join again. It then has its rebalance time-out to join, and after
that the same time to send SyncGroup.
"""

from collections.abc import Sequence
from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.group import CONSUMER_PROTOCOL_TYPE, Protocols
from rookery.coordinators.group.classic.results import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.draft import Draft
from rookery.coordinators.group.consumer.environment import Environment, ErrorResponse, MemberTimer, TimerKind
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.heartbeat import known_static_member, unknown_member
from rookery.coordinators.group.consumer.member import ClassicMembership, ClassicProtocol, Member, MemberState
from rookery.coordinators.group.consumer.migration import embedded_assignment, to_ids
from rookery.coordinators.group.consumer.rebalance import advance_member, assign, refresh, remove, restart_session
from rookery.coordinators.result import Timer
from rookery.protocol import consumer_protocol


def join(draft: Draft, request: JoinRequest, new_member_id: str, environment: Environment) -> JoinResult:
    group = draft.group
    if not environment.classic_settings.allows_session(request.session_timeout_ms):
        return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
    member_id = request.member_id or new_member_id
    if not group.has_capacity_for(member_id, request.instance_id, environment.settings.size_max):
        return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
    subscription = consumer_protocol.read_subscription(request.protocols[0][1]) if request.protocols else None
    if subscription is None or not _supports(group, request.protocol_type, request.protocols, member_id):
        return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.needs_member_id and not request.member_id and request.instance_id is None:
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    found = _find_or_add(draft, request, member_id)
    if isinstance(found, ErrorResponse):
        return JoinResult(found.code, request.member_id)
    is_new = found.member_id not in draft.group.members
    member = _updated(found, request, subscription)
    if is_new or member != found:
        draft.set_member(member)
    changed = is_new or (member.topic_names, member.topic_regex) != (found.topic_names, found.topic_regex)
    refresh(draft, environment, changed=changed)
    assign(draft, environment)
    member = advance_member(draft, member, to_ids(subscription.owned, environment))
    _expect_sync(draft, member, environment)
    assert member.classic is not None
    return JoinResult(
        ErrorCode.NONE, member.member_id, member.member_epoch, CONSUMER_PROTOCOL_TYPE, member.classic.protocol_name
    )


def _find_or_add(draft: Draft, request: JoinRequest, member_id: str) -> Member | ErrorResponse:
    group = draft.group
    if request.instance_id is None:
        return group.members.get(member_id) or Member(member_id=member_id)
    existing = group.static_member(request.instance_id)
    if request.member_id:
        return known_static_member(existing, member_id, request.instance_id)
    return Member(member_id=member_id) if existing is None else draft.replace_member(existing, member_id)


def _updated(member: Member, request: JoinRequest, subscription: consumer_protocol.Subscription) -> Member:
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=subscription.topics,
        topic_regex="",
        server_assignor=None,
        classic=ClassicMembership(
            request.session_timeout_ms, tuple(ClassicProtocol(name, metadata) for name, metadata in request.protocols)
        ),
    )


def _supports(group: ConsumerGroup, protocol_type: str, protocols: Protocols, member_id: str) -> bool:
    """Whether all classic members would have a protocol in common; without one, a downgrade would be impossible."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
        return False
    shared = {name for name, _ in protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != member_id:
            shared &= {offered.name for offered in member.classic.protocols}
    return bool(shared)


def _expect_sync(draft: Draft, member: Member, environment: Environment) -> None:
    restart_session(draft, member, environment)
    _set_timer(draft, TimerKind.REJOIN, member, None)
    _set_timer(draft, TimerKind.SYNC, member, member.rebalance_timeout_ms)
    if member.member_id in draft.volatile.rejoining:
        draft.set_volatile(rejoining=draft.volatile.rejoining - {member.member_id})


def _set_timer(draft: Draft, kind: TimerKind, member: Member, delay_ms: int | None) -> None:
    draft.timers.append(Timer(MemberTimer(kind, draft.group.group_id, member.member_id), delay_ms))


def sync(draft: Draft, request: SyncRequest, environment: Environment) -> SyncResult:
    member = _find(draft.group, request.member_id, request.instance_id)
    if isinstance(member, ErrorCode):
        return SyncResult(member)
    code = _check_sync(member, request)
    if code is not ErrorCode.NONE:
        return SyncResult(code)
    # A member with partitions to revoke gets its reduced assignment first: it revokes them upon that, and the others
    # wait for it.
    if draft.group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_rejoin(draft, member)
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    _set_timer(draft, TimerKind.SYNC, member, None)
    restart_session(draft, member, environment)
    assigned = embedded_assignment(member, environment)
    return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assigned)


def _check_sync(member: Member, request: SyncRequest) -> ErrorCode:
    assert member.classic is not None
    if request.generation != member.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, member.classic.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def heartbeat(draft: Draft, request: HeartbeatRequest, environment: Environment) -> ErrorCode:
    group = draft.group
    member = _find(group, request.member_id, request.instance_id)
    if isinstance(member, ErrorCode):
        return member
    if request.generation != member.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    restart_session(draft, member, environment)
    if not _must_rejoin(group, member):
        return ErrorCode.NONE
    _expect_rejoin(draft, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _must_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """Whether a JoinGroup could move the member towards its target."""
    if member.member_epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = assignment.difference(group.target_of(member.member_id), member.assigned)
    return all(group.is_free(partition) for partition in assignment.partitions_of(missing))


def _expect_rejoin(draft: Draft, member: Member) -> None:
    """Start the member's rejoin timer, unless it runs.

    Restarting it with each Heartbeat would let a member that never joins hold its partitions for ever.
    """
    if member.member_id not in draft.volatile.rejoining:
        draft.set_volatile(rejoining=draft.volatile.rejoining | {member.member_id})
        _set_timer(draft, TimerKind.REJOIN, member, member.rebalance_timeout_ms)


def leave(draft: Draft, members: Sequence[LeavingMember], environment: Environment) -> tuple[LeftMember, ...]:
    left: list[LeftMember] = []
    leaving: dict[str, Member] = {}
    for item in members:
        found = _find_leaving(draft.group, item)
        if isinstance(found, Member) and found.member_id not in leaving:
            leaving[found.member_id] = found
            left.append(LeftMember(found.member_id, item.instance_id, ErrorCode.NONE))
        else:
            code = found if isinstance(found, ErrorCode) else ErrorCode.UNKNOWN_MEMBER_ID
            left.append(LeftMember(item.member_id, item.instance_id, code))
    if leaving:
        remove(draft, list(leaving.values()), environment)
    return tuple(left)


def _find_leaving(group: ConsumerGroup, leaving: LeavingMember) -> Member | ErrorCode:
    """Find a leaving member. An administrator names a static member by its instance id alone, of either protocol."""
    if leaving.instance_id is not None and not leaving.member_id:
        return group.static_member(leaving.instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    return _find(group, leaving.member_id, leaving.instance_id)


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member | ErrorCode:
    """Find a member that uses the classic protocol."""
    found: Member | ErrorResponse
    if instance_id is not None:
        found = known_static_member(group.static_member(instance_id), member_id, instance_id)
    else:
        found = group.members.get(member_id) or unknown_member(group, member_id)
    if isinstance(found, ErrorResponse):
        return found.code
    return found if found.classic is not None else ErrorCode.UNKNOWN_MEMBER_ID
