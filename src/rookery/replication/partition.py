"""One partition's replication state: its leader, its in-sync replicas, and its high watermark.

Pure: the input is events (a new leader, an append, a follower's fetch), the output is the new high watermark. The log
itself belongs to storage. `Replica` pairs the state with the log and calls this module; `ReplicaManager` applies the
metadata. Times are seconds of a clock that never goes back.

Theory of operation
- The high watermark is the smallest end offset among the in-sync replicas (ISR), and it never decreases while a node
  leads. The leader's own end offset (`local_end_offset`) moves with the append, or after the fsync that
  `flush.messages` demands. With one replica the high watermark therefore follows the log.
- A new leader does not know the end offsets of its followers: they count as unknown until they fetch.
- Consumers do not see records at or above the high watermark, and an `acks=all` request is acknowledged when the high
  watermark has passed its last record.
- The controller decides who is in the ISR; the leader proposes (`IsrProposal`, one at a time). Until the answer, the
  controller may already have the new ISR or still the old one, and may elect any member of it. So the leader uses the
  *maximal* ISR, which contains both: a proposed new member holds the high watermark back at once, and one that is
  proposed to leave holds it back until the controller has confirmed that.
- While the ISR has fewer than `min.insync.replicas` members, the high watermark does not advance at all: what is
  committed is then on that many replicas, which the controller's eligible leader replicas (KIP-966) depend on.
- A follower takes the high watermark from its leader's responses, limited to the end of its own log.
"""

from collections.abc import Iterator, Sequence
from math import inf

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from rookery.replication.isr import UNKNOWN_BROKER_EPOCH, AlteredIsr, Follower, IsrConditions, IsrProposal

# A module-level name for the hot path: in Python 3.11 the lookup of an enum member takes ten times as long.
_OK = ErrorCode.NONE


class Partition:
    """The state of one partition that this node hosts.

    Invariants: `high_watermark <= local_end_offset` on a leader; `high_watermark` only grows within one leader epoch;
    `leader_epoch` and `partition_epoch` only grow; `maximal_isr` contains `isr`.
    """

    __slots__ = (
        "_conditions",
        "_followers",
        "_is_alone",
        "_min_insync_replicas",
        "_node_id",
        "epoch_start_offset",
        "high_watermark",
        "is_leader",
        "is_recovering",
        "isr",
        "leader",
        "leader_epoch",
        "leader_lag",
        "local_end_offset",
        "maximal_isr",
        "needed_in_sync",
        "partition_epoch",
        "proposal",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        *,
        node_id: NodeId,
        conditions: IsrConditions | None = None,
        min_insync_replicas: int = 1,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._min_insync_replicas = min_insync_replicas
        # The number of in-sync replicas without which nothing is committed.
        self.needed_in_sync = 0
        self._node_id = node_id
        self._conditions = conditions or IsrConditions()
        self.leader: NodeId = -1
        self.is_leader = False
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        # The ISR that the controller has confirmed.
        self.isr: tuple[NodeId, ...] = ()
        self.maximal_isr: frozenset[NodeId] = frozenset()
        # The change of the ISR that the controller has not answered yet.
        self.proposal: IsrProposal | None = None
        # Whether the leader was elected although it was not in sync, and has not confirmed its state yet.
        self.is_recovering = False
        self.high_watermark: Offset = 0
        self.local_end_offset: Offset = 0
        # How many records the leader had committed that this follower did not have, when it last fetched.
        self.leader_lag = 0
        # The end of the log when this node became the leader. Until the high watermark reaches it, the previous
        # leader's high watermark, and with it the answer to "latest", is unknown.
        self.epoch_start_offset: Offset = 0
        self._followers: dict[NodeId, Follower] = {}
        # Whether this node leads and is the only replica: the hot path.
        self._is_alone = False

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader's high watermark is below the end of the log that it took over."""
        return self.high_watermark < self.epoch_start_offset

    def restore(self, *, high_watermark: Offset, start_offset: Offset, end_offset: Offset) -> None:
        """Set the state from the log on disk. `high_watermark` is the checkpointed one, and is limited to the log."""
        self.high_watermark = min(max(high_watermark, start_offset), end_offset)
        self.local_end_offset = end_offset

    # Metadata

    def set_leader(
        self,
        leader: NodeId,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[NodeId],
        isr: Sequence[NodeId],
        is_recovering: bool = False,
        now_s: float = 0.0,
    ) -> bool:
        """Set the partition's leader and replicas from the metadata; returns whether the high watermark moved."""
        new_epoch = leader_epoch > self.leader_epoch
        if not new_epoch and partition_epoch < self.partition_epoch:
            # The controller's answer to a proposal was faster than the metadata, which is still on its way.
            return False
        if new_epoch or partition_epoch > self.partition_epoch:
            # The controller refuses a proposal that was based on an older state, so it cannot take effect any more.
            self.proposal = None
        self.leader, self.leader_epoch, self.partition_epoch = leader, leader_epoch, partition_epoch
        self.is_leader = leader == self._node_id
        self.replicas, self.isr, self.is_recovering = tuple(replicas), tuple(isr), is_recovering
        self.needed_in_sync = min(self._min_insync_replicas, len(self.replicas))
        if self.proposal is None:
            self.maximal_isr = frozenset(self.isr)
        self._is_alone = self.is_leader and len(self.replicas) == 1
        self._set_followers(new_epoch, now_s)
        if new_epoch and self.is_leader:
            self.epoch_start_offset = self.local_end_offset
        if self.is_leader and is_recovering and self.proposal is None:
            # Confirms the state after an unclean election: nothing has to be recovered here.
            self._propose(self.isr)
        return self.advance(now_s)

    def _set_followers(self, new_epoch: bool, now_s: float) -> None:
        # A new epoch forgets the follower offsets: since then a follower may have truncated its log. With the old
        # offset the high watermark could pass records that the follower no longer has, and they would be acknowledged.
        known = {} if new_epoch else self._followers
        self._followers = {
            node: known.get(node) or Follower(caught_up_s=now_s if node in self.isr else -inf)
            for node in (self.replicas if self.is_leader else ())
            if node != self._node_id
        }

    def configure(self, min_insync_replicas: int, now_s: float) -> bool:
        """Set `min.insync.replicas`; returns whether the high watermark moved."""
        self._min_insync_replicas = min_insync_replicas
        self.needed_in_sync = min(min_insync_replicas, len(self.replicas))
        return self.advance(now_s)

    # Events of a leader

    def local_end_moved(self, end_offset: Offset, now_s: float = 0.0) -> bool:
        """Set the end of the local records that count as stored; returns whether the high watermark moved."""
        self.local_end_offset = end_offset
        # The hot path: a leader that is the only replica. Same result as `advance`.
        if self._is_alone:
            moved = end_offset > self.high_watermark
            if moved:
                self.high_watermark = end_offset
            return moved
        return self.advance(now_s)

    def follower_fetched(
        self,
        node: NodeId,
        end_offset: Offset,
        *,
        start_offset: Offset = -1,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        now_s: float = 0.0,
    ) -> bool:
        """Record that a follower fetches from `end_offset`, so it has all records before; returns as `set_leader`.

        May set `proposal`: the only time at which a replica can join the ISR is its own fetch in this leader epoch.
        """
        follower = self._followers.get(node)
        if follower is None:
            return False
        follower.fetched(
            end_offset, start_offset, broker_epoch=broker_epoch, leader_end=self.local_end_offset, now_s=now_s
        )
        self._maybe_expand(node, follower)
        return self.advance(now_s)

    def _maybe_expand(self, node: NodeId, follower: Follower) -> None:
        if self.proposal is not None or node in self.isr:
            return
        # Both limits are needed. Above the high watermark: the replica has all committed records. Above the epoch's
        # start: the high watermark of a new leader may be older than the previous leader's, and a replica that has only
        # that much could then be elected without records that the previous leader acknowledged.
        if follower.end_offset < max(self.high_watermark, self.epoch_start_offset):
            return
        if self._conditions.may_join(node, follower.broker_epoch):
            self._propose((*self.isr, node))
            self.maximal_isr = frozenset((*self.isr, node))

    def propose_shrink(self, now_s: float) -> bool:
        """Propose an ISR without the replicas that have not caught up for too long; returns whether there are any.

        They still count for the high watermark: until the controller has confirmed the change, it may elect one.
        """
        if not self.is_leader or self.proposal is not None:
            return False
        lag_max_s = self._conditions.lag_max_s
        kept = tuple(
            node
            for node in self.isr
            if node == self._node_id
            or (node in self._followers and self._followers[node].is_caught_up(self.local_end_offset, now_s, lag_max_s))
        )
        if len(kept) == len(self.isr):
            return False
        self._propose(kept)
        return True

    def _propose(self, members: Sequence[NodeId]) -> None:
        self.proposal = IsrProposal(
            tuple((node, self._broker_epoch(node)) for node in members),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            size_before=len(self.isr),
        )

    def _broker_epoch(self, node: NodeId) -> int:
        follower = self._followers.get(node)
        return UNKNOWN_BROKER_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def accept(self, proposal: IsrProposal, altered: AlteredIsr, now_s: float = 0.0) -> bool:
        """Take over the state that the controller has answered; returns whether the high watermark moved."""
        # The metadata was faster than the answer, and has replaced the proposal.
        if proposal is not self.proposal or altered.leader_epoch != self.leader_epoch:
            return False
        if altered.partition_epoch < self.partition_epoch:
            return False
        self.proposal = None
        self.partition_epoch, self.isr = altered.partition_epoch, altered.isr
        self.is_recovering = altered.is_recovering
        self.maximal_isr = frozenset(self.isr)
        return self.advance(now_s)

    def withdraw(self, proposal: IsrProposal, now_s: float = 0.0) -> bool:
        """Return to the confirmed ISR: the controller has said that it did not and will not apply the proposal."""
        if proposal is not self.proposal:
            return False
        self.proposal = None
        self.maximal_isr = frozenset(self.isr)
        return self.advance(now_s)

    # Events of a follower

    def copied(self, end_offset: Offset, leader_high_watermark: Offset) -> bool:
        """Set the end of a follower's log after an append; returns whether the high watermark moved."""
        self.local_end_offset = end_offset
        self.leader_lag = max(0, leader_high_watermark - end_offset)
        known = min(leader_high_watermark, end_offset)
        # A new leader's high watermark may be lower than the one before. Consumers have already read up to that.
        if known <= self.high_watermark:
            return False
        self.high_watermark = known
        return True

    def truncated(self, start_offset: Offset, end_offset: Offset) -> None:
        """Set both ends of a follower's log after a truncation, or after a restart at another offset."""
        self.local_end_offset = end_offset
        self.high_watermark = max(min(self.high_watermark, end_offset), start_offset)

    # Queries

    def still_leads(self, leader_epoch: LeaderEpoch) -> bool:
        """Return whether this node leads and `leader_epoch`, in which records were appended, has not ended.

        Every waiter for acknowledgement checks this before it looks at an offset. Without the epoch, a node that was
        deposed and elected again before the waiter ran would look like one that had led all the time. In between, it
        may have truncated the waiter's records and replicated others at the same offsets: the high watermark passes
        `end_offset`, and records that no replica has are acknowledged.
        """
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_epoch(self, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """Return the error for a client that assumes this leader epoch, NONE if the epoch is current (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return _OK
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """Return the error of `check_epoch`, or NOT_LEADER_OR_FOLLOWER if this node does not lead."""
        error = self.check_epoch(current_leader_epoch)
        if error is _OK and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def check_follower(
        self, node: NodeId, current_leader_epoch: LeaderEpoch, broker_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> ErrorCode:
        """Return NONE if `node` may fetch as a replica, else a retriable error.

        The node may already have metadata that makes it a replica and that this leader has not seen yet.
        """
        if node in self._followers:
            # The offsets of a process that was replaced must not count: the new one may have lost those records.
            is_stale = self._conditions.is_stale(node, broker_epoch)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_stale else ErrorCode.NONE
        if current_leader_epoch == NO_LEADER_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def follower_start(self, node: NodeId) -> Offset:
        """Return the start of a follower's log; -1 if it is not known."""
        follower = self._followers.get(node)
        return NO_OFFSET if follower is None else follower.start_offset

    def low_watermark(self, start_offset: Offset) -> Offset:
        """Return the smallest start offset among the leader's log, `start_offset`, and the replicas that are alive."""
        starts = [
            follower.start_offset for node, follower in self._followers.items() if self._conditions.is_alive(node)
        ]
        return min(start_offset, *starts) if starts else start_offset

    def replicas_with(self, offset: Offset) -> Iterator[tuple[NodeId, Follower]]:
        """Yield the in-sync followers from which a consumer can read `offset`."""
        for node, follower in self._followers.items():
            if node in self.isr and 0 <= follower.start_offset <= offset <= follower.end_offset:
                yield node, follower

    # The high watermark

    @property
    def may_be_held_back(self) -> bool:
        """Whether followers outside the ISR may hold the high watermark back."""
        return self.is_leader and len(self.isr) < len(self.replicas)

    def advance(self, now_s: float) -> bool:
        """Compute the high watermark again; returns whether it moved.

        Called after each event, and from time to time: a follower that was about to join may have stopped to fetch.
        """
        if not self.is_leader or len(self.isr) < self.needed_in_sync:
            return False
        committed = self.local_end_offset
        for node, follower in self._followers.items():
            if follower.end_offset < committed and (node in self.maximal_isr or self._may_soon_join(node, now_s)):
                committed = follower.end_offset
        # After an election the minimum is -1 until every in-sync follower has fetched. The high watermark must not
        # fall: consumers have already read up to it.
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _may_soon_join(self, node: NodeId, now_s: float) -> bool:
        """Return whether a follower is about to join the ISR.

        It holds the high watermark back. If it did not, the high watermark of a busy partition would always be a few
        records ahead of the follower, which could never join.
        """
        follower = self._followers[node]
        return follower.is_caught_up(
            self.local_end_offset, now_s, self._conditions.lag_max_s
        ) and self._conditions.may_join(node, follower.broker_epoch)
