"""A rebalance from its beginning to the next generation. `join` and `membership` begin one, timers push it on."""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.results import JoinedMember, JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State, can_move
from rookery.coordinators.group.classic.turn import Turn
from rookery.coordinators.group.timers import JoinTimer, SyncTimer


def rebalance_or_complete(turn: Turn) -> None:
    """After members came, went or changed: begin a rebalance, or see whether the one at hand can be completed."""
    if can_move(turn.group.state, State.PREPARING_REBALANCE):
        begin_rebalance(turn)
    else:
        complete_if_all_joined(turn)


def begin_rebalance(turn: Turn) -> None:
    group = turn.group
    if group.state is State.COMPLETING_REBALANCE:
        _take_back_assignments(turn)
    turn.set_timer(SyncTimer(group.group_id), None)
    is_first = group.is_empty
    group.move_to(State.PREPARING_REBALANCE, turn.now_ms)
    if is_first:
        group.initial_delay_ms = turn.settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        group.has_new_member = False
        turn.set_timer(JoinTimer(group.group_id), group.initial_delay_ms)
    else:
        turn.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        complete_if_all_joined(turn)


def complete_if_all_joined(turn: Turn) -> None:
    group = turn.group
    # A group's first rebalance gives others time to come, whoever is there.
    is_first = group.previous_state is State.EMPTY
    if group.state is State.PREPARING_REBALANCE and not is_first and group.have_all_joined:
        complete_join(turn)


def on_join_timer(turn: Turn) -> None:
    group = turn.group
    if group.state is not State.PREPARING_REBALANCE:
        return
    if group.previous_state is State.EMPTY and group.has_new_member and group.initial_remaining_ms > 0:
        _delay_further(turn)
    else:
        complete_join(turn)


def _delay_further(turn: Turn) -> None:
    group = turn.group
    group.has_new_member = False
    remaining_ms = group.initial_remaining_ms
    group.initial_remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = min(turn.settings.initial_rebalance_delay_ms, remaining_ms)
    turn.set_timer(JoinTimer(group.group_id), group.initial_delay_ms)


def complete_join(turn: Turn) -> None:
    """Begin the next generation with those who have joined, and static members who have not."""
    group = turn.group
    turn.set_timer(JoinTimer(group.group_id), None)
    for member in [member for member in group.members.values() if member.join_token is None]:
        if member.instance_id is None:
            turn.remove_member(member)
    if not group.elect_joined_leader() and group.members:
        # Static members keep their place for their session; one of them must come before there can be a leader.
        turn.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.pending_syncs.clear()
    if group.members:
        _begin_generation(turn)
    else:
        group.protocol_name = None
        group.move_to(State.EMPTY, turn.now_ms)
        turn.store()


def _begin_generation(turn: Turn) -> None:
    group = turn.group
    group.protocol_name = group.select_protocol()
    group.move_to(State.COMPLETING_REBALANCE, turn.now_ms)
    for member in list(group.members.values()):
        answered = turn.answer_join(member, joined(group, member))
        group.update(replace(answered, is_new=False))
        group.pending_syncs[member.member_id] = None
        turn.restart_session(member)
    turn.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)


def joined(group: ClassicGroup, member: Member) -> JoinResult:
    """What a member is told about the present generation; the leader also gets everyone's metadata."""
    is_leader = group.leader_id == member.member_id
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=everyone(group) if is_leader else (),
    )


def everyone(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def _take_back_assignments(turn: Turn) -> None:
    """Those who wait for an assignment of a generation that ends now must join again."""
    for member in list(turn.group.members.values()):
        answered = turn.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        turn.group.update(replace(answered, assignment=b""))
        if member.sync_token is not None:
            turn.restart_session(member)


def on_sync_timer(turn: Turn) -> None:
    """Expel those who joined the generation and never asked for their assignment."""
    group = turn.group
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
        return
    for member_id in list(group.pending_syncs):
        turn.remove_member(group.members[member_id])
    begin_rebalance(turn)
