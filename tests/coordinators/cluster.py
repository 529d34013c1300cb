"""Three brokers of a simulated world whose partitions can be moved from one to another at any step.

The brokers are real: logs, replicas, coordinators, handlers, connections between them. The active controller and
replication are not: `Cluster` writes the metadata and decides who leads, and copies batches from leaders to followers
as followers' fetches would. So a test can stop both at any point, which it cannot on nodes of a cluster.

An append of a leader is a step. `at_step` names one, and `move` is called after the turn of the loop in which it
happens. The record of that step is then

    LOST  only in the old leader's log, and is truncated there: the new leader never had it
    KEPT  in the logs of all replicas, but above the high watermark

Followers learn the high watermark with a delay, as in a cluster: a new leader's may be lower than what clients saw.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, ProducerId, TopicName, TopicPartition
from rookery.broker.context import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.fetch_sessions import FetchSessions
from rookery.metadata.controller_link import BrokerRequests
from rookery.metadata.features import GROUP_VERSION, TRANSACTION_VERSION
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage
from rookery.metadata.log_config import broker_layers, log_config
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import (
    SAME_LEADER,
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from rookery.metadata.requests import OK, ControllerRequests, ProducerIdBlock
from rookery.net.address import Address
from rookery.net.listener import Listener
from rookery.net.peers import Peers
from rookery.node.coordinators import build_coordinators
from rookery.records.control import Marker
from rookery.replication.flusher import Flusher
from rookery.replication.follower_log import append_some, truncate_to_leader
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.replication.replica import Appended, Fetched, Replica
from rookery.storage.log import Log
from rookery.storage.manager import LogManager
from tests.broker.cluster import FakeQuorum
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import Process
from tests.simulation.world import PORT, World

NODES = (1, 2, 3)
_DATA = Path("/data")
_REPLICATION_DELAY_S = 0.002
# A fetch is answered when there are records, but not when only the high watermark has moved.
_HIGH_WATERMARK_DELAY_S = 0.3
# How long a deposed leader does not know it, if it learns late.
_LATE_S = 0.7
# How long the controller does not notice that a broker is dead.
_NOTICED_S = 0.5
_BLOCK_SIZE = 1000


class Fate(Enum):
    """What becomes of the record of the step at which a partition moves."""

    LOST = auto()
    KEPT = auto()


class _Pending(Pending):
    """Reports the changes of partitions to the replication."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[TopicPartition], None]) -> None:
        super().__init__(loop)
        self._on_change = on_change

    def wake(self, partition: TopicPartition) -> None:
        super().wake(partition)
        self._on_change(partition)


class _Controller:
    """The part of the controller that brokers need here: producer ids."""

    def __init__(self) -> None:
        self._next: ProducerId = 0

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock:
        first, self._next = self._next, self._next + _BLOCK_SIZE
        return ProducerIdBlock(OK, first, _BLOCK_SIZE)


class Member:
    """One broker: its process, and the metadata that waits to be applied."""

    def __init__(self, cluster: "Cluster", node_id: NodeId) -> None:
        world = cluster.world
        self.node_id = node_id
        self.host = host_of(node_id)
        self.process: Process = world.new_process(self.host, self.host)
        self.metadata = MetadataPublisher()
        self.disk = SimulatedDisk(
            world.new_random(), world.trace, on_crash=lambda: None, soon=lambda action: world.loop.call_soon(action)
        )
        self.disk.make_directory(_DATA)
        self._cluster = cluster
        self._batches: asyncio.Queue[tuple[Offset, list[bytes]]] = asyncio.Queue()
        self.may_apply = asyncio.Event()
        self.may_apply.set()
        self.services: Services

    async def start(self, config: Mapping[str, str]) -> None:
        cluster, loop = self._cluster, asyncio.get_running_loop()
        layers = broker_layers(EMPTY_IMAGE, self.node_id, config)
        logs = LogManager(self.disk, cluster.world.clock, [_DATA])
        logs.load(lambda topic: log_config({}, layers))
        pending = _Pending(loop, cluster.partition_changed)
        replicas = ReplicaManager(logs, node_id=self.node_id, static_config=config, pending=pending, flusher=Flusher())
        self.metadata.add(ImageListener("replicas", replicas.apply, prepare=replicas.prepare, finish=replicas.finish))
        self.services = self._build_services(config, layers, replicas, pending)
        listener = Listener(self.host, PORT, Dispatcher(self.services).handle, network=cluster.world.network)
        await listener.bind()
        await listener.start()
        cluster.world.loop.spawn(self.process, self._follow())

    def _build_services(
        self, config: Mapping[str, str], layers: BrokerLayers, replicas: ReplicaManager, pending: Pending
    ) -> Services:
        world, random = self._cluster.world, self._cluster.world.new_random()
        controller = cast(BrokerRequests, self._cluster.controller)
        coordinators = build_coordinators(
            layers,
            node_id=self.node_id,
            controller=controller,
            metadata=self.metadata,
            replicas=replicas,
            pending=pending,
            clock=world.clock,
            new_uuid=lambda: UUID(int=random.getrandbits(128)),
            make_peers=lambda name: Peers(lambda node: Address(host_of(node), PORT), client_id=name),
        )
        coordinators.start(self.metadata)
        return Services(
            node_id=self.node_id,
            cluster_id="4L6g3nShT-eMCtK--X86sw",
            clock=world.clock,
            metadata=self.metadata,
            controller=cast(ControllerRequests, controller),
            broker_requests=controller,
            quorum=FakeQuorum(self.node_id),
            replicas=replicas,
            pending=pending,
            fetch_sessions=FetchSessions(slots_max=100, random_id=lambda: random.randrange(1, 2**31)),
            producer_ids=coordinators.producer_ids,
            groups=coordinators.groups,
            markers=coordinators.markers,
            transactions=coordinators.transactions,
            partition_transactions=coordinators.partition_transactions,
            static_config=config,
            fetch_max_bytes=layers.integer("fetch.max.bytes"),
        )

    def send(self, base_offset: Offset, values: list[bytes]) -> None:
        self._batches.put_nowait((base_offset, values))

    async def _follow(self) -> None:
        while True:
            batch = await self._batches.get()
            await self.may_apply.wait()
            await self.metadata.commit(*batch)
            self._cluster.member_applied()

    def replica(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> Replica | None:
        """Return the replica, or None while this broker has not applied the metadata of the leader epoch."""
        found = self.services.replicas.find(partition)
        return found if isinstance(found, Replica) and found.state.leader_epoch == leader_epoch else None


class Cluster:
    """`start` boots the brokers and creates the topics, each partition with a replica on every broker."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.controller = _Controller()
        self.image: ClusterImage = EMPTY_IMAGE
        self.steps: list[TopicPartition] = []
        # Called with the partition of the step at which it is set.
        self._at_step: int | None = None
        self._on_step: Callable[[TopicPartition], None] = lambda partition: None
        self._frozen: set[TopicPartition] = set()
        self._down: set[NodeId] = set()
        self._changed: set[TopicPartition] = set()
        # The codes of markers that partitions did not accept.
        self.refused_markers: list[ErrorCode] = []
        self._offset: Offset = 0
        self.members: dict[NodeId, Member] = {}
        self._watch(patch)

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        append, append_marker = Log.append, Replica.append_marker

        def counted(log: Log, *args: Any, **kwargs: Any) -> Offset:
            offset = append(log, *args, **kwargs)
            self._appended(log)
            return offset

        def noted(replica: Replica, marker: Marker, **kwargs: Any) -> Appended:
            appended = append_marker(replica, marker, **kwargs)
            if appended.error_code is not ErrorCode.NONE:
                self.refused_markers.append(appended.error_code)
            return appended

        patch.setattr(Log, "append", counted)
        patch.setattr(Replica, "append_marker", noted)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host_of(node)}:{PORT}" for node in NODES)

    async def start(self, topics: Mapping[TopicName, int], config: Mapping[str, str]) -> None:
        self.members = {node: Member(self, node) for node in NODES}
        await asyncio.gather(
            *(self.world.loop.spawn(member.process, member.start(config)) for member in self.members.values())
        )
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name=GROUP_VERSION, feature_level=1),
            FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2),
        ]
        for node in NODES:
            endpoint = BrokerEndpoint("PLAINTEXT", host_of(node), PORT, 0)
            records.append(
                RegisterBrokerRecord(
                    broker_id=node,
                    incarnation_id=UUID(int=node),
                    broker_epoch=node,
                    endpoints=(endpoint,),
                    fenced=False,
                )
            )
        for number, (name, count) in enumerate(topics.items(), 1):
            records += _topic(name, UUID(int=number), count, first_leader=number)
        self._commit(records)
        await asyncio.sleep(0.1)

    # Steps

    def at_step(self, number: int, on_step: Callable[[TopicPartition], None]) -> None:
        """Call `on_step` after the turn of the loop in which a leader makes the given append, counted from now."""
        self.steps.clear()
        self._at_step, self._on_step = number, on_step

    def _appended(self, log: Log) -> None:
        member = next((each for each in self.members.values() if each.disk is log.files), None)
        partition = log.partition
        if member is None or self.leader(partition) != member.node_id:
            return
        self.steps.append(partition)
        if len(self.steps) - 1 == self._at_step:
            # Replication stops at once: in the turn before the call, the record could be copied and committed.
            self._frozen = set(self._partitions())
            self.world.loop.call_soon(self._on_step, partition, context=self.world.outside)

    # The controller

    def partition(self, partition: TopicPartition) -> PartitionImage:
        return self.image.topics[partition.topic].partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> NodeId:
        return self.partition(partition).leader

    def next_leader(self, partition: TopicPartition) -> NodeId:
        """Return the broker that leads the partition after the next move."""
        return NODES[(NODES.index(self.leader(partition)) + 1) % len(NODES)]

    def move(self, partition: TopicPartition, fate: Fate, *, is_late: bool) -> None:
        """Elect the next replica of a partition. `is_late`: the old leader learns of it when others have long acted."""
        old, new = self.leader(partition), self.next_leader(partition)
        if fate is Fate.KEPT:
            self._replicate(partition, are_copies_counted=False)
        if is_late:
            deposed = self.members[old]
            deposed.may_apply.clear()
            self.world.loop.call_later(_LATE_S, deposed.may_apply.set, context=deposed.process.context)
        topic = self.image.topics[partition.topic]
        isr = tuple(node for node in NODES if node != old) if is_late else NODES
        self._commit(
            [PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id, isr=isr, leader=new)]
        )
        self._frozen.clear()
        self.member_applied()

    def crash(self, partition: TopicPartition, fate: Fate) -> None:
        """Kill the leader of a partition. Later, others become the leaders of all its partitions."""
        node = self.leader(partition)
        if fate is Fate.KEPT:
            self._replicate(partition, are_copies_counted=False)
        process = self.members[node].process
        process.kill()
        self.world.network.process_ended(process, silently=False)
        self._down.add(node)
        self.world.loop.call_later(_NOTICED_S, self._fail_over, node, context=self.world.outside)

    def _fail_over(self, dead: NodeId) -> None:
        records: list[MetadataRecord] = [FenceBrokerRecord(broker_id=dead, broker_epoch=dead)]
        for partition in self._partitions():
            state = self.partition(partition)
            leader = self.next_leader(partition) if state.leader == dead else SAME_LEADER
            topic_id, isr = self.image.topics[partition.topic].topic_id, tuple(n for n in state.isr if n != dead)
            records.append(
                PartitionChangeRecord(partition_id=partition.partition, topic_id=topic_id, isr=isr, leader=leader)
            )
        self._commit(records)
        self._frozen.clear()
        self.member_applied()

    def _commit(self, records: list[MetadataRecord]) -> None:
        self.image, _ = self.image.apply(records)
        for member in self.members.values():
            member.send(self._offset, [encode_record(record) for record in records])
        self._offset += len(records)

    # Replication

    def _partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(name, index) for name, topic in self.image.topics.items() for index in topic.partitions)

    def partition_changed(self, partition: TopicPartition) -> None:
        if partition not in self._changed:
            self._changed.add(partition)
            self.world.loop.call_later(
                _REPLICATION_DELAY_S, self._replicate_changed, partition, context=self.world.outside
            )

    def member_applied(self) -> None:
        for partition in self._partitions():
            self.partition_changed(partition)

    def _replicate_changed(self, partition: TopicPartition) -> None:
        self._changed.discard(partition)
        if partition not in self._frozen:
            self._replicate(partition, are_copies_counted=True)

    def _replicate(self, partition: TopicPartition, *, are_copies_counted: bool) -> None:
        """Bring the followers to the end of the leader's log; tell the leader, so that its high watermark moves."""
        state = self.partition(partition)
        leader = self.members[state.leader]
        source = leader.replica(partition, state.leader_epoch)
        if source is None or state.leader in self._down:
            return
        for node in NODES:
            copy = None if node in self._down else self.members[node].replica(partition, state.leader_epoch)
            if node != state.leader and copy is not None:
                # In the process of each: the requests that it wakes belong to it. The last fetch counts the others.
                run = leader.process.context.run
                while self.members[node].process.context.run(_store, copy, run(_fetch, source, copy, node)):
                    if not are_copies_counted and copy.log.end_offset == source.log.end_offset:
                        break
                else:
                    self.world.loop.call_later(
                        _HIGH_WATERMARK_DELAY_S, _send_high_watermark, source, copy, context=self.world.outside
                    )


def host_of(node_id: NodeId) -> str:
    return f"broker{node_id}"


def _topic(name: TopicName, topic_id: UUID, count: int, *, first_leader: int) -> list[MetadataRecord]:
    config = ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name="min.insync.replicas", value="2")
    return [
        TopicRecord(name=name, topic_id=topic_id),
        config,
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=NODES,
                isr=NODES,
                leader=NODES[(first_leader + index) % len(NODES)],
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(count)
        ),
    ]


def _send_high_watermark(source: Replica, copy: Replica) -> None:
    if source.state.is_leader and copy.state.leader_epoch == source.state.leader_epoch:
        copy.state.copied(copy.log.end_offset, source.state.high_watermark)


def _fetch(source: Replica, copy: Replica, node: NodeId) -> Fetched:
    log = copy.log
    last_epoch = log.epochs.latest if log.end_offset else NO_LEADER_EPOCH
    fetched = source.read(log.end_offset, 1 << 20, node_id=node, last_fetched_epoch=last_epoch)
    assert fetched.error_code is ErrorCode.NONE, fetched
    return fetched


def _store(copy: Replica, fetched: Fetched) -> bool:
    """Append what was fetched, or truncate what the leader does not have; returns whether there may be more."""
    if fetched.diverging_epoch is not None:
        truncate_to_leader(copy, *fetched.diverging_epoch)
        return True
    data = memoryview(b"".join(part.file.read_at(part.position, part.size) for part in fetched.slices))
    position: int | None = 0
    while position is not None:
        position = append_some(copy, data, position)
    return bool(data)
