"""What a simulated cluster shows of itself at one moment: plain values, taken from nodes and disks, for the checkers.

A view is taken between two callbacks of the event loop, so that it is a state that could be seen from outside. Nothing
here waits or changes anything. `cluster_checkers` has the invariants.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rookery.base.types import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from rookery.quorum.election_state import ElectionState
from rookery.quorum.voters import ReplicaKey


class Batch(NamedTuple):
    """A batch in a log file: equal batches have equal records, written by the same leader."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int


class QuorumView(NamedTuple):
    """A replica of the metadata log. `high_watermark` is None while the replica does not know it.

    `voter_sets` are the set of voters in force, which is the newest one in the log, and the one before it.
    """

    epoch: LeaderEpoch
    leader_id: NodeId | None
    is_leading: bool
    high_watermark: Offset | None
    end_offset: Offset
    me: ReplicaKey
    voter_sets: tuple[Sequence[ReplicaKey], ...]

    @property
    def voters(self) -> Sequence[ReplicaKey]:
        return self.voter_sets[0]


class PartitionKey(NamedTuple):
    """A partition of one incarnation of a topic: a topic that is deleted and created again has another id."""

    topic_id: TopicId
    topic_partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.topic_partition} ({str(self.topic_id)[:8]})"


class PartitionView(NamedTuple):
    """A partition in the metadata of a node. `is_moving`: a reassignment has not ended."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    is_moving: bool = False


class MetadataView(NamedTuple):
    """The metadata that a node has published. `fenced` are the registered brokers that are fenced."""

    offset: Offset
    brokers: frozenset[NodeId]
    fenced: frozenset[NodeId]
    partitions: Mapping[PartitionKey, PartitionView]


class ReplicaView(NamedTuple):
    """A replica of a partition. `maximal_isr`: the in-sync replicas and those that an AlterPartition would add."""

    key: PartitionKey
    is_leader: bool
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: frozenset[NodeId]
    maximal_isr: frozenset[NodeId]
    high_watermark: Offset
    start_offset: Offset
    end_offset: Offset


class NodeView(NamedTuple):
    """A node that is up. `boot` counts the processes of the machine; `serves`: the node has started."""

    node_id: NodeId
    boot: int
    quorum: QuorumView | None
    is_active_controller: bool
    metadata: MetadataView
    replicas: tuple[ReplicaView, ...]
    serves: bool = True


class DiskView(NamedTuple):
    """The disk of a machine, whether or not a node runs there. `number` counts the disks that the machine has had.

    `election_state` is None before the first election. `metadata_end` is the end of the metadata log that a power loss
    would leave.
    """

    node_id: NodeId
    number: int
    election_state: ElectionState | None
    metadata_end: Offset


def newest_metadata(nodes: Iterable[NodeView]) -> MetadataView | None:
    """Return the metadata of the node that has the most, None if no node is up."""
    return max((node.metadata for node in nodes), key=lambda metadata: metadata.offset, default=None)


def newest_voters(nodes: Iterable[NodeView]) -> Sequence[ReplicaKey]:
    """Return the voters of the node that is in the newest epoch and has the longest metadata log."""
    views = [node.quorum for node in nodes if node.quorum is not None]
    newest = max(views, key=lambda quorum: (quorum.epoch, quorum.end_offset), default=None)
    return newest.voters if newest is not None else ()
