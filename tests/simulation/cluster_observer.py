"""Takes the views of a cluster again and again, and gives them to the checkers.

The observer belongs to no process: it reads nodes and disks directly, between two callbacks. Most looks are quick; the
thorough ones also compare the batches of all logs.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.base.types import NodeId, Offset, TopicPartition
from rookery.metadata.image import ClusterImage
from rookery.node.node import Node
from rookery.quorum.election_state import STATE_FILE, decode_election_state
from rookery.records.batch import iterate_headers
from rookery.replication.replica import Replica
from rookery.storage.names import LOG_SUFFIX, METADATA_PARTITION, offset_of, suffix_of
from tests.simulation.checkers import Violations
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.cluster_checkers import LogChecker, MetadataChecker, QuorumChecker, ReplicaChecker
from tests.simulation.cluster_views import (
    Batch,
    DiskView,
    MetadataView,
    NodeView,
    PartitionKey,
    PartitionView,
    QuorumView,
    ReplicaView,
)
from tests.simulation.disk import SimulatedDisk
from tests.simulation.world import DATA, Machine, World

_PAUSE_S = (0.02, 0.4)
_LOOKS_PER_THOROUGH_LOOK = 12
METADATA_DIRECTORY = DATA / str(METADATA_PARTITION)
_CHECKPOINT_SUFFIX = ".checkpoint"


class Observer:
    """`is_compared`: whether the batches of a topic's replicas are compared; those of compacted logs may differ."""

    def __init__(
        self,
        world: World,
        cluster: SimulatedCluster,
        violations: Violations,
        *,
        is_compared: Callable[[str], bool] = lambda topic: not topic.startswith("__"),
        may_lose: bool = False,
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._random = world.new_random()
        self._is_compared = is_compared
        self._quorum = QuorumChecker(violations)
        self._metadata = MetadataChecker(violations)
        self._replicas = ReplicaChecker(violations, may_lose=may_lose)
        self._metadata_logs = LogChecker(violations, "metadata-committed")
        self._logs = LogChecker(violations, "replicas-agree")
        self._metadata_views: dict[tuple[NodeId, int], MetadataView] = {}
        self.looks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*_PAUSE_S))
            self.look(thorough=self.looks % _LOOKS_PER_THOROUGH_LOOK == 0)

    def look(self, *, thorough: bool) -> list[NodeView]:
        """Take all views and check them."""
        self.looks += 1
        nodes = self.nodes()
        self._quorum.observe(nodes, self.disks())
        self._metadata.observe(nodes)
        self._replicas.observe(nodes)
        if thorough:
            for node in nodes:
                self._compare_logs(node, self._cluster.machines[node.node_id].disk)
        return nodes

    def _compare_logs(self, node: NodeView, disk: SimulatedDisk) -> None:
        if node.quorum is not None and node.quorum.high_watermark is not None:
            batches = read_batches(disk, METADATA_DIRECTORY)
            self._metadata_logs.observe("the metadata log", node.node_id, batches, node.quorum.high_watermark)
        for replica in node.replicas:
            partition = replica.key.topic_partition
            if self._is_compared(partition.topic):
                batches = read_batches(disk, DATA / str(partition), start=replica.start_offset)
                self._logs.observe(replica.key, node.node_id, batches, replica.high_watermark)

    # Views

    def nodes(self) -> list[NodeView]:
        """Return views of all nodes that have opened the metadata log, also of paused ones."""
        return [
            self._node_view(node_id, machine, machine.node)
            for node_id, machine in self._cluster.machines.items()
            if machine.node is not None and machine.node._quorum is not None
        ]

    def disks(self) -> list[DiskView]:
        return [disk_view(node_id, machine) for node_id, machine in self._cluster.machines.items()]

    def _node_view(self, node_id: NodeId, machine: Machine, node: Node) -> NodeView:
        image = node._metadata.image
        cached = self._metadata_views.get((node_id, machine.boots))
        if cached is None or cached.offset != image.offset:
            cached = self._metadata_views[node_id, machine.boots] = metadata_view(image)
        replicas = node._broker.replicas if node._broker is not None else ()
        controller = node._controller
        return NodeView(
            node_id,
            machine.boots,
            quorum_view(node),
            controller is not None and controller.controller.is_active,
            cached,
            tuple(replica_view(replica) for replica in replicas),
            machine.serves,
        )


def quorum_view(node: Node) -> QuorumView | None:
    quorum = node._quorum
    if quorum is None:
        return None
    core = quorum._core
    return QuorumView(
        quorum.leader_epoch,
        quorum.leader_id,
        quorum.is_leading,
        quorum.high_watermark,
        quorum.next_offset,
        core.me,
        (core.voter_history.current.keys, core.voter_history.previous.keys),
    )


def metadata_view(image: ClusterImage) -> MetadataView:
    partitions = {
        PartitionKey(topic.topic_id, TopicPartition(topic.name, index)): PartitionView(
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.replicas,
            partition.isr,
            partition.elr,
            bool(partition.adding_replicas or partition.removing_replicas),
        )
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }
    fenced = frozenset(node_id for node_id, broker in image.brokers.items() if broker.fenced)
    return MetadataView(image.offset, frozenset(image.brokers), fenced, partitions)


def replica_view(replica: Replica) -> ReplicaView:
    state, log = replica.state, replica.log
    return ReplicaView(
        PartitionKey(state.topic_id, state.topic_partition),
        state.is_leader,
        state.leader_epoch,
        state.partition_epoch,
        frozenset(state.isr),
        frozenset(state.maximal_isr),
        state.high_watermark,
        log.start_offset,
        log.end_offset,
    )


def disk_view(node_id: NodeId, machine: Machine) -> DiskView:
    state = machine.disk.peek(METADATA_DIRECTORY / STATE_FILE)
    return DiskView(
        node_id,
        machine.disks,
        decode_election_state(state) if state else None,
        durable_end(machine.disk, METADATA_DIRECTORY),
    )


def durable_end(disk: SimulatedDisk, directory: Path) -> Offset:
    """Return the end of a log, or of its newest snapshot, as a power loss would leave it."""
    end = 0
    names = disk.peek_names(directory, synced=True)
    for name in names:
        if name.endswith(_CHECKPOINT_SUFFIX):
            end = max(end, int(name.partition("-")[0]))
    segments = [name for name in names if suffix_of(name) == LOG_SUFFIX]
    for name in segments[-2:]:
        for _, header in iterate_headers(disk.peek(directory / name, synced=True) or b""):
            end = max(end, header.last_offset + 1)
    return end


def read_batches(disk: SimulatedDisk, directory: Path, *, start: Offset = 0) -> Iterator[Batch]:
    """Yield the batches in the files of a log."""
    for name in disk.peek_names(directory):
        if suffix_of(name) == LOG_SUFFIX and offset_of(name) is not None:
            for _, header in iterate_headers(disk.peek(directory / name) or b""):
                if header.base_offset >= start:
                    yield Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
