"""One partition's replication state: who leads, who is in sync, and how far its records are committed.

Pure: events in (a new leadership, an append, a follower's fetch), the new high watermark out. The log itself belongs
to storage; `manager.ReplicaManager` owns the pairs of state and log and is the only caller.

Theory of operation
- The high watermark is the smallest end offset among the in-sync replicas, and it never goes back while one leader
  leads. The leader's own end offset counts as soon as the log says that it may (`local_end_offset`): at once, or
  after the fsync that `flush.messages` asks for. With one replica the high watermark therefore follows the log.
- A new leader does not know how far its followers are: they count from `UNKNOWN_END_OFFSET` until they fetch.
- Offsets at or above the high watermark are not shown to consumers, and an `acks=all` is answered when the high
  watermark has passed its last record.
"""

from collections.abc import Iterable, Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition

UNKNOWN_END_OFFSET: Offset = -1
# A name of its own for the hot path: Python 3.11 takes ten times as long to look up an enum's member.
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
        # Where the log ended when this leadership began: until the high watermark reaches it, "latest" is unknown.
        self.epoch_start_offset: Offset = 0
        self._follower_end_offsets: dict[NodeId, Offset] = {}

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader's high watermark still lags behind the records that it may have committed."""
        return self.high_watermark < self.epoch_start_offset

    def start(self, *, high_watermark: Offset, start_offset: Offset, end_offset: Offset) -> None:
        """Take the log as it was found: the checkpointed high watermark, kept within the log's bounds."""
        self.high_watermark = min(max(high_watermark, start_offset), end_offset)
        self.local_end_offset = end_offset

    def lead(
        self,
        leader: NodeId,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[NodeId],
        isr: Sequence[NodeId],
    ) -> bool:
        """Apply what the metadata says; True if the high watermark moved by it."""
        new_epoch = leader_epoch > self.leader_epoch
        self.leader, self.leader_epoch, self.partition_epoch = leader, leader_epoch, partition_epoch
        self.is_leader = leader == self._node_id
        self.replicas, self.isr = tuple(replicas), tuple(isr)
        known = {} if new_epoch else self._follower_end_offsets
        self._follower_end_offsets = {
            node: known.get(node, UNKNOWN_END_OFFSET) for node in self.replicas if node != self._node_id
        }
        if new_epoch and self.is_leader:
            self.epoch_start_offset = self.local_end_offset
        return self._advance()

    def local_end_moved(self, end_offset: Offset) -> bool:
        """The log may count up to `end_offset`; True if the high watermark moved."""
        self.local_end_offset = end_offset
        if self.is_leader and len(self.isr) == 1:
            moved = end_offset > self.high_watermark
            if moved:
                self.high_watermark = end_offset
            return moved
        return self._advance()

    def follower_fetched(self, node: NodeId, end_offset: Offset) -> bool:
        """A follower asked for `end_offset`, so it has all before; True if the high watermark moved."""
        self._follower_end_offsets[node] = end_offset
        return self._advance()

    def still_leads(self, leader_epoch: LeaderEpoch) -> bool:
        """Whether this node leads and `leader_epoch`, in which records were appended, has not ended.

        Every waiter for acknowledgement checks this before it looks at an offset. Without the epoch, a node that was
        deposed and elected again before the waiter ran would look like one that had led all the time. In between, it
        may have truncated the waiter's records and replicated others at the same offsets: the high watermark passes
        `end_offset`, and records that no replica has are acknowledged.
        """
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_epoch(self, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """Whether a client that believes in this epoch may be served (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return _OK
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """As `check_epoch`, and this node must lead."""
        error = self.check_epoch(current_leader_epoch)
        if error is _OK and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def check_follower(self, node: NodeId, current_leader_epoch: LeaderEpoch) -> ErrorCode:
        """Whether `node` may fetch as a replica. A stranger is told to look again, as it may know more than we do."""
        if node in self._follower_end_offsets:
            return ErrorCode.NONE
        if current_leader_epoch == NO_LEADER_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _advance(self) -> bool:
        if not self.is_leader:
            return False
        committed = min(self._in_sync_end_offsets(), default=self.local_end_offset)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _in_sync_end_offsets(self) -> Iterable[Offset]:
        yield self.local_end_offset
        for node in self.isr:
            if node != self._node_id:
                yield self._follower_end_offsets.get(node, UNKNOWN_END_OFFSET)
