"""One partition's replication state: its leader, its in-sync replicas, and its high watermark.

Pure: the input is events (a new leader, an append, a follower's fetch), the output is the new high watermark. The log
itself belongs to storage. `Replica` pairs the state with the log and calls this module; `ReplicaManager` applies the
metadata.

Theory of operation
- The high watermark is the smallest end offset among the in-sync replicas, and it never decreases while a node leads.
  The leader's own end offset (`local_end_offset`) moves with the append, or after the fsync that `flush.messages`
  demands. With one in-sync replica the high watermark therefore follows the log.
- A new leader does not know the end offsets of its followers: they count as `UNKNOWN_END_OFFSET` until they fetch.
- Consumers do not see records at or above the high watermark, and an `acks=all` request is acknowledged when the high
  watermark has passed its last record.
"""

from collections.abc import Iterable, Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition

UNKNOWN_END_OFFSET: Offset = -1
# A module-level name for the hot path: in Python 3.11 the lookup of an enum member takes ten times as long.
_OK = ErrorCode.NONE


class Partition:
    """The state of one partition that this node hosts.

    Invariants: `high_watermark <= local_end_offset` on a leader; `high_watermark` only grows within one leader epoch;
    `leader_epoch` and `partition_epoch` only grow.
    """

    __slots__ = (
        "_follower_end_offsets",
        "_node_id",
        "epoch_start_offset",
        "high_watermark",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "local_end_offset",
        "partition_epoch",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, *, node_id: NodeId) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._node_id = node_id
        self.leader: NodeId = -1
        self.is_leader = False
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        self.high_watermark: Offset = 0
        self.local_end_offset: Offset = 0
        # The end of the log when this node became the leader. Until the high watermark reaches it, the previous
        # leader's high watermark, and with it the answer to "latest", is unknown.
        self.epoch_start_offset: Offset = 0
        self._follower_end_offsets: dict[NodeId, Offset] = {}

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader's high watermark is below the end of the log that it took over."""
        return self.high_watermark < self.epoch_start_offset

    def restore(self, *, high_watermark: Offset, start_offset: Offset, end_offset: Offset) -> None:
        """Set the state from the log on disk. `high_watermark` is the checkpointed one, and is limited to the log."""
        self.high_watermark = min(max(high_watermark, start_offset), end_offset)
        self.local_end_offset = end_offset

    def set_leader(
        self,
        leader: NodeId,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[NodeId],
        isr: Sequence[NodeId],
    ) -> bool:
        """Set the partition's leader and replicas from the metadata; returns whether the high watermark moved."""
        new_epoch = leader_epoch > self.leader_epoch
        self.leader, self.leader_epoch, self.partition_epoch = leader, leader_epoch, partition_epoch
        self.is_leader = leader == self._node_id
        self.replicas, self.isr = tuple(replicas), tuple(isr)
        # A new epoch forgets the follower offsets: since then a follower may have truncated its log. With the old
        # offset the high watermark could pass records that the follower no longer has, and they would be acknowledged.
        known = {} if new_epoch else self._follower_end_offsets
        self._follower_end_offsets = {
            node: known.get(node, UNKNOWN_END_OFFSET) for node in self.replicas if node != self._node_id
        }
        if new_epoch and self.is_leader:
            self.epoch_start_offset = self.local_end_offset
        return self._advance()

    def local_end_moved(self, end_offset: Offset) -> bool:
        """Set the end of the local records that count as stored; returns whether the high watermark moved."""
        self.local_end_offset = end_offset
        # The hot path: a leader without followers in sync. Same result as `_advance`, without its generator.
        if self.is_leader and len(self.isr) == 1:
            moved = end_offset > self.high_watermark
            if moved:
                self.high_watermark = end_offset
            return moved
        return self._advance()

    def follower_fetched(self, node: NodeId, end_offset: Offset) -> bool:
        """Record that a follower fetches from `end_offset`, so it has all records before; returns as `set_leader`."""
        self._follower_end_offsets[node] = end_offset
        return self._advance()

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

    def check_follower(self, node: NodeId, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """Return NONE if `node` may fetch as a replica, else a retriable error.

        The node may already have metadata that makes it a replica and that this leader has not seen yet.
        """
        if node in self._follower_end_offsets:
            return ErrorCode.NONE
        if current_leader_epoch == NO_LEADER_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _advance(self) -> bool:
        if not self.is_leader:
            return False
        committed = min(self._in_sync_end_offsets(), default=self.local_end_offset)
        # After an election the minimum is -1 until every in-sync follower has fetched. The high watermark must not
        # fall: consumers have already read up to it.
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _in_sync_end_offsets(self) -> Iterable[Offset]:
        yield self.local_end_offset
        for node in self.isr:
            if node != self._node_id:
                yield self._follower_end_offsets.get(node, UNKNOWN_END_OFFSET)
