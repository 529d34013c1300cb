"""The state of the replicas that fetch from a leader: their end offsets, and the times of their fetches. Pure."""

from collections.abc import Iterable
from math import inf

from rookery.base.types import Offset
from rookery.base.values import value_class
from rookery.quorum.voters import ReplicaKey, VoterSet


@value_class
class ReplicaProgress:
    """`end_offset` is synced if the replica is a voter; -1 if it has not fetched from the log yet."""

    end_offset: Offset
    last_fetch_ms: float


class Progress:
    """The replicas of one leader's term. A fetch of an earlier term does not count."""

    def __init__(self, began_ms: float) -> None:
        self._began_ms = began_ms
        self._replicas: dict[ReplicaKey, ReplicaProgress] = {}

    def fetched(self, key: ReplicaKey, offset: Offset, *, now_ms: float) -> None:
        """Note a fetch from `offset`, which is where the replica's log ends."""
        self._replicas[key] = ReplicaProgress(offset, now_ms)

    def heard(self, key: ReplicaKey, *, now_ms: float) -> None:
        """Note a fetch whose position does not count, because the replica needs a snapshot."""
        before = self._replicas.get(key)
        self._replicas[key] = ReplicaProgress(before.end_offset if before else -1, now_ms)

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
