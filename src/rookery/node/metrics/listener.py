"""The HTTP listener of metrics and health checks: a few fixed paths, GET and HEAD, on the node's event loop.

    /metrics   all metrics; ?dialect=strimzi, confluent or reporter chooses the names
    /healthz   200 while the process answers
    /readyz    200 if clients can use this node, else 503 with the reason

A handful of paths needs no web framework, which a broker does not have otherwise. Requests have no body and small
heads; everything else is refused. A peer that sends nothing is closed.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import structlog

from rookery.base.errors import StartupError
from rookery.node.metrics.collector import NodeMetrics
from rookery.node.metrics.health import Health
from rookery.telemetry.dialects import DEFAULT_DIALECT, DIALECTS
from rookery.telemetry.exposition import OPEN_METRICS_TYPE, PROMETHEUS_TYPE

_log = structlog.get_logger(__name__)

_HEAD_BYTES_MAX: Final = 8192
_IDLE_S: Final = 60.0
_CONNECTIONS_MAX: Final = 64
_HEAD_END: Final = b"\r\n\r\n"
_TEXT: Final = "text/plain; charset=utf-8"


# `http.HTTPStatus` would be the only part of that package that a broker loads.
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = _TEXT


class Request(NamedTuple):
    """The head of a request."""

    method: str
    target: str
    headers: Mapping[str, str]
    keeps_alive: bool


def parse_head(head: bytes) -> Request | None:
    """Return the request, or None if it is not HTTP/1."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        return None
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    connection = headers.get("connection", "").lower()
    keeps_alive = connection != "close" if words[2] == "HTTP/1.1" else connection == "keep-alive"
    return Request(words[0], words[1], headers, keeps_alive)


class MetricsListener:
    """Serves one address. `bind` first, so that a port in use is reported before anything long is done."""

    def __init__(self, url: str, metrics: NodeMetrics, health: Health) -> None:
        address = urlsplit(url)
        assert address.port is not None
        self._url = url
        self._host, self._port = address.hostname or "", address.port
        self._metrics = metrics
        self._paths: dict[str, Callable[[Request, str], Awaitable[Answer]]] = {
            "/metrics": self._render,
            "/healthz": self._answer_alive,
            "/readyz": self._answer_ready,
        }
        self._health = health
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises StartupError if the port cannot be bound."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host or None, self._port, limit=_HEAD_BYTES_MAX, family=socket.AF_UNSPEC
            )
        except OSError as error:
            raise StartupError(
                f"metrics.listeners: cannot listen on {self._url}: {error.strerror or error}. "
                "Free the port, or choose another one."
            ) from error

    @property
    def bound_port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _CONNECTIONS_MAX:
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except Exception:
            _log.exception("a request for metrics failed")
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keeps_alive = True
        while keeps_alive:
            async with asyncio.timeout(_IDLE_S):
                head = await reader.readuntil(_HEAD_END)
            request = parse_head(head)
            if request is None:
                _write(writer, Answer(400, b"not an HTTP/1.1 request\n"), keeps_alive=False)
                return
            # A body would be read as the next request.
            keeps_alive = request.keeps_alive and not {"content-length", "transfer-encoding"} & request.headers.keys()
            answer = await self._answer(request)
            _write(writer, answer, keeps_alive=keeps_alive, has_body=request.method != "HEAD")
            async with asyncio.timeout(_IDLE_S):
                await writer.drain()

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return Answer(405, b"only GET and HEAD are served\n")
        url = urlsplit(request.target)
        answer = self._paths.get(url.path)
        if answer is None:
            return Answer(404, f"there are only {', '.join(self._paths)}\n".encode())
        return await answer(request, url.query)

    async def _render(self, request: Request, query: str) -> Answer:
        dialect = parse_qs(query).get("dialect", [DEFAULT_DIALECT])[-1]
        if dialect not in DIALECTS:
            text = f"dialect: expected one of {', '.join(DIALECTS)}, got {dialect!r}\n"
            return Answer(400, text.encode())
        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        body = await self._metrics.render(dialect, is_open_metrics=is_open)
        return Answer(200, body, OPEN_METRICS_TYPE if is_open else PROMETHEUS_TYPE)

    async def _answer_alive(self, _: Request, __: str) -> Answer:
        return Answer(200, b"alive\n")

    async def _answer_ready(self, _: Request, __: str) -> Answer:
        problem = self._health.problem()
        if problem is None:
            return Answer(200, b"ready\n")
        return Answer(503, f"not ready: {problem}\n".encode())


def _write(writer: asyncio.StreamWriter, answer: Answer, *, keeps_alive: bool, has_body: bool = True) -> None:
    head = (
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        f"Connection: {'keep-alive' if keeps_alive else 'close'}\r\n\r\n"
    )
    writer.write(head.encode() + (answer.body if has_body else b""))
