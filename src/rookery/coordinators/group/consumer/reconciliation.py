"""How a member moves to its target assignment without ever sharing a partition with another (KIP-848).

A member first revokes the partitions that are not in its target, and stays at its epoch until it acknowledges that.
Then it moves to the newest target epoch and gets those of its new partitions that are unowned; it waits for the others.

    from                   when                                          to                     epoch
    ---------------------  --------------------------------------------  ---------------------  -----------------
    STABLE                 the target is newer, partitions to revoke     UNREVOKED_PARTITIONS   unchanged
    STABLE                 the target is newer, others own some of it    UNRELEASED_PARTITIONS  the target's
    STABLE                 the target is newer, all of it is unowned     STABLE                 the target's
    UNREVOKED_PARTITIONS   it still owns them, or reports nothing        (no change)            unchanged
    UNREVOKED_PARTITIONS   it no longer owns them                        as from STABLE         +1, or the target's
    UNRELEASED_PARTITIONS  any heartbeat                                 as from STABLE         the target's

The owner of a partition is the member that has it assigned or pending revocation; `is_free`: it has no owner.
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
    """Return the member after a step towards `target`; `owned` are the partitions that it reports, None if it does not.

    A partition leaves a member only when the member no longer reports it. If it were assigned to another member
    earlier, both would read it, and each would overwrite the offsets that the other has committed.
    """
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch:
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member
        # There is at least one newer epoch, or there would have been nothing to revoke.
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
    to_revoke = assignment.difference(member.assigned, kept)
    if to_revoke and _still_owns(to_revoke, owned):
        return member.moved(epoch=epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending=to_revoke)
    missing = list(assignment.partitions_of(assignment.difference(target, kept)))
    # Partitions that it has just revoked and that its target has again: it still counts as their owner.
    revoked = set(assignment.partitions_of(member.pending_revocation))
    free = [partition for partition in missing if partition in revoked or is_free(partition)]
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    assigned = assignment.union(kept, assignment.collect(free)) if free else kept
    return member.moved(epoch=target_epoch, state=state, assigned=assigned, pending=NO_PARTITIONS)


def _still_owns(partitions: Assignment, owned: Assignment | None) -> bool:
    return owned is None or assignment.overlaps(partitions, owned)
