import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import NodeId
from rookery.net.address import Address
from rookery.net.peers import Peers
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import encode_request
from rookery.protocol.message import Message
from tests.client.fake_broker import HANG_UP, FakeBroker
from tests.net.support import BOTH_LOOPS, Run, until
from tests.net.test_channel import CLUSTER, described

ANSWERS = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: described(f"v{version}")}


@asynccontextmanager
async def peers_of(addresses: Mapping[NodeId, Address], lost: list[NodeId] | None = None) -> AsyncIterator[Peers]:
    peers = Peers(addresses.get, client_id="node-1", on_lost=None if lost is None else lost.append)
    try:
        yield peers
    finally:
        await peers.close()


async def describe(peers: Peers, node: NodeId = 2, **options: int) -> Message:
    return await peers.request(node, ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=5, **options)


@BOTH_LOOPS
def test_concurrent_requests_to_a_node_share_one_channel(run: Run) -> None:
    async def scenario() -> None:
        async with FakeBroker(ANSWERS) as broker, peers_of({2: broker.address}) as peers:
            answers = await asyncio.gather(*(describe(peers) for _ in range(20)))
            assert {answer.cluster_id for answer in answers} == {"v2"}
            assert broker.connection_count == 1

    run(scenario())


@BOTH_LOOPS
def test_a_lost_channel_is_reported_once_and_opened_again(run: Run) -> None:
    async def scenario() -> None:
        lost: list[NodeId] = []
        async with FakeBroker(ANSWERS) as broker, peers_of({2: broker.address}, lost) as peers:
            await describe(peers)
            broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda version, request: HANG_UP
            with pytest.raises(ApiError) as caught:
                await describe(peers)
            assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
            await until(lambda: bool(lost))
            broker.answers.update(ANSWERS)
            assert (await describe(peers)).cluster_id == "v2"
            assert lost == [2]

    run(scenario())


def test_a_node_that_moved_is_dialled_at_its_new_address() -> None:
    async def scenario() -> None:
        lost: list[NodeId] = []
        async with FakeBroker(ANSWERS) as old, FakeBroker(ANSWERS) as new:
            addresses = {2: old.address}
            async with peers_of(addresses, lost) as peers:
                await describe(peers)
                addresses[2] = new.address
                await describe(peers)
                await until(lambda: old.connection_count == 0)
                assert new.connection_count == 1
            assert lost == [], "neither a move nor a close is the loss of a node"

    asyncio.run(scenario())


def test_a_node_without_address_or_listener_fails_at_once() -> None:
    async def scenario() -> None:
        async with FakeBroker(ANSWERS) as broker:
            closed = broker.address
        lost: list[NodeId] = []
        async with peers_of({2: closed}, lost) as peers:
            for node in (2, 3):
                with pytest.raises(ApiError) as caught:
                    await describe(peers, node)
                assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
        assert lost == [], "no channel was open"

    asyncio.run(scenario())


def test_a_silent_node_times_out_and_counts_as_lost() -> None:
    async def scenario() -> None:
        lost: list[NodeId] = []
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: None}
        async with FakeBroker(answers) as broker, peers_of({2: broker.address}, lost) as peers:
            with pytest.raises(ApiError) as caught:
                await peers.request(2, ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=0.05)
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            await until(lambda: lost == [2])

    asyncio.run(scenario())


def test_a_request_needs_the_version_that_its_fields_need() -> None:
    async def scenario() -> None:
        old = FakeBroker(ANSWERS, versions={"DESCRIBE_CLUSTER": 1})
        async with old as broker, peers_of({2: broker.address}) as peers:
            assert (await describe(peers, version_min=1)).cluster_id == "v1"
            with pytest.raises(ApiError) as caught:
                await describe(peers, version_min=2)
            assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(scenario())


def test_an_api_with_its_own_codec() -> None:
    async def scenario() -> None:
        async with FakeBroker(ANSWERS) as broker, peers_of({2: broker.address}) as peers:

            def decode(version: int, body: memoryview) -> tuple[int, int]:
                return version, len(body)

            def refuse(version: int, body: memoryview) -> None:
                raise ProtocolError("no")

            key = ApiKey.DESCRIBE_CLUSTER
            version, size = await peers.exchange(
                2, key, lambda version: encode_request(key, version, CLUSTER), decode, timeout_s=5
            )
            assert version == 2
            assert size > 0
            with pytest.raises(ApiError) as caught:
                await peers.exchange(2, key, lambda version: encode_request(key, version, CLUSTER), refuse, timeout_s=5)
            assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(scenario())


def test_closing_ends_attempts_and_requests() -> None:
    async def scenario() -> None:
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: None}
        async with FakeBroker(answers) as broker:
            peers = Peers({2: broker.address}.get, client_id="node-1")
            waiting = asyncio.create_task(describe(peers))
            await until(lambda: bool(broker.requests_of(ApiKey.DESCRIBE_CLUSTER)))
            await peers.close()
            for call in (waiting, describe(peers)):
                with pytest.raises(ApiError) as caught:
                    await call
                assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(scenario())
