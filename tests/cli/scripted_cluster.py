"""A scripted broker in a thread of its own that speaks for a cluster of three brokers and a quorum.

All brokers have the same address. Tests change the state (`brokers`, `replicas`, `in_sync` and so on) and read the
recorded requests; commands that change the cluster change the state.
"""

import asyncio
import threading
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TopicPartition, encode_uuid
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import FakeBroker, topic_id

CLUSTER_ID = "scripted"


def directory_id(node: NodeId) -> UUID:
    return UUID(int=1000 + node)


def directory_text(node: NodeId) -> str:
    return encode_uuid(directory_id(node))


class ScriptedCluster:
    """Brokers 1 to 3 in two racks, all voters; topic `orders` has three partitions of two replicas each."""

    def __init__(self) -> None:
        self.racks = {1: "a", 2: "b", 3: "a"}
        self.fenced: set[NodeId] = set()
        self.replicas = {TopicPartition("orders", index): nodes for index, nodes in enumerate([[1, 2], [2, 3], [3, 2]])}
        self.in_sync: dict[TopicPartition, list[NodeId]] = {}
        self.leaders: dict[TopicPartition, NodeId] = {}
        self.eligible: dict[TopicPartition, list[NodeId]] = {}
        # Moves end when they are listed for the second time.
        self.moving: dict[TopicPartition, tuple[list[NodeId], list[NodeId]]] = {}
        self.lists_until_end = 1
        self.voters = {1: 100, 2: 100, 3: 100}
        self.observers = {4: 100}
        self.fetch_ms = 1_000_000
        self.silent: set[NodeId] = set()
        self.log_end = 100
        self.unregistered: list[NodeId] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.broker = FakeBroker(self._answers())

    def _answers(self) -> dict[ApiKey, Any]:
        return {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe_topic_partitions,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.DESCRIBE_LOG_DIRS: self._describe_log_dirs,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list_reassignments,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._alter_reassignments,
            ApiKey.ELECT_LEADERS: self._elect_leaders,
            ApiKey.UNREGISTER_BROKER: self._unregister_broker,
            ApiKey.ADD_RAFT_VOTER: self._add_voter,
            ApiKey.REMOVE_RAFT_VOTER: self._remove_voter,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.broker.__aenter__(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.broker.__aexit__(None, None, None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def address(self) -> str:
        return str(self.broker.address)

    def _place(self) -> dict[str, Any]:
        return {"host": self.broker.address.host, "port": self.broker.address.port}

    def _alive(self) -> list[NodeId]:
        return [node for node in self.racks if node not in self.fenced]

    def leader(self, tp: TopicPartition) -> NodeId:
        return self.leaders.get(tp, self.replicas[tp][0])

    def _metadata(self, version: int, request: Message) -> Message:
        names = {tp.topic for tp in self.replicas} if request.topics is None else {row.name for row in request.topics}
        brokers = [Message(node_id=node, rack=self.racks[node], **self._place()) for node in self._alive()]
        topics = [
            Message(
                error_code=ErrorCode.NONE if self._of(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                topic_id=topic_id(name),
                is_internal=False,
                partitions=[self._partition(tp) for tp in self._of(name)],
                topic_authorized_operations=-1,
            )
            for name in sorted(names)
        ]
        return Message(
            throttle_time_ms=0, brokers=brokers, cluster_id=CLUSTER_ID, controller_id=1, topics=topics, error_code=0
        )

    def _of(self, name: str) -> list[TopicPartition]:
        return [tp for tp in self.replicas if tp.topic == name]

    def _partition(self, tp: TopicPartition) -> Message:
        nodes = self.replicas[tp]
        return Message(
            error_code=0,
            partition_index=tp.partition,
            leader_id=self.leader(tp),
            leader_epoch=3,
            replica_nodes=nodes,
            isr_nodes=self.in_sync.get(tp, nodes),
            eligible_leader_replicas=self.eligible.get(tp, []),
            last_known_elr=[],
            offline_replicas=[],
        )

    def _describe_cluster(self, version: int, request: Message) -> Message:
        nodes = self.racks if request.get("include_fenced_brokers") else self._alive()
        rows = [
            Message(broker_id=node, rack=self.racks[node], is_fenced=node in self.fenced, **self._place())
            for node in nodes
        ]
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=1,
            cluster_id=CLUSTER_ID,
            controller_id=1,
            brokers=rows,
            cluster_authorized_operations=0,
        )

    def _describe_topic_partitions(self, version: int, request: Message) -> Message:
        names = [row.name for row in request.topics] or sorted({tp.topic for tp in self.replicas})
        rows = [
            Message(
                error_code=ErrorCode.NONE if self._of(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                topic_id=topic_id(name),
                is_internal=False,
                partitions=[self._partition(tp) for tp in self._of(name)],
                topic_authorized_operations=-1,
            )
            for name in names
        ]
        return Message(throttle_time_ms=0, topics=rows, next_cursor=None)

    def _describe_configs(self, version: int, request: Message) -> Message:
        entry = Message(
            name="min.insync.replicas",
            value="2",
            read_only=False,
            config_source=5,
            is_sensitive=False,
            synonyms=[],
            config_type=3,
            documentation=None,
        )
        rows = [
            Message(
                error_code=0,
                error_message=None,
                resource_type=row.resource_type,
                resource_name=row.resource_name,
                configs=[entry],
            )
            for row in request.resources
        ]
        return Message(throttle_time_ms=0, results=rows)

    def _describe_log_dirs(self, version: int, request: Message) -> Message:
        wanted = None if request.topics is None else {row.topic for row in request.topics}
        rows = [
            Message(partition_index=tp.partition, partition_size=4096, offset_lag=0, is_future_key=False)
            for tp in self.replicas
            if wanted is None or tp.topic in wanted
        ]
        directory = Message(
            error_code=0,
            log_dir="/data",
            topics=[Message(name="orders", partitions=rows)],
            total_bytes=2**40,
            usable_bytes=2**30,
            is_cordoned=False,
        )
        return Message(throttle_time_ms=0, error_code=0, results=[directory])

    def _describe_quorum(self, version: int, request: Message) -> Message:
        self.fetch_ms += 500
        row = Message(
            partition_index=0,
            error_code=0,
            error_message=None,
            leader_id=1,
            leader_epoch=7,
            high_watermark=100,
            current_voters=[self._replica(node, end) for node, end in self.voters.items()],
            observers=[self._replica(node, end) for node, end in self.observers.items()],
        )
        nodes = [
            Message(node_id=node, listeners=[Message(name="CONTROLLER", host=f"controller{node}", port=9093)])
            for node in self.voters
        ]
        topics = [Message(topic_name="__cluster_metadata", partitions=[row])]
        return Message(error_code=0, error_message=None, topics=topics, nodes=nodes)

    def _replica(self, node: NodeId, end: int) -> Message:
        fetched_ms = 1000 if node in self.silent else self.fetch_ms
        return Message(
            replica_id=node,
            replica_directory_id=directory_id(node),
            log_end_offset=self.log_end if node == 1 else end,
            last_fetch_timestamp=fetched_ms,
            last_caught_up_timestamp=fetched_ms,
        )

    def _list_reassignments(self, version: int, request: Message) -> Message:
        rows = [
            Message(
                partition_index=tp.partition,
                replicas=self.replicas[tp],
                adding_replicas=[node for node in target if node not in before],
                removing_replicas=[node for node in before if node not in target],
            )
            for tp, (before, target) in self.moving.items()
        ]
        self.lists_until_end -= bool(rows)
        if self.lists_until_end < 0:
            for tp, (_, target) in self.moving.items():
                self.replicas[tp] = target
            self.moving.clear()
        return Message(
            throttle_time_ms=0, error_code=0, error_message=None, topics=[Message(name="orders", partitions=rows)]
        )

    def _alter_reassignments(self, version: int, request: Message) -> Message:
        rows = []
        for row in request.topics[0].partitions:
            tp = TopicPartition(request.topics[0].name, row.partition_index)
            refused = row.replicas is not None and not set(row.replicas) <= self.racks.keys()
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if refused else ErrorCode.NONE
            rows.append(Message(partition_index=tp.partition, error_code=code, error_message="no such broker"))
            if row.replicas is None:
                self.replicas[tp] = self.moving.pop(tp)[0]
            elif not refused:
                before = self.moving[tp][0] if tp in self.moving else self.replicas[tp]
                self.moving[tp] = before, row.replicas
                self.replicas[tp] = [*row.replicas, *(node for node in before if node not in row.replicas)]
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            allow_replication_factor_change=True,
            responses=[Message(name=request.topics[0].name, partitions=rows)],
        )

    def _elect_leaders(self, version: int, request: Message) -> Message:
        named = request.topic_partitions
        wanted = (
            [tp for tp in self.replicas if self.leader(tp) != self.replicas[tp][0]]
            if named is None
            else [TopicPartition(row.topic, index) for row in named for index in row.partitions]
        )
        rows = []
        for tp in wanted:
            code = ErrorCode.NONE if self.leader(tp) != self.replicas[tp][0] else ErrorCode.ELECTION_NOT_NEEDED
            if self.replicas[tp][0] in self.fenced:
                code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            elif code is ErrorCode.NONE:
                self.leaders[tp] = self.replicas[tp][0]
            rows.append(Message(partition_id=tp.partition, error_code=code, error_message=None))
        return Message(
            throttle_time_ms=0,
            error_code=0,
            replica_election_results=[Message(topic="orders", partition_result=rows)],
        )

    def _unregister_broker(self, version: int, request: Message) -> Message:
        self.unregistered.append(request.broker_id)
        return Message(throttle_time_ms=0, error_code=0, error_message=None)

    def _add_voter(self, version: int, request: Message) -> Message:
        self.voters[request.voter_id] = self.observers.pop(request.voter_id)
        return Message(throttle_time_ms=0, error_code=0, error_message=None)

    def _remove_voter(self, version: int, request: Message) -> Message:
        assert request.voter_directory_id == directory_id(request.voter_id)
        self.observers[request.voter_id] = self.voters.pop(request.voter_id)
        return Message(throttle_time_ms=0, error_code=0, error_message=None)
