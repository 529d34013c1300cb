"""The leases of brokers: when each was last heard of, and how far it has applied the metadata. Pure.

A broker keeps its lease with heartbeats. When it has expired, the controller fences the broker. The state is that of
one active controller and is not in the log: a new controller grants every unfenced broker a fresh lease, because the
heartbeats may have gone to its predecessor.

Time in which the controller itself stood still does not count. Without this rule, a controller that was paused for
longer than a lease would fence all brokers when it continues, before it reads the heartbeats that wait in its sockets.
"""

from collections.abc import Iterable

from rookery.base.types import NO_OFFSET, NodeId, Offset

# Lost leases are looked for this often in the time of one lease.
CHECKS_PER_LEASE = 8


class Leases:
    """All times are in seconds of a monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self.check_interval_s = lease_s / CHECKS_PER_LEASE
        self._lease_s = lease_s
        self._heard: dict[NodeId, float] = {}
        self._applied: dict[NodeId, Offset] = {}
        self._shutdown_offsets: dict[NodeId, Offset] = {}
        self._checked: float | None = None

    def start(self, node_ids: Iterable[NodeId], now: float) -> None:
        """Begin the work of an active controller: grant each broker a fresh lease."""
        self._applied.clear()
        self._shutdown_offsets.clear()
        self._heard = dict.fromkeys(node_ids, now)
        self._checked = None

    def touch(self, node_id: NodeId, now: float) -> None:
        """Note a heartbeat when it arrives, before it waits for other decisions."""
        self._heard[node_id] = now

    def end(self, node_id: NodeId) -> None:
        """Forget a broker that was fenced or removed, or whose process is gone."""
        for state in (self._heard, self._applied, self._shutdown_offsets):
            state.pop(node_id, None)

    def is_alive(self, node_id: NodeId, now: float) -> bool:
        """Return whether the broker has been heard of within the time of a lease."""
        heard = self._heard.get(node_id)
        return heard is not None and now - heard < self._lease_s

    def heard_since(self, node_id: NodeId, moment: float) -> bool:
        return self._heard.get(node_id, moment) > moment

    def has(self, node_id: NodeId) -> bool:
        """Return whether the broker has a lease, which may have expired."""
        return node_id in self._heard

    def find_lost(self, node_ids: Iterable[NodeId], now: float) -> NodeId | None:
        """Return the broker that has been silent for longest, if its lease has expired.

        One at a time: fencing is a long decision, in which others may be heard of again.
        """
        self._forgive_pause(now)
        lost = [node_id for node_id in node_ids if not self.is_alive(node_id, now)]
        return min(lost, key=lambda node_id: (self._heard.get(node_id, 0.0), node_id), default=None)

    def _forgive_pause(self, now: float) -> None:
        pause = 0.0 if self._checked is None else now - self._checked - self.check_interval_s
        if pause > self.check_interval_s:
            self._heard = {node_id: min(now, heard + pause) for node_id, heard in self._heard.items()}
        self._checked = now

    def note_applied(self, node_id: NodeId, offset: Offset) -> None:
        """Note the offset of the last metadata record that a broker has applied."""
        self._applied[node_id] = offset

    def begin_shutdown(self, node_id: NodeId, offset: Offset) -> None:
        """Note the last offset of the records that moved the leaderships of a broker that shuts down."""
        self._shutdown_offsets.setdefault(node_id, offset)

    def may_shut_down(self, node_id: NodeId, active: Iterable[NodeId]) -> bool:
        """Return whether all other active brokers have applied the changes that moved the leaderships."""
        offset = self._shutdown_offsets.get(node_id)
        return offset is not None and all(
            self._applied.get(other, NO_OFFSET) >= offset for other in active if other != node_id
        )
