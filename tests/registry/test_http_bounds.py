"""Clients that send too much, too slowly or too often are rejected, before they use much memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rookery.registry.http_bounds import DEFAULT_BOUNDS, BoundedProtocol, HttpBounds, Usage
from rookery.registry.server import RegistryServer
from rookery.registry.settings import RegistryListener, TlsFiles

HTTP = RegistryListener("http", "127.0.0.1", 0)
NO_TLS = TlsFiles(keystore=None, key_password=None, truststore=None, client_authentication="NONE")
GET = b"GET / HTTP/1.1\r\n\r\n"


class App:
    """Records its requests. `/held` responds when `release` is set, `/echo` with the body, `/large` with 64 MiB."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.disconnects = 0
        self.release = asyncio.Event()
        paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._hello,
            "/held": self._held,
            "/echo": self._echo,
            "/large": self._large,
        }
        routes = [Route(path, self._counted(path, respond), methods=["GET", "POST"]) for path, respond in paths.items()]
        self.app = Starlette(routes=routes)

    def _counted(
        self, path: str, respond: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            self.requests.append(path)
            return await respond(request)

        return call

    async def _hello(self, _: Request) -> Response:
        return PlainTextResponse("hello")

    async def _held(self, _: Request) -> Response:
        await self.release.wait()
        return PlainTextResponse("held")

    async def _echo(self, request: Request) -> Response:
        try:
            return PlainTextResponse(await request.body())
        except ClientDisconnect:
            self.disconnects += 1
            return PlainTextResponse("gone")

    async def _large(self, _: Request) -> Response:
        return PlainTextResponse("x" * 64 * 1024 * 1024)


class Scene:
    """A server and connections to it."""

    def __init__(self, server: RegistryServer, app: App, port: int) -> None:
        self.server = server
        self.app = app
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def usage(self) -> Usage:
        return self.server._usage

    @property
    def protocols(self) -> list[BoundedProtocol]:
        (server,) = self.server._servers
        return [each for each in server.server_state.connections if isinstance(each, BoundedProtocol)]

    async def connect(self) -> "Connection":
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return Connection(reader, writer)

    async def send(self, data: bytes) -> list[int]:
        """Return the statuses of all responses until the connection is closed."""
        connection = await self.connect()
        await connection.send(data)
        return await connection.statuses()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def statuses(self) -> list[int]:
        """Return the statuses until the server closes the connection, which the request may have to ask for."""
        received = bytearray()
        try:
            while data := await self.reader.read(65_536):
                received += data
        except ConnectionError:
            pass
        return [int(part[:3]) for part in bytes(received).split(b"HTTP/1.1 ")[1:]]


def run(scenario: Callable[[Scene], Awaitable[None]], **bounds: Any) -> None:
    async def serve() -> None:
        async with serving(**bounds) as scene:
            await scenario(scene)

    asyncio.run(serve())


@asynccontextmanager
async def serving(**bounds: Any) -> AsyncIterator[Scene]:
    app = App()
    server = RegistryServer((HTTP,), NO_TLS, bounds=HttpBounds(**bounds))
    (listener,) = server.bind()
    scene = Scene(server, app, listener.port)
    try:
        await server.serve(app.app)
        yield scene
    finally:
        app.release.set()
        scene.close()
        await server.stop()
        assert (server._usage.connections, server._usage.unanswered_bytes) == (0, 0)


def request(path: str = "/", *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", *headers, *length, "", ""]).encode() + body


CLOSE = "Connection: close"


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    head = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("/" + "u" * DEFAULT_BOUNDS.url_bytes_max), 414),
        (b"GET /" + b"u" * 1_000_000, 414),
        (request("/", "X: " + "v" * (DEFAULT_BOUNDS.head_bytes_max + 4 * DEFAULT_BOUNDS.piece_bytes)), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"v" * 1_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"n" * 1_000_000, 431),
        (request("/", *(f"H{index}: v" for index in range(DEFAULT_BOUNDS.headers_max + 1))), 431),
        (chunked(b"a", trailers=b"T: " + b"t" * 1_000_000 + b"\r\n"), 431),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 1_000_000, 431),
        (b"no request\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00" + b"\x00" * 100, 400),
        (request("/", "Content-Length: -1"), 400),
    ],
)
def test_requests_beyond_a_limit_are_rejected(sent: bytes, status: int) -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.send(sent) == [status]
        assert set(scene.app.requests) <= {"/echo"}, "only where the head was in order"

    run(scenario)


def test_a_rejection_has_the_form_of_the_registrys_errors() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/" + "u" * 100_000))
        head, _, body = (await connection.reader.read()).partition(b"\r\n\r\n")
        assert b"content-type: application/json" in head
        assert body == b'{"error_code":414,"message":"HTTP 414 %s"}' % head.split(b"\r\n")[0].split(b" ", 2)[2]

    run(scenario)


def test_requests_within_the_limits_are_served() -> None:
    async def scenario(scene: Scene) -> None:
        bounds = DEFAULT_BOUNDS
        headers = [f"H{index}: v" for index in range(bounds.headers_max - 1)]
        large = "X: " + "v" * (bounds.head_bytes_max - 2 * bounds.piece_bytes)
        assert await scene.send(request("/", *headers, CLOSE)) == [200]
        assert await scene.send(request("/", large, CLOSE)) == [200]
        assert await scene.send(request("/?q=" + "u" * (bounds.url_bytes_max - 4), CLOSE)) == [200]
        body = b"b" * 2_000_000
        assert await scene.send(request("/echo", CLOSE, method="POST", body=body)) == [200]
        pieces = chunked(*[b"c" * 100] * 1000, trailers=b"T: t\r\n").replace(
            b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1
        )
        assert await scene.send(pieces) == [200]

    run(scenario)


def test_a_trailer_is_not_a_header() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(chunked(b"a", trailers=b"Authorization: x\r\n"))
        await scene.until(lambda: bool(scene.app.requests))
        (protocol,) = scene.protocols
        assert [name for name, _ in protocol.headers] == [b"transfer-encoding"]

    run(scenario)


def test_requests_that_wait_for_an_earlier_one_stay_bytes() -> None:
    """Each parsed request would take about 3 KB. The second block is not even read."""

    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/held"))
        await scene.until(lambda: scene.app.requests == ["/held"])
        sending = asyncio.ensure_future(connection.send(GET * 500_000))
        (protocol,) = scene.protocols
        await scene.until(lambda: protocol.flow.is_held)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(protocol.pipeline) <= DEFAULT_BOUNDS.piece_bytes // len(GET) + 1
        assert protocol.flow.read_paused
        assert scene.usage.unanswered_bytes < 2 * 1024 * 1024
        assert scene.app.requests == ["/held"]
        sending.cancel()
        await asyncio.wait([sending])

    run(scenario)


def test_few_requests_of_a_flood_are_parsed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[int] = []
    parse = BoundedProtocol._parse

    def watched(protocol: BoundedProtocol) -> None:
        parse(protocol)
        waiting.append(len(protocol.pipeline))

    monkeypatch.setattr(BoundedProtocol, "_parse", watched)

    async def scenario(scene: Scene) -> None:
        count = 3_000
        assert await scene.send(GET * count + request("/", CLOSE)) == [200] * (count + 1)
        assert max(waiting) <= DEFAULT_BOUNDS.piece_bytes // len(GET) + 1

    run(scenario)


def test_pipelined_requests_are_answered_in_order_with_bodies_of_any_size() -> None:
    async def scenario(scene: Scene) -> None:
        sent = b"".join(request("/echo", method="POST", body=b"%d" % index * 3000) for index in range(30))
        connection = await scene.connect()
        sending = asyncio.ensure_future(connection.send(sent + request("/", CLOSE)))
        received = await connection.reader.read()
        await sending
        bodies = [part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
        assert bodies == [*(b"%d" % index * 3000 for index in range(30)), b"hello"]

    run(scenario)


def test_a_rejection_waits_for_earlier_responses() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/held") + GET + b"no request\r\n\r\n")
        await scene.until(lambda: scene.app.requests == ["/held"])
        scene.app.release.set()
        assert await connection.statuses() == [200, 200, 400]

    run(scenario)


def test_the_limit_for_unanswered_bytes_counts_all_connections() -> None:
    """Each connection sends an incomplete body."""
    half = request("/echo", method="POST", body=b"b" * 60_000)[:-1]

    async def scenario(scene: Scene) -> None:
        for _ in range(10):
            await (await scene.connect()).send(half)
        await scene.until(lambda: scene.usage.unanswered_bytes > 10 * len(half))
        assert await scene.send(half) == [503]
        # When they are closed, new requests are served.
        scene.close()
        await scene.until(lambda: scene.usage.connections == 0)
        assert scene.usage.unanswered_bytes == 0
        assert await scene.send(request("/", CLOSE)) == [200]

    run(scenario, unanswered_bytes_max=11 * len(half))


def test_an_answered_request_releases_its_bytes() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        for _ in range(100):
            await connection.send(request("/echo", method="POST", body=b"b" * 50_000))
            await connection.reader.readuntil(b"\r\n\r\n")
            await connection.reader.readexactly(50_000)
        await scene.until(lambda: scene.usage.unanswered_bytes == 0)

    run(scenario, unanswered_bytes_max=100_000)


def test_the_number_of_connections_is_limited() -> None:
    async def scenario(scene: Scene) -> None:
        idle = [await scene.connect() for _ in range(3)]
        await scene.until(lambda: scene.usage.connections == 3)
        assert await (await scene.connect()).statuses() == [503]
        idle[0].writer.close()
        await scene.until(lambda: scene.usage.connections == 2)
        assert await scene.send(request("/", CLOSE)) == [200]

    run(scenario, connections_max=3)


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"GET / HTTP/1.1\r\nX: y\r\n", request("/echo", method="POST", body=b"body")[:-1]],
    ids=["nothing", "no request", "half a head", "half a body"],
)
def test_an_incomplete_request_times_out(sent: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.send(sent) == [408]
        await scene.until(lambda: scene.app.disconnects == len(scene.app.requests))

    run(scenario, head_s=0.01, body_s=0.01)


def test_occasional_bytes_do_not_extend_the_deadline() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        ended = asyncio.ensure_future(connection.statuses())
        while not ended.done():
            await connection.send(b"\r\n")
            await asyncio.sleep(0)
        assert set(await ended) <= {408}

    run(scenario, head_s=0.01)


def test_the_second_request_of_a_connection_has_a_deadline_too() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/held"))
        await scene.until(lambda: scene.app.requests == ["/held"])
        (protocol,) = scene.protocols
        assert protocol._deadline is None, "the registry's turn"
        await connection.send(b"GET / HT")
        await scene.until(lambda: protocol._deadline is not None)
        protocol._expire()
        scene.app.release.set()
        assert await connection.statuses() == [200, 408]

    run(scenario)


def test_there_is_no_deadline_while_received_data_waits_to_be_parsed() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/held") + request("/echo", method="POST", body=b"b" * 5000)[:-1])
        (protocol,) = await _protocols_of(scene)
        await scene.until(lambda: protocol.flow.is_held)
        assert protocol._deadline is None
        scene.app.release.set()
        await scene.until(lambda: scene.app.requests == ["/held", "/echo"])
        assert protocol._deadline_s == DEFAULT_BOUNDS.body_s
        await connection.send(b"b" + request("/", CLOSE))
        assert await connection.statuses() == [200, 200, 200]

    run(scenario)


async def _protocols_of(scene: Scene) -> list[BoundedProtocol]:
    await scene.until(lambda: bool(scene.protocols))
    return scene.protocols


def test_an_unread_response_ends_the_connection() -> None:
    async def scenario(scene: Scene) -> None:
        connection = await scene.connect()
        await connection.send(request("/large"))
        await scene.until(lambda: bool(scene.app.requests))
        await scene.until(lambda: scene.usage.connections == 0)

    run(scenario, unread_s=0.01)
