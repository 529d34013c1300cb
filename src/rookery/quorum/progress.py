"""The state of the replicas that fetch from a leader: their end offsets, and the times of their fetches. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from rookery.base.types import NodeId, Offset
from rookery.base.values import value_class
from rookery.quorum.voters import ReplicaKey, VoterSet

_OBSERVER_EXPIRY_MS = 300_000


@value_class
class ReplicaProgress:
    """`end_offset` is synced if the replica is a voter; -1 if it has not fetched from the log yet.

    `caught_up_ms` is the last time at which it had all records that the leader had at its fetch before; None if never.
    """

    end_offset: Offset
    last_fetch_ms: float
    caught_up_ms: float | None = None
    # The end of the leader's log at the last fetch.
    leader_end: Offset = -1


class Progress:
    """The replicas of one leader's term. A fetch of an earlier term does not count."""

    def __init__(self, began_ms: float) -> None:
        self._began_ms = began_ms
        self._replicas: dict[ReplicaKey, ReplicaProgress] = {}

    def fetched(self, key: ReplicaKey, offset: Offset, *, leader_end: Offset, now_ms: float) -> None:
        """Note a fetch from `offset`, which is where the replica's log ends; the leader's ends at `leader_end`."""
        before = self._replicas.get(key)
        caught_up_ms = before.caught_up_ms if before else None
        if offset >= leader_end:
            caught_up_ms = now_ms
        elif before is not None and offset >= before.leader_end >= 0:
            # It has what the leader had at the fetch before, so a busy log does not make it look behind for ever.
            caught_up_ms = max(caught_up_ms or 0, before.last_fetch_ms)
        self._replicas[key] = ReplicaProgress(offset, now_ms, caught_up_ms, leader_end)

    def heard(self, key: ReplicaKey, *, now_ms: float) -> None:
        """Note a fetch whose position does not count, because the replica needs a snapshot."""
        before = self._replicas.get(key) or ReplicaProgress(-1, now_ms)
        self._replicas[key] = replace(before, last_fetch_ms=now_ms)

    def forget(self, node_id: NodeId) -> None:
        """Forget the positions of a node, which has lost what it acknowledged."""
        self._replicas = {key: replica for key, replica in self._replicas.items() if key.node_id != node_id}

    def of(self, key: ReplicaKey) -> ReplicaProgress | None:
        """Return the progress of a replica, None if it has not fetched in this term."""
        return max(self._of(key), key=lambda replica: replica.last_fetch_ms, default=None)

    def observers(self, voters: VoterSet, *, now_ms: float) -> dict[ReplicaKey, ReplicaProgress]:
        """Return the replicas that are not voters and fetched within the last five minutes."""
        return {
            key: replica
            for key, replica in self._replicas.items()
            if key not in voters and now_ms - replica.last_fetch_ms <= _OBSERVER_EXPIRY_MS
        }

    def majority_offset(self, voters: VoterSet, me: ReplicaKey, my_offset: Offset) -> Offset:
        """Return the offset that a majority of the voters has reached; this node counts only if it is a voter."""
        offsets = sorted((self._offset_of(key, me, my_offset) for key in voters.keys), reverse=True)
        return offsets[voters.majority - 1]

    def majority_heard_ms(self, voters: VoterSet, me: ReplicaKey) -> float:
        """Return the latest time since which a majority of the voters, this node included, has fetched."""
        times = sorted((self._heard_ms(key, me) for key in voters.keys), reverse=True)
        return times[voters.majority - 1]

    def successors(self, voters: VoterSet, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """Return the other voters, the one with the longest log first."""
        others = [key for key in voters.keys if key.node_id != me.node_id]
        return tuple(sorted(others, key=lambda key: -self._offset_of(key, me, 0)))

    def _offset_of(self, key: ReplicaKey, me: ReplicaKey, my_offset: Offset) -> Offset:
        if key.matches(me):
            return my_offset
        return max((replica.end_offset for replica in self._of(key)), default=-1)

    def _heard_ms(self, key: ReplicaKey, me: ReplicaKey) -> float:
        if key.matches(me):
            return inf
        return max((replica.last_fetch_ms for replica in self._of(key)), default=self._began_ms)

    def _of(self, key: ReplicaKey) -> Iterable[ReplicaProgress]:
        return (replica for other, replica in self._replicas.items() if other.matches(key))
