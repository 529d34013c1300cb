"""The topics of coordinators are created with as many replicas as configured, or not at all."""

from pathlib import Path
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.metadata.records import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord, encode_record
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.quorum.driver import QuorumDriver
from rookery.quorum.voters import ReplicaKey, Voter, VoterSet
from tests.broker import harness
from tests.broker.harness import NODE_ID, Broker

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CONFIG = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


async def register(broker: Broker, node_id: int, *, fenced: bool = False, leaving: bool = False) -> None:
    record = RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=UUID(int=node_id),
        broker_epoch=node_id,
        endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092 + node_id, 0),),
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )
    metadata = broker.services.metadata
    await metadata.commit(metadata.image.offset + 1, [encode_record(record)])


async def find(broker: Broker, key_type: int, version: int = 6) -> Message:
    if version >= 4:
        response = await broker.call(ApiKey.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=["k"])
        (found,) = response.coordinators
        assert isinstance(found, Message)
        return found
    return await broker.call(ApiKey.FIND_COORDINATOR, version, key_type=key_type, key="k")


def test_a_node_alone_has_one_replica(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        for key_type, topic in ((0, OFFSETS), (1, TRANSACTIONS)):
            found = await find(broker, key_type)
            assert (found.error_code, found.node_id) == (ErrorCode.NONE, NODE_ID)
            assert broker.services.image.topics[topic].partitions[0].replicas == (NODE_ID,)

    harness.play(tmp_path, scene, CONFIG)


@pytest.mark.parametrize("version", [3, 6])
@pytest.mark.parametrize(("fenced", "leaving"), [(True, False), (False, True)])
def test_too_few_brokers_are_live(tmp_path: Path, version: int, fenced: bool, leaving: bool) -> None:
    async def scene(broker: Broker) -> None:
        await register(broker, 2)
        await register(broker, 3, fenced=fenced, leaving=leaving)
        for key_type, topic, setting in (
            (0, OFFSETS, "offsets.topic.replication.factor"),
            (1, TRANSACTIONS, "transaction.state.log.replication.factor"),
        ):
            found = await find(broker, key_type, version)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert found.error_message == f"{topic} needs 3 live brokers ({setting}), and there are 2."
            assert topic not in broker.services.image.topics

    harness.play(tmp_path, scene, CONFIG)


def test_the_first_broker_of_a_new_cluster_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only one that is registered, but not the only voter."""

    async def scene(broker: Broker) -> None:
        voters = VoterSet(Voter(ReplicaKey(node), {}) for node in (1, 2, 3))
        with monkeypatch.context() as patch:
            patch.setattr(QuorumDriver, "voters", voters)
            assert (await find(broker, 0)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await find(broker, 0)).error_code == ErrorCode.NONE

    harness.play(tmp_path, scene, CONFIG)


def test_the_coordinator_is_the_live_leader(tmp_path: Path) -> None:
    """Without a leader, or while its broker is fenced, there is none."""

    async def scene(broker: Broker) -> None:
        assert (await find(broker, 0)).error_code == ErrorCode.NONE
        for leader, expected in ((2, (ErrorCode.NONE, 2)), (-1, (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1))):
            await register(broker, 2)
            await lead(broker, leader)
            found = await find(broker, 0)
            assert (found.error_code, found.node_id) == expected
        await lead(broker, 2)
        await register(broker, 2, fenced=True)
        assert (await find(broker, 0)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    harness.play(tmp_path, scene, CONFIG)


async def lead(broker: Broker, leader: int) -> None:
    metadata = broker.services.metadata
    topic = metadata.image.topics[OFFSETS]
    record = PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=leader)
    await metadata.commit(metadata.image.offset + 1, [encode_record(record)])
