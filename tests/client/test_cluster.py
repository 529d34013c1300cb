import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.client.cluster import Cluster, plain_settings
from rookery.client.errors import AuthenticationError, ClientStateError
from rookery.client.metadata import ClusterMetadata
from rookery.client.settings.common import CommonSettings
from rookery.net.address import Address
from rookery.net.channel import Channel
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.message import Message
from tests.client.fake_broker import HANG_UP, NODE_ID, FakeBroker, topic_id
from tests.client.skipping import skip_time


def test_an_unreachable_bootstrap_server_is_skipped() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 2}) as broker:
            dead = Address("127.0.0.1", 1)
            async with Cluster.at(f"{dead},{broker.address}", timeout_s=10) as cluster:
                metadata = await cluster.refresh()
                assert metadata.cluster_id == "fake"
                assert [len(topic.partitions) for topic in metadata.topics.values()] == [2]

    asyncio.run(run())


def test_entering_raises_immediately_if_no_bootstrap_server_is_reachable() -> None:
    async def run() -> None:
        with pytest.raises(ApiError) as caught:
            async with Cluster.at("127.0.0.1:1"):
                pass
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())


@pytest.mark.parametrize("version", range(DEFINED[ApiKey.METADATA].minimum, DEFINED[ApiKey.METADATA].maximum + 1))
def test_every_version_of_metadata_can_be_requested_and_read(version: int) -> None:
    async def run() -> None:
        fake = FakeBroker({}, topics={"t": 1}, versions={"METADATA": version})
        async with fake as broker, Cluster.at(str(broker.address), timeout_s=10) as cluster:
            assert await cluster.leader(TopicPartition("t", 0)) == NODE_ID
            if version >= 10:
                assert cluster.metadata.topic_id("t") == topic_id("t")
                assert cluster.metadata.topic_name(topic_id("t")) == "t"

    asyncio.run(run())


def test_leaders_come_from_the_cache_until_they_are_forgotten() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 1}) as broker, Cluster.at(str(broker.address), timeout_s=10) as cluster:
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
        async with FakeBroker({}, topics={"t": 1}) as broker, Cluster.at(str(broker.address), timeout_s=10) as cluster:
            with pytest.raises(ApiError) as caught:
                await cluster.leader(TopicPartition(topic, partition))
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_retriable_errors_are_retried_and_others_are_not() -> None:
    async def run() -> None:
        cluster = Cluster.at("127.0.0.1:1", timeout_s=10)
        outcomes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_REQUEST])

        async def operation() -> None:
            raise ApiError(next(outcomes))

        with pytest.raises(ApiError) as caught:
            await cluster.retry(operation)
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_retries_end_at_the_deadline() -> None:
    async def run() -> int:
        cluster = Cluster.at("127.0.0.1:1", timeout_s=0.2)
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


def test_metadata_of_other_topics_is_kept() -> None:
    async def run() -> ClusterMetadata:
        fake = FakeBroker({}, topics={"a": 1, "b": 1})
        async with fake as broker, Cluster.at(str(broker.address), timeout_s=10) as cluster:
            await cluster.refresh(["a"])
            await cluster.refresh(["b"])
            return cluster.metadata

    assert set(asyncio.run(run()).topics) == {"a", "b"}


def test_each_lane_has_its_own_connection() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker, Cluster.at(str(broker.address), timeout_s=10) as cluster:
            shared, other = await cluster.connection(), await cluster.connection(lane="other")
            assert shared is not other
            assert await cluster.connection() is shared
            assert await cluster.connection(lane="other") is other
            await cluster.refresh(topics=())
            assert await cluster.connection(NODE_ID, "other") is other

    asyncio.run(run())


def settings_of(address: Address, **changes: Any) -> CommonSettings:
    return replace(plain_settings(str(address), client_id="test", timeout_s=10), **changes)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_retries_follow_the_settings() -> None:
    settings = settings_of(Address("127.0.0.1", 1), retry_backoff_ms=100, retry_backoff_max_ms=300)
    assert [Cluster(settings).backoff_s(attempt) for attempt in range(4)] == [0.1, 0.2, 0.3, 0.3]
    spread = Cluster(settings, randomness=Random(1))
    pauses = [spread.backoff_s(0) for _ in range(20)]
    assert len(set(pauses)) == 20
    assert all(0.08 <= pause_s <= 0.12 for pause_s in pauses)


def test_one_request_and_a_whole_operation_have_separate_time_outs() -> None:
    async def run() -> None:
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: None}
        async with FakeBroker(answers) as broker:
            settings = settings_of(broker.address, request_timeout_ms=20_000, default_api_timeout_ms=60_000)
            async with Cluster(settings) as cluster:
                assert cluster.timeout_s == 60
                call = asyncio.ensure_future(cluster.call(ApiKey.DESCRIBE_CLUSTER, DESCRIBE))
                await until(lambda: bool(broker.requests_of(ApiKey.DESCRIBE_CLUSTER)))
                skip_time(20)
                with pytest.raises(ApiError, match="within 20 s"):
                    await call

    asyncio.run(run())


DESCRIBE = Message(include_cluster_authorized_operations=False, include_fenced_brokers=False, endpoint_type=1)


def test_concurrent_look_ups_of_leaders_share_one_request() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 5}) as broker, Cluster.at(str(broker.address)) as cluster:
            partitions = [TopicPartition("t", index) for index in range(5)]
            assert await asyncio.gather(*map(cluster.leader, partitions)) == [NODE_ID] * 5
            assert len(broker.requests_of(ApiKey.METADATA)) == 1

    asyncio.run(run())


def test_concurrent_callers_share_a_connection_or_its_failure() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker:
            cluster = Cluster.at(str(broker.address))
            connections = await asyncio.gather(*(cluster.connection() for _ in range(5)))
            assert len(set(map(id, connections))) == 1
            await cluster.close()
        cluster = Cluster.at("127.0.0.1:1")
        errors = await asyncio.gather(*(cluster.connection() for _ in range(5)), return_exceptions=True)
        assert ["Connection refused" in str(error) for error in errors] == [True] * 5
        assert len(set(map(id, errors))) == 1

    asyncio.run(run())


def test_cancelling_one_caller_does_not_cancel_the_shared_connection() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker:
            cluster = Cluster.at(str(broker.address))
            first, second = (asyncio.ensure_future(cluster.connection()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            assert not (await second).is_closed
            assert first.cancelled()
            await cluster.close()

    asyncio.run(run())


def test_closing_ends_the_wait_for_a_connection() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            cluster = Cluster.at(str(Address(*server.sockets[0].getsockname())))
            waiting = asyncio.ensure_future(cluster.connection())
            await asyncio.sleep(0.01)
            await cluster.close()
            with pytest.raises(ClientStateError, match="the client is closed"):
                await waiting

    asyncio.run(run())


def test_every_call_of_a_closed_cluster_raises_without_connecting() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 1}) as broker:
            cluster = Cluster.at(str(broker.address))
            await cluster.refresh(["t"])
            cluster.watch(["t"])
            await cluster.close()
            await cluster.close()
            request_count = len(broker.requests)
            for use in (
                cluster.refresh,
                cluster.connection,
                partial(cluster.connection, NODE_ID),
                partial(cluster.call, ApiKey.DESCRIBE_CLUSTER, DESCRIBE),
                partial(cluster.call_controller, ApiKey.DESCRIBE_CLUSTER, DESCRIBE),
                partial(cluster.leader, TopicPartition("other", 0)),
                partial(cluster.retry, cluster.refresh),
            ):
                with pytest.raises(ClientStateError, match="is closed"):
                    await use()
            with pytest.raises(ClientStateError, match="is closed"):
                cluster.watch(None)
            assert len(broker.requests) == request_count

    asyncio.run(run())


def test_closing_ends_retries_that_pause() -> None:
    async def run() -> None:
        cluster = Cluster(settings_of(Address("127.0.0.1", 1), retry_backoff_ms=60_000, retry_backoff_max_ms=60_000))
        failed = asyncio.Event()

        async def operation() -> None:
            failed.set()
            raise ApiError(ErrorCode.NOT_CONTROLLER)

        retrying = asyncio.ensure_future(cluster.retry(operation, timeout_s=600))
        await failed.wait()
        await cluster.close()
        with pytest.raises(ClientStateError, match="is closed"):
            await retrying

    asyncio.run(run())


@pytest.mark.parametrize("is_watching", [False, True])
def test_a_cancelled_close_leaves_nothing_open(is_watching: bool) -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"t": 1}) as broker:
            cluster = Cluster.at(str(broker.address))
            connections = [await cluster.connection(lane=lane) for lane in ("", "second")]
            if is_watching:
                cluster.watch(["t"])
            closing = asyncio.ensure_future(cluster.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await asyncio.gather(cluster.close(), cluster.close())
            assert [connection.is_closed for connection in connections] == [True, True]

    asyncio.run(run())


def test_an_address_that_failed_is_tried_again_only_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts_s: list[float] = []
    original = Channel.open

    async def open_recorded(*address: Address, **options: Any) -> Channel:
        attempts_s.append(asyncio.get_running_loop().time())
        return await original(*address, **options)

    async def run() -> None:
        settings = settings_of(Address("127.0.0.1", 1), reconnect_backoff_ms=20, reconnect_backoff_max_ms=50)
        cluster = Cluster(settings)
        for _ in range(4):
            with pytest.raises(ApiError):
                await cluster.connection()

    monkeypatch.setattr(Channel, "open", open_recorded)
    asyncio.run(run())
    pauses_s = [later - earlier for earlier, later in pairwise(attempts_s)]
    # Lower bounds, a little below the pauses, because a timer may fire early.
    assert [pause_s > least_s for pause_s, least_s in zip(pauses_s, (0.018, 0.036, 0.045), strict=True)] == [True] * 3


def test_an_address_that_failed_is_tried_last() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker:
            settings = replace(
                settings_of(broker.address, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000),
                bootstrap_servers=(Address("127.0.0.1", 1), broker.address),
            )
            async with Cluster(settings) as cluster:
                await (await cluster.connection()).close()
                # The unreachable one would be tried only after a minute.
                assert (await cluster.connection()).address == broker.address

    asyncio.run(run())


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def run() -> None:
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: None}
        async with FakeBroker(answers) as broker:
            async with Cluster(settings_of(broker.address, connections_max_idle_ms=60_000)) as cluster:
                idle, busy = await cluster.connection(), await cluster.connection(lane="busy")
                call = asyncio.ensure_future(busy.request(ApiKey.DESCRIBE_CLUSTER, DESCRIBE, timeout_s=600))
                await asyncio.sleep(0)
                assert busy.is_busy
                skip_time(70)
                await until(lambda: idle.is_closed)
                assert not busy.is_closed
                assert await cluster.connection() is not idle
            with pytest.raises(ApiError, match="was closed"):
                await call

    asyncio.run(run())


def test_watched_topics_are_kept_fresh() -> None:
    async def run() -> None:
        async with FakeBroker({}, topics={"a": 1, "b": 1}) as broker:
            settings = settings_of(broker.address, metadata_max_age_ms=20, retry_backoff_ms=1)
            async with Cluster(settings) as cluster:
                seen: list[set[str]] = []
                cluster.on_refresh.append(lambda metadata: seen.append(set(metadata.topics)))
                cluster.watch(["a"])
                await until(lambda: cluster.metadata_version >= 3)
                assert seen[0] == {"a"}
                cluster.watch(None)
                await until(lambda: seen[-1] == {"a", "b"})
                cluster.watch([])
            version = cluster.metadata_version
            await asyncio.sleep(0.05)
            assert cluster.metadata_version == version

    asyncio.run(run())


def test_a_watched_topic_that_becomes_stale_is_refreshed_soon() -> None:
    async def run() -> None:
        fake = FakeBroker({}, topics={"a": 1, "b": 1})
        async with fake as broker, Cluster(settings_of(broker.address, retry_backoff_ms=1)) as cluster:
            assert cluster.is_stale("a")
            cluster.watch(["a"])
            await until(lambda: not cluster.is_stale("a"))
            cluster.mark_stale("b")
            cluster.mark_stale("a")
            await until(lambda: not cluster.is_stale("a"))
            assert cluster.is_stale("b")
            assert [[topic.name for topic in each.topics] for each in broker.requests_of(ApiKey.METADATA)] == [
                ["a"],
                ["a"],
            ]

    asyncio.run(run())


def test_a_watched_topic_that_does_not_exist_yet_is_requested_again() -> None:
    async def run() -> None:
        broker = FakeBroker({}, topics={})
        async with broker, Cluster(settings_of(broker.address, retry_backoff_ms=1)) as cluster:
            cluster.watch(["late"])
            await until(lambda: len(broker.requests_of(ApiKey.METADATA)) > 2)
            broker.topics["late"] = 1
            await until(lambda: cluster.metadata.leader("late", 0) == NODE_ID)

    asyncio.run(run())


def test_the_watch_survives_a_broker_that_closes_connections() -> None:
    async def run() -> None:
        hang_ups = iter([HANG_UP] * 3)
        broker = FakeBroker({}, topics={"a": 1})
        healthy = broker.answers[ApiKey.METADATA]
        broker.answers[ApiKey.METADATA] = lambda version, request: next(hang_ups, None) or healthy(version, request)
        settings = plain_settings("127.0.0.1:1", client_id="test", timeout_s=10)
        async with broker:
            servers = (broker.address,)
            quick = replace(settings, bootstrap_servers=servers, retry_backoff_ms=1, reconnect_backoff_ms=1)
            async with Cluster(quick) as cluster:
                cluster.watch(["a"])
                await until(lambda: not cluster.is_stale("a"))

    asyncio.run(run())


def test_reported_leaders_are_stored_and_can_be_connected_to() -> None:
    async def run() -> None:
        fakes = [FakeBroker({}, topics={"t": 1}) for _ in range(2)]
        async with fakes[0] as old, fakes[1] as new, Cluster.at(str(old.address)) as cluster:
            partition = TopicPartition("t", 0)
            await cluster.leader(partition)
            version = cluster.metadata_version
            endpoint = NodeEndpoint(8, *new.address)
            assert cluster.learn_leader(partition, 8, 1, [endpoint])
            assert not cluster.learn_leader(partition, NODE_ID, 0)
            assert cluster.metadata_version == version + 1
            assert await cluster.leader(partition) == 8
            assert (await cluster.connection(8)).address == new.address
            # The old broker's response has an older epoch; the newer leader is kept.
            await cluster.refresh(["t"])
            assert cluster.metadata.topics["t"].partitions[0].leader == 8

    asyncio.run(run())


def test_rebootstrap_required_forgets_the_brokers() -> None:
    async def run() -> None:
        broker = FakeBroker({}, topics={"t": 1})
        healthy = broker.answers[ApiKey.METADATA]
        async with broker, Cluster.at(str(broker.address)) as cluster:
            await cluster.refresh()

            def moved(version: int, request: Message) -> Message | None:
                response = healthy(version, request)
                assert response is not None
                response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
                return response

            broker.answers[ApiKey.METADATA] = moved
            with pytest.raises(ApiError) as caught:
                await cluster.refresh()
            assert caught.value.code == ErrorCode.REBOOTSTRAP_REQUIRED
            assert not cluster.metadata.brokers

    asyncio.run(run())


def test_after_rebootstrap_required_another_bootstrap_server_is_used() -> None:
    """The first server stays reachable, but does not belong to the cluster; all connections to it are dropped."""

    async def run() -> None:
        old, new = FakeBroker({}, topics={"t": 1}), FakeBroker({}, topics={"t": 1})
        async with old, new, Cluster.at(f"{old.address},{new.address}") as cluster:
            await cluster.refresh(["t"])
            other = await cluster.connection(NODE_ID, "other")
            healthy = old.answers[ApiKey.METADATA]

            def moved(version: int, request: Message) -> Message | None:
                response = healthy(version, request)
                assert response is not None
                response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
                return response

            old.answers[ApiKey.METADATA] = moved
            with pytest.raises(ApiError):
                await cluster.refresh(["t"])
            assert other.is_closed
            await cluster.refresh(["t"])
            assert (await cluster.connection(NODE_ID)).address == new.address
            assert [len(broker.requests_of(ApiKey.METADATA)) for broker in (old, new)] == [2, 1]

    asyncio.run(run())


def test_pauses_grow_while_the_only_server_answers_rebootstrap_required() -> None:
    async def run() -> None:
        broker = FakeBroker({}, topics={"t": 1})
        healthy = broker.answers[ApiKey.METADATA]
        requests_s: list[float] = []

        def moved(version: int, request: Message) -> Message | None:
            response = healthy(version, request)
            assert response is not None
            requests_s.append(asyncio.get_running_loop().time())
            response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
            return response

        broker.answers[ApiKey.METADATA] = moved
        async with broker, Cluster(settings_of(broker.address, retry_backoff_ms=20)) as cluster:
            for _ in range(4):
                with pytest.raises(ApiError):
                    await cluster.refresh(["t"])
        pauses_s = [later - earlier for earlier, later in pairwise(requests_s)]
        # Lower bounds, a little below the pauses, because a timer may fire early.
        assert [pause_s > least_s for pause_s, least_s in zip(pauses_s, (0.018, 0.036, 0.072), strict=True)] == [
            True
        ] * 3

    asyncio.run(run())


def test_an_observer_gets_the_node_id_of_a_bootstrap_connection_once_it_is_known() -> None:
    class Nodes:
        def __init__(self) -> None:
            self.sent_to: list[NodeId] = []

        def opened(self, node: NodeId) -> None: ...
        def closed(self, node: NodeId) -> None: ...
        def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None: ...
        def sent(self, node: NodeId, size_bytes: int) -> None:
            self.sent_to.append(node)

    async def run() -> None:
        nodes = Nodes()
        async with FakeBroker({}) as broker, Cluster(settings_of(broker.address), observer=nodes) as cluster:
            await cluster.refresh(())
            await cluster.refresh(())
            assert nodes.sent_to == [-1, -1, NODE_ID]

    asyncio.run(run())


@pytest.mark.parametrize("has_callback", [False, True])
def test_after_a_failed_authentication_the_watch_pauses(monkeypatch: pytest.MonkeyPatch, has_callback: bool) -> None:
    """A producer's watch tries again by itself: there is no poll, and its records wait for the metadata."""
    monkeypatch.setattr("rookery.client.cluster._AUTHENTICATION_PAUSE_S", 0.05)
    attempts = 0

    async def refresh(topics: object) -> None:
        nonlocal attempts
        attempts += 1
        raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")

    async def watch() -> None:
        cluster = Cluster.at("localhost:1")
        monkeypatch.setattr(cluster, "refresh", refresh)
        if has_callback:
            cluster.on_authentication_error.append(lambda: None)
        cluster.watch(["t"])
        await asyncio.sleep(0.5)
        if has_callback:
            assert attempts == 1
            assert cluster.take_authentication_error() is not None
            assert cluster.take_authentication_error() is None
        while attempts < 2:
            await asyncio.sleep(0.01)
        await cluster.close()

    asyncio.run(asyncio.wait_for(watch(), 10))
