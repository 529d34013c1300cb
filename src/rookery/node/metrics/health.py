"""Whether a node serves: for load balancers and Kubernetes.

A node is alive while its event loop answers. It is ready if it serves its clients, knows the leader of the quorum, and,
where there are other voters, sees the high watermark of the metadata log advance: the active controller appends a
record twice a second even if nothing changes. A broker that is cut off from the quorum would answer, but with old
metadata.
"""

from collections.abc import Callable
from typing import Final

from rookery.base.clock import Clock
from rookery.quorum.driver import QuorumDriver

# Longer than the change of a leader takes.
_STALLED_S: Final = 10.0


class Health:
    """The condition of a node. `is_serving` returns whether it accepts requests."""

    def __init__(self, quorum: QuorumDriver, clock: Clock, *, is_serving: Callable[[], bool]) -> None:
        self._quorum = quorum
        self._clock = clock
        self._is_serving = is_serving
        self._high_watermark = -1
        self._advanced_s = clock.monotonic()

    def sample(self) -> None:
        """Look at the high watermark; called every few seconds."""
        if self._quorum.high_watermark != self._high_watermark:
            self._high_watermark, self._advanced_s = self._quorum.high_watermark, self._clock.monotonic()

    def problem(self) -> str | None:
        """Return why the node is not ready, None if it is."""
        self.sample()
        if self._quorum.failure is not None:
            return f"this node has left the quorum: {self._quorum.failure}"
        if not self._is_serving():
            return "this node is starting or stopping"
        if self._quorum.leader_id is None:
            return "the quorum has no leader that this node knows of"
        stalled_s = self._clock.monotonic() - self._advanced_s
        if len(self._quorum.voters) > 1 and stalled_s > _STALLED_S:
            return f"the metadata log has not advanced for {stalled_s:.0f} s: this node may be cut off from the quorum"
        return None
