"""Limits of the registry's listeners for the sizes, counts and times of requests, before a request is handled.

uvicorn and its parser have no such limits: they buffer a header of any length, parse all requests of a block however
many there are, and wait for a request's head without time-out. `BoundedProtocol` sits between the transport and the
parser. It parses in small pieces, and stops while a request waits for an earlier one, so that received data stays
bytes; it counts the bytes of unanswered requests over all connections; and it has a deadline for everything that a
client has to send or to read.

A request that exceeds a limit gets an error response in its turn, and the connection is closed. The limits apply before
authentication, to every client that reaches the port.
"""

import asyncio
from asyncio.events import TimerHandle
from collections import deque
from typing import Any, Final

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from rookery.base.values import value_class
from rookery.registry.errors import http_error
from rookery.registry.rest.responses import error_response

# The memory of a parsed request's objects, without the bytes of its head.
_REQUEST_BYTES: Final = 4096
_BAD_REQUEST, _TOO_LATE, _URL_TOO_LONG, _HEAD_TOO_LARGE, _BUSY = 400, 408, 414, 431, 503


@value_class(kw_only=True)
class HttpBounds:
    """The limits, each with the status of the response if it is exceeded. (The limit for bodies is a setting: 413.)"""

    # 414. Enough for the longest topic name as a subject, percent-encoded. Jetty accepts 8 KiB including all headers.
    url_bytes_max: int = 16 * 1024
    # 431. URL and headers together, and trailers. Tokens and tickets take about 16 KiB.
    head_bytes_max: int = 32 * 1024
    # 431. Clients send about ten.
    headers_max: int = 100
    # No error: the bytes that are parsed in one step. They contain at most about 57 requests of the shortest kind.
    piece_bytes: int = 1024
    # 503, over all connections: heads, bodies and unparsed bytes of unanswered requests. Parsing a body takes about
    # four times its bytes.
    unanswered_bytes_max: int = 64 * 1024 * 1024
    # 503. An idle connection takes about 10 KB.
    connections_max: int = 1000
    # 408. From the connection, or the first byte of a request, to the end of its head.
    head_s: float = 20
    # 408. From the head to the end of the body: 2 MiB at 35 KB/s.
    body_s: float = 60
    # The connection is aborted. A response that the client does not read stays in memory.
    unread_s: float = 60
    # The time in which a rejected client may continue to send. If the connection were closed immediately, the system
    # would reset it and the client would lose the response.
    linger_s: float = 2


DEFAULT_BOUNDS: Final = HttpBounds()


class Usage:
    """The resources in use by all connections of a registry, over all of its listeners."""

    def __init__(self) -> None:
        self.connections = 0
        self.unanswered_bytes = 0


class BoundedConfig(uvicorn.Config):
    """The configuration of a listener. All listeners share `usage`."""

    def __init__(self, app: Any, *, bounds: HttpBounds, usage: Usage, **options: Any) -> None:
        super().__init__(app, http=BoundedProtocol, **options)
        self.bounds = bounds
        self.usage = usage


class _LimitError(Exception):
    """A limit is exceeded. Raised in a callback of the parser, which then stops."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Flow(FlowControl):
    """Does not resume reading while received data is not parsed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """The HTTP protocol of one connection, with limits."""

    flow: _Flow

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, BoundedConfig)
        self._bounds = config.bounds
        self._usage = config.usage
        # The received data. The bytes from `_position` on are not parsed yet.
        self._received = b""
        self._position = 0
        # The sizes of the unanswered requests, in order; the last one may be incomplete.
        self._sizes: deque[int] = deque()
        self._is_receiving = False
        self._has_head = False
        # The bytes parsed since the request began or since its last body data: a head, trailers, or chunk headers.
        self._head_bytes = 0
        # The status of the error response that ends this connection.
        self._error_status: int | None = None
        # Whether that response was sent, or the connection is lost.
        self._has_ended = False
        self._deadline: TimerHandle | None = None
        self._deadline_s = 0.0
        self._unread: TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._usage.connections += 1
        if self._usage.connections > self._bounds.connections_max:
            self._send_error(_BUSY, linger_s=0)
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._usage.connections -= 1
        self._usage.unanswered_bytes -= sum(self._sizes) + len(self._received) - self._position
        self._sizes.clear()
        self._received, self._position = b"", 0
        self._stop_deadline()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._error_status is not None or self.transport.is_closing():
            return
        self._received = self._received[self._position :] + data if self._has_waiting else data
        self._position = 0
        self._usage.unanswered_bytes += len(data)
        if self._usage.unanswered_bytes > self._bounds.unanswered_bytes_max:
            self._reject(_BUSY)
        self._parse()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self._bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def _stop_unread_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # Parsing, piece by piece

    @property
    def _has_waiting(self) -> bool:
        return self._position < len(self._received)

    def _parse(self) -> None:
        """Parse until a request waits for an earlier one. The rest stays bytes until its turn: the objects of parsed
        requests take many times their bytes."""
        while self._has_waiting and not self.pipeline and self._error_status is None:
            end = min(self._position + self._bounds.piece_bytes, len(self._received))
            self._feed(memoryview(self._received)[self._position : end])
        self.flow.is_held = self._has_waiting
        if self.flow.is_held:
            self.flow.pause_reading()
        self._set_deadline()

    def _feed(self, piece: memoryview) -> None:
        size = len(piece)
        self._head_bytes += size
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            # Upgrades are not supported: the data that follows is the next request.
            size = upgrade.args[0]
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._reject(reason.status if isinstance(reason, _LimitError) else _BAD_REQUEST)
            return
        self._position += size
        if self._sizes:
            self._sizes[-1] += size
        else:
            self._usage.unanswered_bytes -= size
        if self._is_receiving and self._head_bytes > self._bounds.head_bytes_max:
            self._reject(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_receiving, self._has_head = True, False
        self._head_bytes = 0
        self._sizes.append(_REQUEST_BYTES)
        self._usage.unanswered_bytes += _REQUEST_BYTES
        self._stop_deadline()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._bounds.url_bytes_max:
            raise _LimitError(_URL_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            # A trailer. No endpoint uses trailers, and the request's headers were handled already.
            return
        if len(self.headers) == self._bounds.headers_max:
            raise _LimitError(_HEAD_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_receiving = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._sizes:
            self._usage.unanswered_bytes -= self._sizes.popleft()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._error_status is not None:
            self._send_error_in_turn()
            return
        if self._has_waiting:
            self._unset_keepalive_if_required()
        self._parse()
        self.flow.resume_reading()

    # Deadlines

    def _set_deadline(self) -> None:
        """Set the deadline for what the client has to send next; none while the registry has to respond."""
        seconds = self._find_deadline_s()
        if seconds != self._deadline_s:
            self._stop_deadline()
        if seconds and self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._expire)
            self._deadline_s = seconds

    def _find_deadline_s(self) -> float:
        if self._has_ended or self._error_status is not None or self.flow.is_held:
            return 0
        if self._is_receiving:
            return self._bounds.body_s if self._has_head else self._bounds.head_s
        # Between two requests uvicorn has a timer, which any byte stops, even a byte that does not begin a request.
        is_idle = not self._sizes and self.timeout_keep_alive_task is None
        return self._bounds.head_s if is_idle else 0

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._deadline_s = None, 0.0

    def _expire(self) -> None:
        self._stop_deadline()
        self._reject(_TOO_LATE)

    # Error responses

    def _reject(self, status: int) -> None:
        """End the connection with an error response, after the responses to earlier requests."""
        self._error_status = status
        self._usage.unanswered_bytes -= len(self._received) - self._position
        self._received, self._position = b"", 0
        self._set_deadline()
        self._send_error_in_turn()

    def _send_error_in_turn(self) -> None:
        earlier = len(self._sizes) - self._is_receiving
        if earlier > 0:
            self.flow.pause_reading()
            return
        assert self._error_status is not None
        if self._is_receiving and not self._sizes:
            # The app responded before the whole request was received.
            self.transport.close()
        elif self._is_receiving and self._has_head and self.cycle.response_started:
            self.transport.close()
        else:
            self._send_error(self._error_status, linger_s=self._bounds.linger_s)

    def _send_error(self, status: int, *, linger_s: float) -> None:
        self._error_status, self._has_ended = status, True
        if self.cycle is not None and not self.cycle.response_complete:
            # The app must not send a second response after this one.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = bytes(error_response(http_error(status)).body)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if linger_s and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._deadline = self.loop.call_later(linger_s, self.transport.close)
        else:
            self.transport.close()
