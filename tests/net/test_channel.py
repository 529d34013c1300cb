import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import Buffer, NodeId
from rookery.client.errors import AuthenticationError
from rookery.net.address import Address
from rookery.net.channel import Channel, SocketBuffers
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import encode_response
from rookery.protocol.message import Message
from tests.client.fake_broker import HANG_UP, FakeBroker
from tests.client.skipping import skip_time

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


async def open_to(broker: FakeBroker, timeout_s: float = 10) -> Channel:
    return await Channel.open(broker.address, client_id="test", timeout_s=timeout_s)


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


def test_an_api_that_the_broker_does_not_serve_fails_before_sending() -> None:
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


def test_all_pending_requests_fail_when_the_broker_closes_the_connection() -> None:
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
                await Channel.open(address, client_id="test", timeout_s=10)
            assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
            assert "does not speak" in str(caught.value)

    asyncio.run(run())


def test_connection_refused() -> None:
    async def unused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def run() -> None:
        server, address = await serve(unused)
        server.close()
        await server.wait_closed()
        with pytest.raises(ApiError, match="Connection refused") as caught:
            await Channel.open(address, client_id="test", timeout_s=10)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())


# A server that answers ApiVersions, and then exchanges raw bytes as a test defines

FLEXIBLE = (ApiKey.DESCRIBE_CLUSTER, 1)
Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return API key, correlation id and body of a request from a client with the id `test`."""
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    api_key, _, correlation_id, _ = struct.unpack_from(">hhih", frame)
    return api_key, correlation_id, frame[10 + len("test") + 1 :]


def frame_of(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">iib", len(body) + 5, correlation_id, 0) + body


def answering_versions(then: Answering) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, correlation_id, _ = await read_request(reader)
        rows = [Message(api_key=key, min_version=0, max_version=100) for key in ApiKey]
        body = encode_response(ApiKey.API_VERSIONS, 4, Message(error_code=0, api_keys=rows, throttle_time_ms=0))
        writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)
        try:
            await then(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return handle


async def run_channel(then: Answering, body: Callable[[Channel], Awaitable[None]]) -> None:
    server, address = await serve(answering_versions(then))
    async with server:
        connection = await Channel.open(address, client_id="test", timeout_s=10)
        try:
            await body(connection)
        finally:
            await connection.close()


async def exchange(connection: Channel, *parts: Buffer, timeout_s: float = 10) -> memoryview:
    return await connection.exchange(*FLEXIBLE, parts, timeout_s=timeout_s)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, correlation_id, body = await read_request(reader)
        writer.write(frame_of(correlation_id, body))
        await writer.drain()


@pytest.mark.parametrize("size", [0, 1, 100, 16_371, 16_372, 16_380, 16_384, 16_385, 100_000, 5_000_000])
def test_bodies_of_any_size_are_sent_in_parts_and_received(size: int) -> None:
    async def check(connection: Channel) -> None:
        body = bytes(range(256)) * (size // 256 + 1)
        whole = body[:size]
        responses = await asyncio.gather(
            exchange(connection, whole),
            exchange(connection, b"a", memoryview(whole), bytearray(b"z")),
            exchange(connection, *[whole[index : index + 1] for index in range(min(size, 3000))]),
        )
        assert [bytes(response) for response in responses] == [whole, b"a" + whole + b"z", whole[:3000]]

    asyncio.run(run_channel(echo, check))


def test_responses_stay_valid_while_others_arrive() -> None:
    async def check(connection: Channel) -> None:
        bodies = [bytes([index]) * (index * 977) for index in range(1, 60)]
        kept = [await exchange(connection, body) for body in bodies]
        assert [bytes(view) for view in kept] == bodies

    asyncio.run(run_channel(echo, check))


@pytest.mark.parametrize("piece", [1, 3, 7, 8, 11, 10_000])
def test_responses_are_parsed_from_pieces_of_any_size(piece: int) -> None:
    bodies = [b"", b"x", b"y" * 50, b"z" * 300]

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [(await read_request(reader))[1] for _ in bodies]
        data = b"".join(map(frame_of, ids, bodies))
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()
            await asyncio.sleep(0)

    async def check(connection: Channel) -> None:
        responses = await asyncio.gather(*(exchange(connection) for _ in bodies))
        assert [bytes(response) for response in responses] == bodies

    asyncio.run(run_channel(slowly, check))


def test_responses_in_another_order_are_matched_to_their_requests() -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [await read_request(reader) for _ in range(10)]
        for _, correlation_id, body in reversed(requests):
            writer.write(frame_of(correlation_id, body))
        await reader.read()

    async def check(connection: Channel) -> None:
        bodies = [str(number).encode() for number in range(10)]
        responses = await asyncio.gather(*(exchange(connection, body) for body in bodies))
        assert [bytes(response) for response in responses] == bodies

    asyncio.run(run_channel(backwards, check))


def test_tagged_fields_in_a_response_header_are_skipped() -> None:
    async def tagged(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, correlation_id, _ = await read_request(reader)
        header = struct.pack(">i", correlation_id) + b"\x01\x09\x02ab"
        writer.write(struct.pack(">i", len(header) + 4) + header + b"body")
        await reader.read()

    async def check(connection: Channel) -> None:
        assert bytes(await exchange(connection)) == b"body"

    asyncio.run(run_channel(tagged, check))


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02\x28\x00",
        struct.pack(">ii", 4, 77),
        struct.pack(">i", 3),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 4, 1),
        struct.pack(">iib", 5, 1, 1),
    ],
)
def test_an_invalid_response_fails_the_connection_and_all_pending_requests(answer: bytes) -> None:
    async def invalid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await reader.read()

    async def check(connection: Channel) -> None:
        errors = await asyncio.gather(*(exchange(connection) for _ in range(3)), return_exceptions=True)
        assert ["does not speak" in str(error) for error in errors] == [True] * 3
        assert connection.is_closed

    asyncio.run(run_channel(invalid, check))


def test_a_response_that_cannot_be_decoded_fails_the_connection() -> None:
    async def check(connection: Channel) -> None:
        await exchange(connection, b"x")
        error = connection.reject_response(ProtocolError("the body ends too early"))
        assert error.code == ErrorCode.NETWORK_EXCEPTION
        assert "ends too early" in str(error)
        with pytest.raises(ApiError, match="ends too early"):
            await exchange(connection, b"x")

    asyncio.run(run_channel(echo, check))


def test_requests_wait_in_order_while_the_broker_does_not_read() -> None:
    bodies = [bytes([index]) * 3_000_000 for index in range(8)]
    reads = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        for body in bodies:
            _, correlation_id, received = await read_request(reader)
            writer.write(frame_of(correlation_id, b"same" if received == body else b"other"))
        await reader.read()

    async def check(connection: Channel) -> None:
        calls = [asyncio.ensure_future(exchange(connection, body)) for body in bodies]
        await asyncio.sleep(0)
        assert connection.is_busy
        # The transport holds one piece; the rest waits in the writer's queue, where it was not copied.
        assert 0 < connection._outgoing._transport.get_write_buffer_size() <= 65_536
        reads.set()
        assert [bytes(response) for response in await asyncio.gather(*calls)] == [b"same"] * len(bodies)
        assert not connection.is_busy

    asyncio.run(run_channel(late, check))


def test_sending_a_request_without_response_waits_until_it_is_written() -> None:
    reads = asyncio.Event()
    received = []

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        while True:
            _, correlation_id, body = await read_request(reader)
            received.append(len(body))
            if body == b"end":
                writer.write(frame_of(correlation_id, b"ok"))

    async def check(connection: Channel) -> None:
        sends = [asyncio.ensure_future(connection.send(*FLEXIBLE, [bytes(4_000_000)])) for _ in range(4)]
        await asyncio.sleep(0.01)
        assert not sends[-1].done()
        sends[-1].cancel()
        reads.set()
        await asyncio.gather(*sends, return_exceptions=True)
        assert [send.cancelled() for send in sends] == [False, False, False, True]
        assert bytes(await exchange(connection, b"end")) == b"ok"
        assert received == [4_000_000] * 4 + [3]

    asyncio.run(run_channel(late, check))


def test_closing_does_not_wait_for_a_broker_that_does_not_read() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def check(connection: Channel) -> None:
        sends = [asyncio.ensure_future(connection.send(*FLEXIBLE, [bytes(9_000_000)])) for _ in range(2)]
        call = asyncio.ensure_future(exchange(connection, b"x"))
        await asyncio.sleep(0.01)
        await connection.close()
        errors = await asyncio.gather(*sends, call, return_exceptions=True)
        assert ["was closed" in str(error) for error in errors] == [True] * 3

    asyncio.run(run_channel(deaf, check))


def test_the_earliest_deadline_counts() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def check(connection: Channel) -> None:
        errors = await asyncio.gather(
            exchange(connection, timeout_s=30), exchange(connection, timeout_s=0.03), return_exceptions=True
        )
        assert ["within 0.03 s" in str(error) for error in errors] == [True, True]
        assert connection.is_closed

    asyncio.run(run_channel(silent, check))


def test_an_answered_request_does_not_time_out_later() -> None:
    async def check(connection: Channel) -> None:
        await exchange(connection, b"quick", timeout_s=30)
        call = asyncio.ensure_future(exchange(connection, b"x" * 10, timeout_s=600))
        await asyncio.sleep(0)
        assert connection.is_busy
        skip_time(30)
        assert bytes(await call) == b"x" * 10
        assert not connection.is_closed

    asyncio.run(run_channel(echo, check))


class Counts:
    def __init__(self) -> None:
        self.events: list[tuple[str, NodeId]] = []
        self.sent_bytes = 0
        self.received_bytes = 0

    def opened(self, node: NodeId) -> None:
        self.events.append(("opened", node))

    def closed(self, node: NodeId) -> None:
        self.events.append(("closed", node))

    def sent(self, node: NodeId, size_bytes: int) -> None:
        self.sent_bytes += size_bytes

    def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None:
        assert latency_s >= 0
        self.received_bytes += size_bytes


def test_an_observer_sees_what_goes_over_the_wire() -> None:
    async def run() -> None:
        counts = Counts()
        server, address = await serve(answering_versions(echo))
        async with server:
            connection = await Channel.open(
                address,
                client_id="test",
                timeout_s=10,
                node=3,
                observer=counts,
                buffers=SocketBuffers(500_000, 500_000),
            )
            before = counts.sent_bytes, counts.received_bytes
            await exchange(connection, b"x" * 100)
            assert counts.sent_bytes - before[0] == 4 + 10 + len("test") + 1 + 100
            assert counts.received_bytes - before[1] == 4 + 5 + 100
            await connection.close()
            assert counts.events == [("opened", 3), ("closed", 3)]

    asyncio.run(run())


@pytest.mark.parametrize(
    "address", [Address("a" * 70 + ".example", 9092), Address("127.0.0.1", 99_999_999), Address("nul\0", 9092)]
)
def test_an_address_that_cannot_be_looked_up_is_a_network_error(address: Address) -> None:
    with pytest.raises(ApiError, match="cannot connect to") as caught:
        asyncio.run(Channel.open(address, client_id="test", timeout_s=10))
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION


def test_connecting_while_the_interpreter_exits_is_a_network_error() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        # The executor that looks names up is shut down when the interpreter exits.
        await loop.shutdown_default_executor()
        with pytest.raises(ApiError, match="cannot connect to localhost:1") as caught:
            await Channel.open(Address("localhost", 1), client_id="test", timeout_s=10)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())


def test_requests_wait_in_order_for_a_repeated_login() -> None:
    async def check(connection: Channel) -> None:
        logged_in = asyncio.Event()

        async def log_in(_: Channel) -> None:
            await logged_in.wait()

        connection.log_in_again_at(0, log_in)
        waiting = [asyncio.ensure_future(exchange(connection, b"%d" % number)) for number in range(3)]
        unanswered = asyncio.ensure_future(connection.send(ApiKey.PRODUCE, 9, [b"no answer"]))
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in [*waiting, unanswered])
        assert connection.is_busy
        logged_in.set()
        await unanswered
        assert [bytes(await answer) for answer in waiting] == [b"0", b"1", b"2"]

    asyncio.run(run_channel(echo, check))


def test_no_request_is_sent_if_a_login_fails_and_all_raise_its_error() -> None:
    received = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await read_request(reader))

    async def check(connection: Channel) -> None:
        async def log_in(_: Channel) -> None:
            raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "alice has left")

        connection.log_in_again_at(0, log_in)
        answers = await asyncio.gather(*(exchange(connection, b"a") for _ in range(2)), return_exceptions=True)
        assert [(type(answer), str(answer)) for answer in answers] == [(AuthenticationError, "alice has left")] * 2
        assert answers[0] is not answers[1]
        assert connection.is_closed

    asyncio.run(run_channel(listen, check))
    assert not received


def test_a_connection_that_is_closed_during_a_login() -> None:
    async def check(connection: Channel) -> None:
        ended = asyncio.Event()

        async def log_in(_: Channel) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        connection.log_in_again_at(0, log_in)
        waiting = asyncio.ensure_future(exchange(connection, b"a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(ApiError, match="was closed"):
            await waiting
        await ended.wait()

    asyncio.run(run_channel(echo, check))
