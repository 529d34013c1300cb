import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.address import Address
from rookery.client.connection import Connection
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import HANG_UP, FakeBroker

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CLUSTER = Message(include_cluster_authorized_operations=False, include_fenced_brokers=False)


def described(cluster_id: str) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        endpoint_type=1,
        cluster_id=cluster_id,
        controller_id=1,
        brokers=[],
        cluster_authorized_operations=-1,
    )


async def open_to(broker: FakeBroker, timeout_s: float = 10) -> Connection:
    return await Connection.open(broker.address, client_id="test", timeout_s=timeout_s)


def test_the_highest_common_version_is_used() -> None:
    async def run() -> None:
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: described(f"v{version}")}
        async with FakeBroker(answers, versions={"DESCRIBE_CLUSTER": 1}) as broker:
            connection = await open_to(broker)
            response = await connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10)
            assert response.cluster_id == "v1"
            await connection.close()

    asyncio.run(run())


def test_an_older_broker_answers_api_versions_in_its_own_version() -> None:
    async def run() -> None:
        async with FakeBroker({}, versions={"API_VERSIONS": 2}) as broker:
            connection = await open_to(broker)
            assert [version for _, version, _ in broker.requests] == [2]
            assert connection.version(ApiKey.METADATA) == DEFINED[ApiKey.METADATA].maximum
            await connection.close()

    asyncio.run(run())


def test_an_api_that_the_broker_does_not_have_is_refused_before_sending() -> None:
    async def run() -> None:
        async with FakeBroker({}) as broker:
            connection = await open_to(broker)
            with pytest.raises(ApiError) as caught:
                await connection.request(ApiKey.FETCH, Message(), timeout_s=1)
            assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
            assert not connection.is_closed
            await connection.close()

    asyncio.run(run())


def test_requests_of_many_tasks_share_the_socket() -> None:
    async def run() -> None:
        served = iter(range(100))
        answers = {ApiKey.DESCRIBE_CLUSTER: lambda version, request: described(str(next(served)))}
        async with FakeBroker(answers) as broker:
            connection = await open_to(broker)
            calls = [connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10) for _ in range(100)]
            responses = await asyncio.gather(*calls)
            assert [response.cluster_id for response in responses] == [str(number) for number in range(100)]
            await connection.close()

    asyncio.run(run())


def test_a_broker_that_hangs_up_fails_all_that_wait() -> None:
    async def run() -> None:
        async with FakeBroker({ApiKey.DESCRIBE_CLUSTER: lambda version, request: HANG_UP}) as broker:
            connection = await open_to(broker)
            calls = [connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10) for _ in range(3)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [error.code for error in errors if isinstance(error, ApiError)] == [ErrorCode.NETWORK_EXCEPTION] * 3
            assert connection.is_closed
            with pytest.raises(ApiError, match="lost the connection"):
                await connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10)
            await connection.close()

    asyncio.run(run())


def test_a_silent_broker_times_out_and_the_connection_is_not_used_again() -> None:
    async def run() -> None:
        async with FakeBroker({ApiKey.DESCRIBE_CLUSTER: lambda version, request: None}) as broker:
            connection = await open_to(broker)
            with pytest.raises(ApiError) as caught:
                await connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=0.05)
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert connection.is_closed
            await connection.close()

    asyncio.run(run())


def test_a_cancelled_request_does_not_disturb_the_next() -> None:
    async def run() -> None:
        async with FakeBroker({ApiKey.DESCRIBE_CLUSTER: lambda version, request: described("fine")}) as broker:
            connection = await open_to(broker)
            first = asyncio.ensure_future(connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10))
            await asyncio.sleep(0)
            first.cancel()
            response = await connection.request(ApiKey.DESCRIBE_CLUSTER, CLUSTER, timeout_s=10)
            assert response.cluster_id == "fine"
            assert not connection.is_closed
            await connection.close()

    asyncio.run(run())


async def serve(handler: Handler) -> tuple[asyncio.Server, Address]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    return server, Address(*server.sockets[0].getsockname())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
        b"\x00\x00\x00\x05\x00\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
    ],
)
def test_garbage_is_a_network_error(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async def run() -> None:
        server, address = await serve(reply)
        async with server:
            with pytest.raises(ApiError) as caught:
                await Connection.open(address, client_id="test", timeout_s=10)
            assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
            assert "does not speak" in str(caught.value)

    asyncio.run(run())


def test_nobody_listens() -> None:
    async def unused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def run() -> None:
        server, address = await serve(unused)
        server.close()
        await server.wait_closed()
        with pytest.raises(ApiError, match="Connection refused") as caught:
            await Connection.open(address, client_id="test", timeout_s=10)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())
