"""A rebalance, from its beginning to the next generation. `join` and `membership` begin it; timers bound its phases."""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.results import JoinedMember, JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State, can_move
from rookery.coordinators.group.timers import JoinTimer, SyncTimer


def rebalance_or_complete(draft: ClassicDraft) -> None:
    """After members joined, left or changed: begin a rebalance, or complete the present one if all have joined."""
    if can_move(draft.group.state, State.PREPARING_REBALANCE):
        begin_rebalance(draft)
    else:
        complete_if_all_joined(draft)


def begin_rebalance(draft: ClassicDraft) -> None:
    group = draft.group
    if group.state is State.COMPLETING_REBALANCE:
        _clear_assignments(draft)
    draft.set_timer(SyncTimer(group.group_id), None)
    is_first = group.is_empty
    group.move_to(State.PREPARING_REBALANCE, draft.now_ms)
    if is_first:
        group.initial_delay_ms = draft.settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        group.has_new_member = False
        draft.set_timer(JoinTimer(group.group_id), group.initial_delay_ms)
    else:
        draft.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        complete_if_all_joined(draft)


def complete_if_all_joined(draft: ClassicDraft) -> None:
    group = draft.group
    # The first rebalance of a group always lasts for its initial delay: at the start of an application, completing it
    # with the first member would cause another rebalance for each member after it.
    is_first = group.previous_state is State.EMPTY
    if group.state is State.PREPARING_REBALANCE and not is_first and group.have_all_joined:
        complete_join(draft)


def on_join_timer(draft: ClassicDraft) -> None:
    group = draft.group
    if group.state is not State.PREPARING_REBALANCE:
        return
    if group.previous_state is State.EMPTY and group.has_new_member and group.initial_remaining_ms > 0:
        _delay_further(draft)
    else:
        complete_join(draft)


def _delay_further(draft: ClassicDraft) -> None:
    group = draft.group
    group.has_new_member = False
    remaining_ms = group.initial_remaining_ms
    group.initial_remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = min(draft.settings.initial_rebalance_delay_ms, remaining_ms)
    draft.set_timer(JoinTimer(group.group_id), group.initial_delay_ms)


def complete_join(draft: ClassicDraft) -> None:
    """Begin the next generation with the members that have joined, and the static members that have not."""
    group = draft.group
    draft.set_timer(JoinTimer(group.group_id), None)
    for member in [member for member in group.members.values() if member.join_token is None]:
        # A static member stays until its session expires, so that its restart causes no rebalance.
        if member.instance_id is None:
            draft.remove_member(member)
    if not group.elect_joined_leader() and group.members:
        # Only absent static members are left, none of which can lead. Wait until one joins or their sessions expire.
        draft.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        return
    # The new number fences the members that were removed: their heartbeats and offset commits carry the old one.
    group.generation += 1
    group.pending_syncs.clear()
    if group.members:
        _begin_generation(draft)
    else:
        group.protocol_name = None
        group.move_to(State.EMPTY, draft.now_ms)
        draft.store()


def _begin_generation(draft: ClassicDraft) -> None:
    group = draft.group
    group.protocol_name = group.select_protocol()
    group.move_to(State.COMPLETING_REBALANCE, draft.now_ms)
    for member in list(group.members.values()):
        responded = draft.respond_to_join(member, join_result(group, member))
        group.update(replace(responded, is_new=False))
        group.pending_syncs[member.member_id] = None
        draft.restart_session(member)
    draft.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)


def join_result(group: ClassicGroup, member: Member) -> JoinResult:
    """Return a member's response for the present generation; the leader's also has the metadata of all members."""
    is_leader = group.leader_id == member.member_id
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=all_members(group) if is_leader else (),
    )


def all_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def _clear_assignments(draft: ClassicDraft) -> None:
    """End the generation before it has assignments: members that wait for theirs get REBALANCE_IN_PROGRESS."""
    for member in list(draft.group.members.values()):
        responded = draft.respond_to_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        draft.group.update(replace(responded, assignment=b""))
        if member.sync_token is not None:
            draft.restart_session(member)


def on_sync_timer(draft: ClassicDraft) -> None:
    """Remove the members that joined the generation and sent no SyncGroup, and rebalance.

    Their heartbeats may keep their sessions alive, while their partitions have no reader.
    """
    group = draft.group
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
        return
    for member_id in list(group.pending_syncs):
        draft.remove_member(group.members[member_id])
    begin_rebalance(draft)
