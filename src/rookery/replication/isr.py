"""Membership in the in-sync replicas (ISR), as the leader of a partition sees it.

Pure: times are seconds of a clock that never goes back, passed in. `Partition` keeps a `Follower` per remote replica,
and an `IsrProposal` while the controller has not answered a change; `IsrConditions` are the facts about brokers that
all partitions of a node share. `isr_changes` sends the proposals.

A follower may join the ISR, or hold the high watermark back because it is about to join, only if its broker is neither
fenced nor shutting down, and if the process that fetches is the one that the metadata has registered (KIP-903). Without
the last rule, a broker that lost its records in a power failure and came back could be added for what its former
process had fetched: it would count for acknowledgements, and could be elected, without the records.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from rookery.base.types import NO_OFFSET, LeaderEpoch, NodeId, Offset
from rookery.metadata.image import BrokerImage

# The broker epoch of a fetch that does not say it (before version 15).
UNKNOWN_BROKER_EPOCH = -1
LAG_MAX_S = 30.0


class IsrConditions:
    """The registered brokers of the newest image, and `replica.lag.time.max.ms`."""

    __slots__ = ("brokers", "lag_max_s")

    def __init__(self, brokers: Mapping[NodeId, BrokerImage] | None = None, *, lag_max_s: float = LAG_MAX_S) -> None:
        self.brokers: Mapping[NodeId, BrokerImage] = {} if brokers is None else brokers
        self.lag_max_s = lag_max_s

    def may_join(self, node: NodeId, broker_epoch: int | None) -> bool:
        """Return whether a replica whose last fetch had `broker_epoch` may be in the ISR; None: it has not fetched."""
        broker = self.brokers.get(node)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.broker_epoch)

    def is_stale(self, node: NodeId, broker_epoch: int) -> bool:
        """Return whether a fetch comes from a process of the node that another one has replaced."""
        broker = self.brokers.get(node)
        return broker is not None and UNKNOWN_BROKER_EPOCH != broker_epoch < broker.broker_epoch

    def is_alive(self, node: NodeId) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and not broker.fenced


class Follower:
    """What the leader knows of one remote replica in its current leader epoch."""

    __slots__ = ("_fetched_s", "_leader_end_at_fetch", "broker_epoch", "caught_up_s", "end_offset", "start_offset")

    def __init__(self, *, caught_up_s: float = -inf) -> None:
        # The offset that it fetches next: it has all records before. -1 until its first fetch in this epoch.
        self.end_offset: Offset = NO_OFFSET
        self.start_offset: Offset = NO_OFFSET
        # The last time at which it had everything that the leader had.
        self.caught_up_s = caught_up_s
        self.broker_epoch: int | None = None
        self._fetched_s = -inf
        self._leader_end_at_fetch: Offset = NO_OFFSET

    def fetched(
        self, end_offset: Offset, start_offset: Offset, *, broker_epoch: int, leader_end: Offset, now_s: float
    ) -> None:
        """Record a fetch. `leader_end` is the end of the leader's log when it arrives."""
        if end_offset >= leader_end:
            self.caught_up_s = max(self.caught_up_s, now_s)
        elif end_offset >= self._leader_end_at_fetch >= 0:
            # It has fetched everything that there was at its fetch before. Without this rule, a follower that is never
            # more than one fetch behind would leave the ISR of a partition that is written to all the time.
            self.caught_up_s = max(self.caught_up_s, self._fetched_s)
        self.end_offset, self.start_offset, self.broker_epoch = end_offset, start_offset, broker_epoch
        self._fetched_s, self._leader_end_at_fetch = now_s, leader_end

    def is_caught_up(self, leader_end: Offset, now_s: float, lag_max_s: float) -> bool:
        return self.end_offset >= leader_end or now_s - self.caught_up_s <= lag_max_s


class IsrProposal:
    """A change that the leader has asked the controller for, or is about to. Compared by identity."""

    __slots__ = ("growth", "isr", "leader_epoch", "partition_epoch")

    def __init__(
        self,
        isr: tuple[tuple[NodeId, int], ...],
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        size_before: int,
    ) -> None:
        # The proposed members, each with the broker epoch of its last fetch; -1 if it is unknown, and for the leader.
        self.isr = isr
        # The state of the partition that the proposal changes. The controller refuses it if that state is not current.
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        # How many more members the ISR will have.
        self.growth = len(isr) - size_before

    @property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(node for node, _ in self.isr)

    def __repr__(self) -> str:
        return f"IsrProposal({list(self.members)} in epochs {self.leader_epoch}, {self.partition_epoch})"


class AlteredIsr(NamedTuple):
    """The state of a partition in the controller's answer to a proposal that it accepted."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[NodeId, ...]
    is_recovering: bool = False
