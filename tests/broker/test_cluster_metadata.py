"""What a broker tells clients about a cluster of several nodes: leaders, replicas, brokers and the controller."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.broker.dispatch import Dispatcher
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    encode_record,
)
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.broker.cluster import ControllerNode, FakeQuorum
from tests.broker.harness import Broker, running, versions

TOPIC = UUID(int=1000)
DISK, LOST_DISK = UUID(int=500), UUID(int=501)


def broker_record(node_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT") -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=UUID(int=node_id),
        broker_epoch=node_id,
        endpoints=(BrokerEndpoint(listener, f"host{node_id}", 9000 + node_id),),
        fenced=fenced,
        log_directories=(DISK,),
    )


def partition(index: int, **fields: Any) -> PartitionRecord:
    defaults: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "isr": (1, 2),
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 9,
    }
    return PartitionRecord(partition_id=index, topic_id=TOPIC, **defaults | fields)


# Broker 3 is fenced, broker 4 is not on the clients' listener.
RECORDS: tuple[MetadataRecord, ...] = (
    *(broker_record(node_id) for node_id in (1, 2)),
    broker_record(3, fenced=True),
    broker_record(4, listener="INTERNAL"),
    TopicRecord("t", TOPIC),
    partition(0),
    partition(1, leader=-1, isr=(), elr=(2,), last_known_elr=(3,)),
    partition(2, leader=4, replicas=(4, 1), isr=(4, 1)),
    partition(3, replicas=(1, 2), directories=(DISK, LOST_DISK)),
)


def play(path: Path, scenario: Callable[[Broker, FakeQuorum], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with running(path) as broker:
            metadata, quorum = MetadataPublisher(), FakeQuorum(2)
            await metadata.commit(0, [encode_record(record) for record in RECORDS])
            broker.services = replace(broker.services, metadata=metadata, quorum=quorum)
            broker.dispatcher = Dispatcher(broker.services)
            await scenario(broker, quorum)

    asyncio.run(main())


def describe(broker: Broker, version: int) -> Message:
    return broker.call_now(
        ApiKey.METADATA,
        version,
        topics=[Message(name="t", topic_id=UUID(int=0))],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Broker, quorum: FakeQuorum) -> None:
        response = describe(broker, version)
        assert [(each.node_id, each.port) for each in response.brokers] == [(1, 9001), (2, 9002)]
        led, leaderless, elsewhere, damaged = response.topics[0].partitions
        other_listener = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        missing = ErrorCode.REPLICA_NOT_AVAILABLE if version == 0 else ErrorCode.NONE
        assert [(each.error_code, each.leader_id) for each in (led, leaderless, elsewhere, damaged)] == [
            (missing, 1),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1),
            (other_listener, -1),
            (ErrorCode.NONE, 1),
        ]
        if version >= 5:
            assert [each.offline_replicas for each in (led, leaderless, elsewhere, damaged)] == [[3], [3], [4], [2]]
        if version >= 1:
            assert led.replica_nodes == [1, 2, 3]

    play(tmp_path, scenario)


def test_the_controller_is_one_that_the_client_can_reach(tmp_path: Path) -> None:
    async def scenario(broker: Broker, quorum: FakeQuorum) -> None:
        for leader, expected in ((2, 2), (3, 1), (4, 1), (99, 1), (None, 1), (1, 1)):
            quorum.leader_id = leader
            assert describe(broker, 12).controller_id == expected, "also with a cached response"
            cluster = broker.call_now(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
            assert cluster.controller_id == expected

    play(tmp_path, scenario)


def test_describe_topic_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: FakeQuorum) -> None:
        response = broker.call_now(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=2000, cursor=None
        )
        led, leaderless, elsewhere, damaged = response.topics[0].partitions
        assert (led.eligible_leader_replicas, led.last_known_elr, led.offline_replicas) == ([], [], [3])
        assert (leaderless.leader_id, leaderless.eligible_leader_replicas) == (-1, [2])
        assert leaderless.last_known_elr == [3]
        assert (elsewhere.leader_id, elsewhere.offline_replicas) == (-1, [4])
        assert damaged.offline_replicas == [2]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_fenced_brokers_are_described_on_request(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Broker, _: FakeQuorum) -> None:
        for include in (False, True):
            response = broker.call_now(
                ApiKey.DESCRIBE_CLUSTER,
                version,
                include_cluster_authorized_operations=False,
                endpoint_type=1,
                include_fenced_brokers=include,
            )
            expected = [1, 2, 3] if include and version >= 2 else [1, 2]
            assert [each.broker_id for each in response.brokers] == expected
            assert [each.broker_id for each in response.brokers if each.get("is_fenced")] == expected[2:]

    play(tmp_path, scenario)


def test_controllers_describe_those_that_have_registered() -> None:
    async def main() -> None:
        node = ControllerNode(1, 1, 2)
        record = RegisterControllerRecord(
            controller_id=2,
            incarnation_id=UUID(int=2),
            endpoints=(BrokerEndpoint("CONTROLLER", "registered", 9093),),
        )
        await node.services.metadata.commit(0, [encode_record(record)])
        response = await node.call(
            ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=2
        )
        described = [(each.broker_id, each.host, each.port) for each in response.brokers]
        assert described == [(1, "controller", 9001), (2, "registered", 9093)]

    asyncio.run(main())
