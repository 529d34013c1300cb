"""Several nodes in one process that replicate partitions: real logs and handlers, and a small controller.

Fetches pass between them as frames. A node can be killed, cut off and started again on its directory. `Nodes` elects
leaders when a test says so, and answers AlterPartition with the checks of a real controller that matter here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.files import FileSlice
from rookery.base.slices import Slices
from rookery.base.types import Buffer, NodeId, TopicPartition
from rookery.broker.context import RequestContext, Services
from rookery.broker.fetch_sessions import FetchSessions
from rookery.broker.handlers import k01_fetch, k02_list_offsets
from rookery.metadata.image import BrokerImage, ClusterImage, Delta, PartitionImage, TopicImage
from rookery.metadata.log_config import broker_layers, log_config
from rookery.net.connection import ConnectionInfo
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.framing import RequestHeader
from rookery.protocol.message import Message
from rookery.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from rookery.replication.flusher import Flusher
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.replication.replica import Replica
from rookery.storage.manager import LogManager
from rookery.telemetry.requests import RequestStats
from tests.broker.harness import UnsyncedFiles, batch

TOPIC = "orders"
TOPIC_ID = UUID(int=77)
TP = TopicPartition(TOPIC, 0)
_FETCH_VERSION = 18
_LIST_OFFSETS_VERSION = 11
# Size, correlation id, and the tagged fields of the header.
HEADER_SIZE = 9
_NO_CHANGE = Delta(created=(), deleted=(), changed={}, configs=frozenset(), brokers=frozenset(), features=frozenset())
FAST: Mapping[str, str] = {"replica.fetch.wait.max.ms": "50", "replica.fetch.backoff.ms": "50"}


class Node:
    """One running process of a broker."""

    def __init__(self, nodes: "Nodes", node_id: NodeId, path: Path, broker_epoch: int, config: Mapping[str, str]):
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.is_up = True
        self.nodes = nodes
        self.clock = nodes.clock
        path.mkdir(parents=True, exist_ok=True)
        self.logs = LogManager(UnsyncedFiles(), self.clock, [path])
        image = nodes.image
        layers = broker_layers(image, node_id, config)
        self.summary = self.logs.load(lambda topic: log_config(image.topic_config(topic), layers))
        self.pending = Pending(asyncio.get_running_loop())
        self.flusher = Flusher()
        self.replicas = ReplicaManager(
            self.logs, node_id=node_id, static_config=config, pending=self.pending, flusher=self.flusher
        )
        session_ids = count(1)
        self.services = cast(
            Services,
            SimpleNamespace(
                node_id=node_id,
                clock=self.clock,
                replicas=self.replicas,
                pending=self.pending,
                fetch_sessions=FetchSessions(slots_max=100, random_id=lambda: next(session_ids)),
                fetch_max_bytes=10_000_000,
                slices=Slices(),
                requests=RequestStats(),
                endpoints=lambda *_: [],
                current_leader=lambda _: (-1, -1),
            ),
        )

    async def begin(self) -> None:
        await self.replicas.begin_replication(
            new_peers=lambda: _Peers(self.nodes, self.node_id),
            controller=cast(Any, _Link(self.nodes, self.node_id)),
            broker_epoch=lambda: self.broker_epoch,
        )

    def replica(self, partition: TopicPartition = TP) -> Replica:
        found = self.replicas.find(partition)
        assert isinstance(found, Replica), found
        return found

    def append(self, *values: bytes, acks: int = 1, partition: TopicPartition = TP) -> int:
        appended = self.replica(partition).append(
            bytearray(batch(*values)), acks=acks, now_ms=self.clock.now_ms(), is_inspected=True
        )
        assert appended.error_code is ErrorCode.NONE, appended
        return appended.base_offset

    async def kill(self) -> None:
        """Stop at once; the files stay as a killed process leaves them."""
        self.is_up = False
        await self.replicas.close()
        await self.flusher.wait()
        self.logs.close(clean=False)

    async def serve(self, api_key: ApiKey, version: int, body: bytes) -> bytes:
        context = RequestContext(
            self.services, RequestHeader(api_key, version, 1, "peer"), ConnectionInfo("127.0.0.1", 1, "PLAINTEXT")
        )
        answer = k01_fetch.handle(context, memoryview(bytearray(body)), 0)
        if not isinstance(answer, list):
            answer = await cast(Awaitable[Reply | None], getattr(answer, "work", answer))
        assert answer is not None
        return b"".join(_bytes(part) for part in answer)


def _bytes(part: Buffer | FileSlice) -> bytes:
    return part.file.read_at(part.position, part.size) if isinstance(part, FileSlice) else bytes(part)


class _Peers:
    """The connections of one node: handlers of the others are called directly."""

    def __init__(self, nodes: "Nodes", me: NodeId) -> None:
        self._nodes = nodes
        self._me = me

    def _target(self, node: NodeId) -> Node:
        target = self._nodes.running.get(node)
        if target is None or not target.is_up or {self._me, node} & self._nodes.cut_off:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"node {node} cannot be reached")
        return target

    async def exchange(
        self,
        node: NodeId,
        api_key: ApiKey,
        encode: Callable[[int], Buffer],
        decode: Callable[[int, memoryview], Any],
        *,
        timeout_s: float,
        version_min: int = 0,
    ) -> Any:
        await asyncio.sleep(0)
        target = self._target(node)
        self._nodes.fetch_count += 1
        reply = await target.serve(api_key, _FETCH_VERSION, bytes(encode(_FETCH_VERSION)))
        await asyncio.sleep(0)
        self._target(node)
        return decode(_FETCH_VERSION, memoryview(reply)[HEADER_SIZE:])

    async def request(
        self, node: NodeId, api_key: ApiKey, request: Any, *, timeout_s: float, version_min: int = 0
    ) -> Any:
        await asyncio.sleep(0)
        context = RequestContext(
            self._target(node).services,
            RequestHeader(api_key, _LIST_OFFSETS_VERSION, 1, "peer"),
            ConnectionInfo("127.0.0.1", 1, "PLAINTEXT"),
        )
        return k02_list_offsets.handle(context, request)

    async def close(self) -> None:
        pass


class _Link:
    def __init__(self, nodes: "Nodes", me: NodeId) -> None:
        self._nodes = nodes
        self._me = me

    async def send(self, api_key: ApiKey, request: AlterPartitionRequest, *, timeout_s: float) -> Any:
        await asyncio.sleep(0)
        while self._nodes.controller_pauses or self._me in self._nodes.cut_off:
            await asyncio.sleep(0.005)
        return self._nodes.alter(request)


class Nodes:
    """A cluster without a quorum: the image that all nodes follow."""

    def __init__(self, path: Path, *, clock: ManualClock | None = None, config: Mapping[str, str] = FAST) -> None:
        self.path = path
        self.clock = clock or ManualClock()
        self.config = {**FAST, **config}
        self.image = ClusterImage()
        self.running: dict[NodeId, Node] = {}
        self.cut_off: set[NodeId] = set()
        self.controller_pauses = False
        self.fetch_count = 0
        self.altered: list[tuple[int, ...]] = []
        self._epochs = count(100)
        self._deleted: TopicImage | None = None

    async def start_node(self, node_id: NodeId, *, rack: str | None = None) -> Node:
        epoch = next(self._epochs)
        broker = BrokerImage(
            broker_id=node_id,
            incarnation_id=UUID(int=epoch),
            broker_epoch=epoch,
            endpoints=(),
            features=(),
            rack=rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_directories=(),
        )
        self.image = replace(self.image, brokers={**self.image.brokers, node_id: broker})
        node = self.running[node_id] = Node(self, node_id, self.path / str(node_id), epoch, self.config)
        await node.replicas.start(self.image, {})
        self._publish({})
        await node.begin()
        return node

    def delete_topic(self, *, to: Sequence[NodeId] | None = None) -> None:
        topic = self._deleted = self._deleted or self.image.topics[TOPIC]
        assert topic is not None
        without = replace(self.image, topics={}, topic_names={})
        for node in self._up():
            if to is None or node.node_id in to:
                node.replicas.apply(without, replace(_NO_CHANGE, deleted=(topic,)))

    def create_topic(
        self,
        replicas: Sequence[NodeId],
        *,
        partitions: int = 1,
        topic_id: UUID = TOPIC_ID,
        to: Sequence[NodeId] | None = None,
    ) -> None:
        topic = TopicImage(
            TOPIC,
            topic_id,
            {
                index: PartitionImage(
                    index=index,
                    replicas=tuple(replicas),
                    isr=tuple(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partitions)
            },
        )
        self.image = replace(self.image, topics={TOPIC: topic}, topic_names={topic_id: TOPIC})
        delta = replace(_NO_CHANGE, created=(topic,))
        for node in self._up():
            if to is None or node.node_id in to:
                node.replicas.apply(self.image, delta)

    def add_partition(self, replicas: Sequence[NodeId]) -> None:
        topic = self.image.topics[TOPIC]
        index = len(topic.partitions)
        new = replace(
            self.partition(),
            index=index,
            replicas=tuple(replicas),
            isr=tuple(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        self.image = replace(self.image, topics={TOPIC: replace(topic, partitions={**topic.partitions, index: new})})
        self._publish({TOPIC_ID: frozenset({index})})

    def partition(self, index: int = 0) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[index]

    def change(self, index: int = 0, *, to: Sequence[NodeId] | None = None, **fields: Any) -> None:
        """Write a partition change and publish it to the nodes `to`, or to all."""
        self._set(index, **fields)
        self._publish({TOPIC_ID: frozenset({index})}, to)

    def elect(self, leader: NodeId, *, isr: Sequence[NodeId] | None = None, to: Sequence[NodeId] | None = None) -> None:
        before = self.partition()
        self.change(
            to=to,
            leader=leader,
            leader_epoch=before.leader_epoch + 1,
            isr=tuple(isr) if isr is not None else before.isr,
        )

    def fence(self, node_id: NodeId) -> None:
        """Fence a broker and take it out of the ISR of partition 0."""
        self.image = replace(
            self.image,
            brokers={**self.image.brokers, node_id: replace(self.image.brokers[node_id], fenced=True)},
        )
        self.change(isr=tuple(node for node in self.partition().isr if node != node_id))

    def publish(self, *to: NodeId) -> None:
        """Publish the image to nodes that have not got the last changes."""
        self._publish({TOPIC_ID: frozenset(self.image.topics[TOPIC].partitions)}, to)

    def _set(self, index: int, **fields: Any) -> None:
        topic, before = self.image.topics[TOPIC], self.partition(index)
        after = replace(before, partition_epoch=before.partition_epoch + 1, **fields)
        changed = replace(topic, partitions={**topic.partitions, index: after})
        self.image = replace(self.image, topics={TOPIC: changed})

    def _publish(self, changed: Mapping[UUID, frozenset[int]], to: Sequence[NodeId] | None = None) -> None:
        delta = replace(_NO_CHANGE, changed=changed)
        for node in self._up():
            if to is None or node.node_id in to:
                node.replicas.apply(self.image, delta)

    def _up(self) -> list[Node]:
        return [node for node in self.running.values() if node.is_up]

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        rows = [self._alter_one(request.broker_id, row) for topic in request.topics for row in topic.partitions]
        return cast(
            AlterPartitionResponse,
            Message(error_code=0, topics=[Message(topic_id=request.topics[0].topic_id, partitions=rows)]),
        )

    def _alter_one(self, sender: NodeId, row: Any) -> Message:
        index, before = row.partition_index, self.partition(row.partition_index)
        code = ErrorCode.NONE
        if row.leader_epoch < before.leader_epoch or sender != before.leader:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif row.partition_epoch != before.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self._is_eligible(member) for member in row.new_isr_with_epochs):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            isr = tuple(member.broker_id for member in row.new_isr_with_epochs)
            self.altered.append(isr)
            self._set(index, isr=isr)
            asyncio.get_running_loop().call_soon(self._publish, {TOPIC_ID: frozenset({index})})
        after = self.partition(index)
        return Message(
            partition_index=index,
            error_code=code,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            leader_recovery_state=0,
            partition_epoch=after.partition_epoch,
        )

    def _is_eligible(self, member: Any) -> bool:
        broker = self.image.brokers.get(member.broker_id)
        if broker is None or broker.fenced:
            return False
        return member.broker_epoch in (-1, broker.broker_epoch)

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.002)

    async def in_sync(self, *node_ids: NodeId, partition: TopicPartition = TP) -> None:
        """Wait until the logs of these nodes end at the same offset and have the same high watermark there."""

        def agrees() -> bool:
            found = [self.running[node_id].replica(partition) for node_id in node_ids]
            ends = {replica.log.end_offset for replica in found}
            return len(ends) == 1 and {replica.state.high_watermark for replica in found} == ends

        await self.until(agrees)


@asynccontextmanager
async def running(path: Path, *node_ids: NodeId, config: Mapping[str, str] = FAST) -> AsyncIterator[Nodes]:
    nodes = Nodes(path, config=config)
    for node_id in node_ids:
        await nodes.start_node(node_id)
    try:
        yield nodes
    finally:
        for node in nodes._up():
            await node.kill()
