"""How a member moves to its target assignment without ever sharing a partition with another (KIP-848).

A member first gives up what it shall not keep and stays at its epoch until it says that it did. Then it takes over the
newest target epoch together with those of its new partitions that nobody owns any more, and waits for the others.

    from                   when                                         to                     epoch
    ---------------------  -------------------------------------------  ---------------------  -----------------
    STABLE                 the target is newer, partitions to give up   UNREVOKED_PARTITIONS   stays
    STABLE                 the target is newer, others own some of it   UNRELEASED_PARTITIONS  the target's
    STABLE                 the target is newer, nothing is in the way   STABLE                 the target's
    UNREVOKED_PARTITIONS   it still owns them, or does not say          (no change)            stays
    UNREVOKED_PARTITIONS   it gave them up                              as from STABLE         one more, or the target's
    UNRELEASED_PARTITIONS  any heartbeat                                as from STABLE         the target's

A partition is owned by a member that has it assigned or pending revocation. `is_free` tells whether nobody does.
"""

from collections.abc import Callable

from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment, Partition
from rookery.coordinators.group.consumer.member import Member, MemberState


def reconcile(
    member: Member,
    target: Assignment,
    *,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[Partition], bool],
) -> Member:
    """The member after a step towards `target`; `owned` is what it reports, None if it reports nothing."""
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch:
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member
        # At least one newer epoch exists, or there would have been nothing to give up.
        epoch += 1
    return _next(member, target, epoch=epoch, target_epoch=target_epoch, owned=owned, is_free=is_free)


def _next(
    member: Member,
    target: Assignment,
    *,
    epoch: int,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[Partition], bool],
) -> Member:
    kept = assignment.intersection(member.assigned, target)
    to_give_up = assignment.difference(member.assigned, kept)
    if to_give_up and _still_owns(to_give_up, owned):
        return member.moved(epoch=epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending=to_give_up)
    missing = list(assignment.partitions_of(assignment.difference(target, kept)))
    # What it has just given up and shall have again; nobody else can own it yet.
    given_up = set(assignment.partitions_of(member.pending_revocation))
    free = [partition for partition in missing if partition in given_up or is_free(partition)]
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    assigned = assignment.union(kept, assignment.collect(free)) if free else kept
    return member.moved(epoch=target_epoch, state=state, assigned=assigned, pending=NO_PARTITIONS)


def _still_owns(partitions: Assignment, owned: Assignment | None) -> bool:
    return owned is None or assignment.overlaps(partitions, owned)
