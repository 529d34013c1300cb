import asyncio

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.address import Address
from rookery.client.cluster import Cluster, backoff_s
from rookery.client.metadata import ClusterMetadata
from rookery.protocol.api import DEFINED, ApiKey
from tests.client.fake_broker import NODE_ID, FakeBroker, topic_id


def test_backoff_grows_to_a_second() -> None:
    pauses = [backoff_s(attempt) for attempt in range(100)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.05
    assert pauses[-1] == 1.0


def test_a_dead_bootstrap_server_is_passed_over() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 2}) as broker:
            dead = Address("127.0.0.1", 1)
            async with Cluster([dead, broker.address], timeout_s=10) as cluster:
                metadata = await cluster.refresh()
                assert metadata.cluster_id == "fake"
                assert [len(topic.partitions) for topic in metadata.topics.values()] == [2]

    asyncio.run(run())


def test_no_bootstrap_server_at_all_is_told_at_once() -> None:
    async def run() -> None:
        with pytest.raises(ApiError) as caught:
            async with Cluster([Address("127.0.0.1", 1)]):
                pass
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.METADATA].minimum, DEFINED[ApiKey.METADATA].maximum + 1))
def test_every_version_of_metadata_can_be_asked_and_read(version: int) -> None:
    async def run() -> None:
        fake = FakeBroker({}, topics={"t": 1}, versions={"METADATA": version})
        async with fake as broker, Cluster([broker.address], timeout_s=10) as cluster:
            assert await cluster.leader(TopicPartition("t", 0)) == NODE_ID
            if version >= 10:
                assert cluster.metadata.topic_id("t") == topic_id("t")
                assert cluster.metadata.topic_name(topic_id("t")) == "t"

    asyncio.run(run())


def test_leaders_come_from_the_cache_until_something_moved() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 1}) as broker, Cluster([broker.address], timeout_s=10) as cluster:
            for _ in range(3):
                await cluster.leader(TopicPartition("t", 0))
            assert len(broker.requests_of(ApiKey.METADATA)) == 1
            cluster.forget_leaders()
            for _ in range(3):
                await cluster.leader(TopicPartition("t", 0))
            assert len(broker.requests_of(ApiKey.METADATA)) == 2

    asyncio.run(run())


@pytest.mark.parametrize(("topic", "partition"), [("t", 1), ("unknown", 0)])
def test_a_partition_that_does_not_exist(topic: str, partition: int) -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 1}) as broker, Cluster([broker.address], timeout_s=10) as cluster:
            with pytest.raises(ApiError) as caught:
                await cluster.leader(TopicPartition(topic, partition))
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_retriable_errors_are_retried_and_others_are_not() -> None:
    async def run() -> None:
        cluster = Cluster([Address("127.0.0.1", 1)], timeout_s=10)
        outcomes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_REQUEST])

        async def operation() -> None:
            raise ApiError(next(outcomes))

        with pytest.raises(ApiError) as caught:
            await cluster.retry(operation)
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_retries_end_at_the_deadline() -> None:
    async def run() -> int:
        cluster = Cluster([Address("127.0.0.1", 1)], timeout_s=0.2)
        attempts = 0

        async def operation() -> None:
            nonlocal attempts
            attempts += 1
            raise ApiError(ErrorCode.NOT_CONTROLLER)

        with pytest.raises(ApiError):
            await cluster.retry(operation)
        return attempts

    # Pauses of 0.05 and 0.1 s fit, the next of 0.2 s does not.
    assert 1 < asyncio.run(run()) <= 3


def test_metadata_of_other_topics_stays_known() -> None:
    async def run() -> ClusterMetadata:
        fake = FakeBroker({}, topics={"a": 1, "b": 1})
        async with fake as broker, Cluster([broker.address], timeout_s=10) as cluster:
            await cluster.refresh(["a"])
            await cluster.refresh(["b"])
            return cluster.metadata

    assert set(asyncio.run(run()).topics) == {"a", "b"}


def test_each_channel_has_a_connection_of_its_own() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker, Cluster([broker.address], timeout_s=10) as cluster:
            shared, other = await cluster.connection(), await cluster.connection(channel="other")
            assert shared is not other
            assert await cluster.connection() is shared
            assert await cluster.connection(channel="other") is other
            await cluster.refresh(topics=())
            assert await cluster.connection(NODE_ID, "other") is other

    asyncio.run(run())
