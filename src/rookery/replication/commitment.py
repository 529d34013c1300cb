"""Waiting until records are committed: for coordinators and markers, whose answers do not belong to a connection."""

from collections.abc import Callable

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset
from rookery.replication.pending import Pending, Waiter
from rookery.replication.replica import ACKS_ALL, Replica


def when_committed(
    pending: Pending,
    replica: Replica,
    end_offset: Offset,
    *,
    timeout_ms: int,
    is_wanted: Callable[[], bool],
    done: Callable[[ErrorCode], None],
) -> None:
    """Call `done` once, perhaps at once, when the high watermark reaches `end_offset`.

    It gets NONE; NOT_LEADER_OR_FOLLOWER if this node does not lead any more or nobody wants to know; or
    REQUEST_TIMED_OUT, which says nothing about what happens to the records later.
    """

    def attempt(_: object) -> bool:
        if replica.is_acknowledged(end_offset, ACKS_ALL):
            done(ErrorCode.NONE)
        elif not replica.state.is_leader or not is_wanted():
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            return False
        return True

    if not attempt(None):
        waiter = Waiter(
            [replica.state.topic_partition], attempt=attempt, expire=lambda: done(ErrorCode.REQUEST_TIMED_OUT)
        )
        pending.park(waiter, timeout_seconds=timeout_ms / 1000)
