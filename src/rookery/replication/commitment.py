"""Waiting until records are committed: for coordinators and markers, whose answers do not belong to a connection."""

from collections.abc import Callable

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, Offset
from rookery.replication.pending import Pending, Waiter
from rookery.replication.replica import ACKS_ALL, Replica


def when_committed(
    pending: Pending,
    replica: Replica,
    end_offset: Offset,
    *,
    leader_epoch: LeaderEpoch,
    timeout_ms: int,
    is_wanted: Callable[[], bool],
    done: Callable[[ErrorCode], None],
) -> None:
    """Call `done` once, perhaps before this returns, when the high watermark reaches `end_offset`.

    `leader_epoch` is the epoch in which the records were appended. `done` gets NONE; NOT_LEADER_OR_FOLLOWER if that
    epoch has ended or `is_wanted` returns False; or REQUEST_TIMED_OUT, which does not say whether the records will be
    committed later.
    """

    def attempt(_: object) -> bool:
        # The epoch first: the offsets of a later epoch are those of other records (`Partition.still_leads`).
        if not replica.state.still_leads(leader_epoch):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif replica.is_acknowledged(end_offset, ACKS_ALL):
            done(ErrorCode.NONE)
        elif not is_wanted():
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            return False
        return True

    if not attempt(None):
        waiter = Waiter(
            [replica.state.topic_partition], attempt=attempt, expire=lambda: done(ErrorCode.REQUEST_TIMED_OUT)
        )
        pending.park(waiter, timeout_seconds=timeout_ms / 1000)
