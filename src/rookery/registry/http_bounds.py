"""What clients may cost the registry's listeners before a request is looked at: sizes, counts and times, each bounded.

uvicorn and its parser bound none of them: they keep a header of any length, parse all requests of a block however many
there are, and wait for ever for a head. `BoundedProtocol` stands between the transport and the parser. It parses in
small pieces, and stops while a request waits behind another one, so that what was received stays bytes; it counts what
all connections have sent and not been answered; and it keeps a clock on everything that a client owes.

A request that is beyond a bound is answered in its turn, and the connection is closed. Nothing here looks at
credentials: every client that reaches the port is bounded.
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
from rookery.registry.rest.answers import failure_answer
from rookery.registry.rest.failures import http_failure

# The objects of a request whose head has been parsed, but for the head's own bytes.
_REQUEST_BYTES: Final = 4096
_BAD_REQUEST, _TOO_LATE, _URL_TOO_LONG, _HEAD_TOO_LARGE, _BUSY = 400, 408, 414, 431, 503


@value_class(kw_only=True)
class HttpBounds:
    """The table of bounds, each with what is answered beyond it. (Bodies have a setting: 413.)"""

    # 414. Room for the longest name of a topic as a subject, percent-encoded. Jetty takes 8 KiB with all headers.
    url_bytes_max: int = 16 * 1024
    # 431. URL and headers together, and trailers. Tokens and tickets take some 16 KiB.
    head_bytes_max: int = 32 * 1024
    # 431. Clients send about ten.
    headers_max: int = 100
    # No refusal: how much is parsed at once. A piece holds at most some 57 requests of the shortest kind.
    piece_bytes: int = 1024
    # 503, over all connections: heads, bodies and unparsed bytes of requests that are not answered. Parsing a body
    # takes some four times its bytes.
    unanswered_bytes_max: int = 64 * 1024 * 1024
    # 503. A connection takes some 10 KB when it is idle.
    connections_max: int = 1000
    # 408. From the connection, or the first byte of a request, to the end of its head.
    head_s: float = 20
    # 408. From the head to the end of the body: 2 MiB at 35 KB/s.
    body_s: float = 60
    # The connection is aborted. An answer that the client does not read stays in memory.
    unread_s: float = 60
    # How long a refused client may go on sending: a connection that is closed at once loses the answer.
    linger_s: float = 2


DEFAULT_BOUNDS: Final = HttpBounds()


class Usage:
    """What all connections of a registry take up, over all of its listeners."""

    def __init__(self) -> None:
        self.connections = 0
        self.unanswered_bytes = 0


class BoundedConfig(uvicorn.Config):
    """A listener's. `usage` is shared by all of them."""

    def __init__(self, app: Any, *, bounds: HttpBounds, usage: Usage, **options: Any) -> None:
        super().__init__(app, http=BoundedProtocol, **options)
        self.bounds = bounds
        self.usage = usage


class _RefusedError(Exception):
    """Raised in a callback of the parser, which stops there."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Flow(FlowControl):
    """Reads nothing more while something that was read is not parsed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

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
        # What was received and is not parsed: everything from the position on.
        self._received = b""
        self._position = 0
        # Of each request that is not answered, in order; the last one may still be on its way.
        self._sizes: deque[int] = deque()
        self._is_receiving = False
        self._has_head = False
        # Parsed since the request began or its body went on: a head, trailers, or what stands around chunks.
        self._head_bytes = 0
        # The status that is the last answer of this connection, and whether it has been sent.
        self._refusal: int | None = None
        self._is_over = False
        self._deadline: TimerHandle | None = None
        self._deadline_s = 0.0
        self._unread: TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._usage.connections += 1
        if self._usage.connections > self._bounds.connections_max:
            self._send_refusal(_BUSY, linger_s=0)
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._usage.connections -= 1
        self._usage.unanswered_bytes -= sum(self._sizes) + len(self._received) - self._position
        self._sizes.clear()
        self._received, self._position = b"", 0
        self._stop_deadline()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._refusal is not None or self.transport.is_closing():
            return
        self._received = self._received[self._position :] + data if self._has_waiting else data
        self._position = 0
        self._usage.unanswered_bytes += len(data)
        if self._usage.unanswered_bytes > self._bounds.unanswered_bytes_max:
            self._refuse(_BUSY)
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
        """Go on until a request waits behind another one: its objects take many times its bytes, so the rest stays
        bytes until it has its turn."""
        while self._has_waiting and not self.pipeline and self._refusal is None:
            end = min(self._position + self._bounds.piece_bytes, len(self._received))
            self._feed(memoryview(self._received)[self._position : end])
        self.flow.is_held = self._has_waiting
        if self.flow.is_held:
            self.flow.pause_reading()
        self._set_deadline()

    def _feed(self, piece: memoryview) -> None:
        taken = len(piece)
        self._head_bytes += taken
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            # Nothing is upgraded here: what follows is the next request.
            taken = upgrade.args[0]
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._refuse(reason.status if isinstance(reason, _RefusedError) else _BAD_REQUEST)
            return
        self._position += taken
        if self._sizes:
            self._sizes[-1] += taken
        else:
            self._usage.unanswered_bytes -= taken
        if self._is_receiving and self._head_bytes > self._bounds.head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)

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
            raise _RefusedError(_URL_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            # A trailer. No endpoint has a use for one, and the request's headers have been looked at.
            return
        if len(self.headers) == self._bounds.headers_max:
            raise _RefusedError(_HEAD_TOO_LARGE)
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
        if self._refusal is not None:
            self._send_refusal_in_turn()
            return
        if self._has_waiting:
            self._unset_keepalive_if_required()
        self._parse()
        self.flow.resume_reading()

    # What a client owes

    def _set_deadline(self) -> None:
        """For what the client has to send next; none while it is the registry's turn."""
        seconds = self._find_deadline_s()
        if seconds != self._deadline_s:
            self._stop_deadline()
        if seconds and self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._expire)
            self._deadline_s = seconds

    def _find_deadline_s(self) -> float:
        if self._is_over or self._refusal is not None or self.flow.is_held:
            return 0
        if self._is_receiving:
            return self._bounds.body_s if self._has_head else self._bounds.head_s
        # Between two requests uvicorn has a timer, which any byte stops: also one that begins no request.
        is_idle = not self._sizes and self.timeout_keep_alive_task is None
        return self._bounds.head_s if is_idle else 0

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._deadline_s = None, 0.0

    def _expire(self) -> None:
        self._stop_deadline()
        self._refuse(_TOO_LATE)

    # Refusals

    def _refuse(self, status: int) -> None:
        """The last answer of this connection, after those to earlier requests."""
        self._refusal = status
        self._usage.unanswered_bytes -= len(self._received) - self._position
        self._received, self._position = b"", 0
        self._set_deadline()
        self._send_refusal_in_turn()

    def _send_refusal_in_turn(self) -> None:
        earlier = len(self._sizes) - self._is_receiving
        if earlier > 0:
            self.flow.pause_reading()
            return
        assert self._refusal is not None
        if self._is_receiving and not self._sizes:
            # It has been answered before all of it was there.
            self.transport.close()
        elif self._is_receiving and self._has_head and self.cycle.response_started:
            self.transport.close()
        else:
            self._send_refusal(self._refusal, linger_s=self._bounds.linger_s)

    def _send_refusal(self, status: int, *, linger_s: float) -> None:
        self._refusal, self._is_over = status, True
        if self.cycle is not None and not self.cycle.response_complete:
            # Its app must not answer behind this.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = bytes(failure_answer(http_failure(status)).body)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if linger_s and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._deadline = self.loop.call_later(linger_s, self.transport.close)
        else:
            self.transport.close()
