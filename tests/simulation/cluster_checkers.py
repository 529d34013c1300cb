"""The checkers of a simulated cluster: invariants of views (`cluster_views`) that are taken again and again, by name.

one-controller-per-epoch   no two nodes lead the metadata quorum in one epoch, as nodes and `quorum-state` files say
one-vote-per-epoch         a voter's disk never has two votes of one epoch
quorum-epochs              the epoch of a node and of its disk never goes back
metadata-high-watermark    a node's high watermark of the metadata log never goes back
metadata-committed         all replicas have the same metadata below their high watermarks, also later
durable-majority           what is committed in the metadata log would survive a power loss of all voters
one-leader-per-epoch       no two nodes lead a partition in one leader epoch
partition-epochs           the epochs of a partition never go back in the metadata
valid-isr                  a leader is in its ISR, the ISR is a part of the replicas, and shares no node with the ELR
fenced-in-isr              no fenced broker is in an ISR, unless it is the only member
maximal-isr                the maximal ISR of a leader contains the ISR of the controller
replicas-agree             all replicas of a partition have the same batches below their high watermarks, also later
leader-has-committed       the leader of the newest epoch has all records that were below a high watermark
high-watermark             "latest" never goes back for a client
"""

from collections.abc import Iterable, Sequence

from rookery.base.types import LeaderEpoch, NodeId, Offset, TopicPartition
from rookery.quorum.voters import ReplicaKey
from tests.simulation.checkers import Violations
from tests.simulation.cluster_views import (
    Batch,
    DiskView,
    MetadataView,
    NodeView,
    PartitionKey,
    PartitionView,
    ReplicaView,
    newest_metadata,
)


class QuorumChecker:
    """Checks elections, epochs and the high watermark of the metadata log."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._leaders: dict[LeaderEpoch, tuple[NodeId, str]] = {}
        self._epochs: dict[tuple[NodeId, int, str], LeaderEpoch] = {}
        self._votes: dict[tuple[NodeId, int, LeaderEpoch], ReplicaKey] = {}
        self._high_watermarks: dict[tuple[NodeId, int], Offset] = {}
        # The highest offset that a node has reported as committed.
        self.committed: Offset = 0

    def observe(self, nodes: Sequence[NodeView], disks: Sequence[DiskView]) -> None:
        for node in nodes:
            self._observe_node(node)
        for disk in disks:
            self._observe_disk(disk)
        self._check_majority(nodes, disks)

    def _observe_node(self, node: NodeView) -> None:
        quorum = node.quorum
        if quorum is None:
            return
        if quorum.leader_id is not None:
            self._see_leader(quorum.epoch, quorum.leader_id, f"node {node.node_id}")
        if quorum.is_leading:
            self._see_leader(quorum.epoch, node.node_id, f"node {node.node_id}, which leads")
        self._see_epoch(node.node_id, node.boot, "node", quorum.epoch)
        if quorum.high_watermark is None:
            return
        before = self._high_watermarks.get((node.node_id, node.boot), 0)
        if quorum.high_watermark < before:
            self._violations.add(
                "metadata-high-watermark",
                f"the high watermark of node {node.node_id} went back from {before} to {quorum.high_watermark}",
            )
        self._high_watermarks[node.node_id, node.boot] = quorum.high_watermark
        self.committed = max(self.committed, quorum.high_watermark)

    def _observe_disk(self, disk: DiskView) -> None:
        state = disk.election_state
        if state is None:
            return
        self._see_epoch(disk.node_id, disk.number, "disk", state.epoch)
        if state.leader_id is not None:
            self._see_leader(state.epoch, state.leader_id, f"the disk of node {disk.node_id}")
        if state.voted is not None:
            known = self._votes.setdefault((disk.node_id, disk.number, state.epoch), state.voted)
            if known != state.voted:
                self._violations.add(
                    "one-vote-per-epoch",
                    f"node {disk.node_id} voted for {known.node_id} and {state.voted.node_id} in epoch {state.epoch}",
                )

    def _see_leader(self, epoch: LeaderEpoch, leader: NodeId, source: str) -> None:
        known, first_source = self._leaders.setdefault(epoch, (leader, source))
        if known != leader:
            self._violations.add(
                "one-controller-per-epoch",
                f"{leader} leads epoch {epoch} according to {source}, but {known} according to {first_source}",
            )

    def _see_epoch(self, node: NodeId, incarnation: int, source: str, epoch: LeaderEpoch) -> None:
        before = self._epochs.get((node, incarnation, source), -1)
        if epoch < before:
            self._violations.add("quorum-epochs", f"the {source} of {node} went back from epoch {before} to {epoch}")
        self._epochs[node, incarnation, source] = epoch

    def _check_majority(self, nodes: Sequence[NodeView], disks: Sequence[DiskView]) -> None:
        """Check that a majority of the disks has what is committed. A new disk is empty until it has caught up.

        While the voters change, the majority may be one of the old set or one of the new set.
        """
        if any(disk.number > 1 for disk in disks):
            return
        ends = {disk.node_id: disk.metadata_end for disk in disks}
        sets = [voters for node in nodes if node.quorum is not None for voters in node.quorum.voter_sets if voters]
        for voters in sets:
            durable = sum(ends[voter.node_id] >= self.committed for voter in voters)
            if durable > len(voters) // 2:
                return
        if sets:
            self._violations.add(
                "durable-majority", f"{self.committed} is committed, but the disks have the log up to {ends}"
            )


class MetadataChecker:
    """Checks the partitions and brokers in the metadata of each node."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._epochs: dict[tuple[NodeId, int, PartitionKey], tuple[LeaderEpoch, int]] = {}
        self._offsets: dict[tuple[NodeId, int], Offset] = {}

    def observe(self, nodes: Sequence[NodeView]) -> None:
        for node in nodes:
            # Most views show the same image as before.
            if self._offsets.get((node.node_id, node.boot)) == node.metadata.offset:
                continue
            self._offsets[node.node_id, node.boot] = node.metadata.offset
            for key, partition in node.metadata.partitions.items():
                self._check_partition(node, key, partition)

    def _check_partition(self, node: NodeView, key: PartitionKey, partition: PartitionView) -> None:
        where = f"node {node.node_id}, metadata {node.metadata.offset}: {key} {partition}"
        isr, elr = set(partition.isr), set(partition.elr)
        if not isr <= set(partition.replicas):
            self._violations.add("valid-isr", f"the ISR has other nodes than the replicas: {where}")
        if partition.leader >= 0 and partition.leader not in isr:
            self._violations.add("valid-isr", f"the leader is not in the ISR: {where}")
        if isr & elr:
            self._violations.add("valid-isr", f"a replica is in the ISR and in the ELR: {where}")
        if len(isr) > 1 and isr & node.metadata.fenced:
            self._violations.add(
                "fenced-in-isr", f"brokers {sorted(isr & node.metadata.fenced)} are fenced and in the ISR: {where}"
            )
        before = self._epochs.get((node.node_id, node.boot, key), (-1, -1))
        if partition.leader_epoch < before[0] or partition.partition_epoch < before[1]:
            self._violations.add("partition-epochs", f"the epochs were {before} before: {where}")
        self._epochs[node.node_id, node.boot, key] = partition.leader_epoch, partition.partition_epoch


class ReplicaChecker:
    """Checks the leaders and high watermarks of partitions.

    `may_lose`: whether a power loss may remove acknowledged records, so that a leader may have fewer than before.
    """

    def __init__(self, violations: Violations, *, may_lose: bool = False) -> None:
        self._violations = violations
        self._may_lose = may_lose
        self._leaders: dict[tuple[PartitionKey, LeaderEpoch], NodeId] = {}
        self._committed: dict[PartitionKey, Offset] = {}

    def observe(self, nodes: Sequence[NodeView]) -> None:
        newest = newest_metadata(nodes)
        for node in nodes:
            for replica in node.replicas:
                if replica.is_leader:
                    self._check_leader(node.node_id, replica)
                    if newest is not None:
                        self._check_maximal_isr(node.node_id, replica, newest)
        if not self._may_lose and newest is not None:
            self._check_committed(nodes, newest)
        for node in nodes:
            for replica in node.replicas:
                self._committed[replica.key] = max(self._committed.get(replica.key, 0), replica.high_watermark)

    def _check_leader(self, node: NodeId, replica: ReplicaView) -> None:
        known = self._leaders.setdefault((replica.key, replica.leader_epoch), node)
        if known != node:
            self._violations.add(
                "one-leader-per-epoch", f"{known} and {node} lead {replica.key} in epoch {replica.leader_epoch}"
            )

    def _check_maximal_isr(self, node: NodeId, replica: ReplicaView, newest: MetadataView) -> None:
        """Compare a leader with the controller's newest metadata, unless the controller has elected another leader."""
        controlled = newest.partitions.get(replica.key)
        if controlled is None or controlled.leader_epoch != replica.leader_epoch or controlled.leader != node:
            return
        missing = set(controlled.isr) - replica.maximal_isr
        # Until the leader has seen the newest metadata it may have more members, never fewer.
        if missing:
            self._violations.add(
                "maximal-isr",
                f"leader {node} of {replica.key} in epoch {replica.leader_epoch} counts on "
                f"{sorted(replica.maximal_isr)}, but the ISR is {sorted(controlled.isr)}",
            )

    def _check_committed(self, nodes: Sequence[NodeView], newest: MetadataView) -> None:
        """Check the leaders that serve: one that starts on an empty disk leads until the controller knows of the loss.

        No client and no follower can reach it before that.
        """
        for node in filter(lambda each: each.serves, nodes):
            for replica in node.replicas:
                controlled = newest.partitions.get(replica.key)
                committed = self._committed.get(replica.key, 0)
                if (
                    controlled is not None
                    and replica.is_leader
                    and controlled.leader == node.node_id
                    and controlled.leader_epoch == replica.leader_epoch
                    and replica.end_offset < committed
                ):
                    self._violations.add(
                        "leader-has-committed",
                        f"leader {node.node_id} of {replica.key} in epoch {replica.leader_epoch} has its log up to "
                        f"{replica.end_offset}, but the high watermark was {committed}",
                    )


class LogChecker:
    """Checks that the committed parts of all replicas of a log have the same batches, now and later.

    A log whose batches are rewritten (by compaction) must not be given to it.
    """

    def __init__(self, violations: Violations, checker: str) -> None:
        self._violations = violations
        self._checker = checker
        self._committed: dict[object, dict[Offset, tuple[Batch, NodeId]]] = {}

    def observe(self, log: object, node: NodeId, batches: Iterable[Batch], high_watermark: Offset) -> None:
        """Compare the batches of a node's log that are below the high watermark with those that nodes had before.

        A log may begin later than that of another node, and may be short; but it has no other batches and no holes.
        """
        committed = self._committed.setdefault(log, {})
        previous: Batch | None = None
        for batch in batches:
            if batch.last_offset >= high_watermark:
                break
            known, first_node = committed.setdefault(batch.base_offset, (batch, node))
            if known != batch:
                self._violations.add(
                    self._checker, f"{log}: node {node} has {batch}, but node {first_node} had {known} there"
                )
            if previous is not None and batch.base_offset != previous.last_offset + 1:
                self._violations.add(self._checker, f"{log}: node {node} has {batch} right after {previous}")
            previous = batch


class LatestOffsets:
    """Checks that the end of a partition, as ListOffsets returns it, never goes back for one client."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._latest: dict[tuple[str, TopicPartition], Offset] = {}

    def observe(self, client: str, partition: TopicPartition, offset: Offset) -> None:
        before = self._latest.get((client, partition), 0)
        if offset < before:
            self._violations.add("high-watermark", f"{client} saw the end of {partition} go back: {before} to {offset}")
        self._latest[client, partition] = max(before, offset)
