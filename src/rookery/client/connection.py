"""One socket to one broker: requests go out at once, responses find their request by correlation id.

`Connection.open` asks the broker for its API versions first; every request then uses the highest version that both
sides know. Whatever goes wrong with the network is an `ApiError` with NETWORK_EXCEPTION or REQUEST_TIMED_OUT, so that
callers treat it like any other retriable answer. After the first failure a connection is closed and stays closed.

Theory of operation. Sending: a request's parts go to the kernel by one `writev`, joined by nobody. What the kernel
does not take waits in front of `_queue`, but for a piece that is given to the transport. The transport's limits are
zero: it says `pause_writing` as long as it holds a single byte, and `resume_writing` when the kernel has taken it; then
we go on. Requests made meanwhile wait behind, so the order of the calls is the order on the wire. Where there is no
plain socket (a simulated network) the transport gets everything.

Receiving: small responses arrive in a buffer that is used again and again, and leave it as bytes of their own. A
response that has not arrived in full gets a buffer of its own (`frame_buffers`), into which the kernel then writes the
rest. So a view of a response stays valid as long as somebody holds it. Nothing is allocated for a response that nobody
asked for.

Time-outs: one timer for all requests, at or before the earliest deadline.

Security: with TLS it is asyncio that has the socket, and the transport gets everything. A session that ends is renewed
when there is something to send (`log_in_again_at`, as Kafka's clients do): a broker takes nothing else meanwhile, so
that requests are held back, and fail with the connection if the login does.

    state      leaves when                                        requests
    open       the peer hangs up, talks nonsense or answers late   are sent
    failed     never                                              raise the error that ended it
"""

import asyncio
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import cache
from importlib.metadata import version as package_version
from math import inf
from typing import NamedTuple, Protocol, cast

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import Buffer, NodeId
from rookery.client.address import Address
from rookery.client.frame_buffers import FrameBuffers
from rookery.client.handshakes import no_handshake, untrusted
from rookery.protocol.api import DEFINED, ApiKey, VersionRange, is_flexible
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import has_flexible_response_header
from rookery.protocol.message import Message
from rookery.protocol.wire import MALFORMED, malformed, skip_tagged_fields

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
# More than any sane response; a stray HTTP server's first bytes read as a size of about 1.2 GB.
_RESPONSE_SIZE_BYTES_MAX = 512 * 1024 * 1024
_STAGING_BYTES = 16_384
# How long a broker may take to read the last bytes and say goodbye in TLS.
_GOODBYE_S = 5.0
# What the transport holds while the kernel takes no more.
_PIECE_BYTES = 65_536
# The kernel takes at most 1024 parts in one call.
_PARTS_MAX = 1000
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_UNKNOWN_NODE: NodeId = -1
_LOGIN_APIS = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
SYSTEM_DEFAULT_BYTES = -1


def software() -> Message:
    """What we say of ourselves in ApiVersions."""
    return Message(client_software_name="rookery", client_software_version=_software_version())


@cache
def _software_version() -> str:
    """Read once: it is looked up in files."""
    return package_version("rookery")


class ConnectionObserver(Protocol):
    """Who counts what connections do. Nodes that are not known yet have negative numbers, as in Kafka."""

    def opened(self, node: NodeId) -> None: ...
    def closed(self, node: NodeId) -> None: ...
    def sent(self, node: NodeId, size_bytes: int) -> None: ...
    def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None: ...


class SocketBuffers(NamedTuple):
    """The least that the system's buffers should have; the system may give more, and adapts what it gives."""

    send_bytes: int = SYSTEM_DEFAULT_BYTES
    receive_bytes: int = SYSTEM_DEFAULT_BYTES


_SYSTEM_BUFFERS = SocketBuffers()


class _Pending(NamedTuple):
    response: asyncio.Future[memoryview]
    has_flexible_header: bool
    sent_s: float
    deadline_s: float


class _Header(NamedTuple):
    """What all requests of one API's version have in common."""

    tail: bytes
    has_flexible_response: bool


class Connection(asyncio.BufferedProtocol):
    """Built by `open`. Safe to use from many tasks of one event loop."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        node: NodeId = _UNKNOWN_NODE,
        observer: ConnectionObserver | None = None,
    ) -> None:
        self.address = address
        self.node = node
        self.used_s = 0.0
        self.finalized_features: Mapping[str, int] = {}
        self._client_id = client_id.encode()
        self._observer = observer
        self._versions: Mapping[int, VersionRange] = {}
        self._headers: dict[tuple[int, int], _Header] = {}
        self._pending: dict[int, _Pending] = {}
        self._next_correlation_id = 0
        self._failure: ApiError | None = None
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = inf
        # Sending
        self._transport: asyncio.Transport
        self._descriptor: int | None = None
        self._has_tls = False
        self._paused = False
        self._queue: deque[tuple[list[Buffer], int]] = deque()
        # Logging in again: when, how, who does it now, and which requests wait for it.
        self._login_due_s = inf
        self._log_in: Callable[[Connection], Awaitable[None]] | None = None
        self._login: asyncio.Task[None] | None = None
        self._held: list[tuple[list[Buffer], int]] | None = None
        self._drained: asyncio.Future[None] | None = None
        # Receiving: either the staging buffer, or the frame that is being filled.
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._frame: memoryview | None = None
        self._frames = FrameBuffers()
        self._filled = 0

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        node: NodeId = _UNKNOWN_NODE,
        observer: ConnectionObserver | None = None,
        buffers: SocketBuffers = _SYSTEM_BUFFERS,
        tls: ssl.SSLContext | None = None,
    ) -> "Connection":
        """`timeout_s` bounds the connecting, and the asking for versions again."""
        connection = cls(address, client_id=client_id, node=node, observer=observer)
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                patience_s = None if tls is None else _GOODBYE_S
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=tls, ssl_shutdown_timeout=patience_s
                )
        except TimeoutError:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address} did not answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise untrusted(address, error) from None
        except OSError as error:
            if isinstance(error, ConnectionError) and not error.errno:
                raise no_handshake(address) from None
            # asyncio's own text for a refused connection hides the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {address}: {reason}") from None
        except (ValueError, OverflowError, RuntimeError) as error:
            # No name that idna knows, no port, or no thread any more to look it up: the interpreter is ending.
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {address}: {error}") from None
        try:
            connection._set_buffers(buffers)
            await connection._negotiate(timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def patience_s(self) -> float:
        """How long what was sent may still take to be answered."""
        deadlines = (pending.deadline_s for pending in self._pending.values())
        return max(max(deadlines, default=-inf) - self._loop.time(), 0)

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its response, or for its turn to be sent."""
        return bool(self._pending or self._must_wait)

    def version(self, api_key: ApiKey) -> int:
        """The highest version of an API that the broker and we both know."""
        ours, theirs = DEFINED[api_key], self._versions.get(api_key)
        if theirs is None or ours.minimum > theirs.maximum or theirs.minimum > ours.maximum:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} serves no version of {api_key.name} we know")
        return min(ours.maximum, theirs.maximum)

    # Requests

    async def request(
        self, api_key: ApiKey, message: Message, *, timeout_s: float, api_version: int | None = None
    ) -> Message:
        """Send a request and wait for its response."""
        chosen = self.version(api_key) if api_version is None else api_version
        body = await self.submit(api_key, chosen, (encode_request(api_key, chosen, message),), timeout_s=timeout_s)
        if api_key == ApiKey.API_VERSIONS and bytes(body[:2]) == _UNSUPPORTED_VERSION:
            # The broker does not know our version and answers in the oldest one (KIP-511).
            chosen = 0
        try:
            return decode_response(api_key, chosen, body)
        except ProtocolError as error:
            raise self.refuse(error) from None

    async def exchange(
        self, api_key: int, api_version: int, parts: Sequence[Buffer], *, timeout_s: float
    ) -> memoryview:
        """Send a request of encoded parts; the response's body, which is the caller's to keep and to decode.

        A body that cannot be decoded: see `refuse`.
        """
        return await self.submit(api_key, api_version, parts, timeout_s=timeout_s)

    def submit(
        self, api_key: int, api_version: int, parts: Sequence[Buffer], *, timeout_s: float
    ) -> asyncio.Future[memoryview]:
        """As `exchange`, for those who wait otherwise. The parts must not change until the response is there."""
        now_s = self._loop.time()
        response: asyncio.Future[memoryview] = self._loop.create_future()
        header = self._headers.get((api_key, api_version)) or self._make_header(api_key, api_version)
        deadline_s = now_s + timeout_s
        correlation_id = self._send(api_key, api_version, header, parts, now_s)
        if self._failure is not None:
            # The socket said so just now.
            raise self._error()
        self._pending[correlation_id] = _Pending(response, header.has_flexible_response, now_s, deadline_s)
        if deadline_s < self._timer_at_s:
            self._set_timer(deadline_s)
        return response

    async def send(self, api_key: int, api_version: int, parts: Sequence[Buffer]) -> None:
        """Send a request that has no response (Produce with acks=0), when what went before it has left."""
        header = self._headers.get((api_key, api_version)) or self._make_header(api_key, api_version)
        self._send(api_key, api_version, header, parts, self._loop.time())
        while self._must_wait and self._failure is None:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self._failure is not None:
            raise self._error()

    def log_in_again_at(self, due_s: float, log_in: Callable[["Connection"], Awaitable[None]]) -> None:
        """The session ends soon after `due_s`: whoever wants to send something then waits until `log_in` is done."""
        self._login_due_s, self._log_in = due_s, log_in

    def refuse(self, error: ProtocolError) -> ApiError:
        """A response cannot be decoded: later ones are as doubtful. The error to raise."""
        self._fail(self._nonsense(error))
        return self._error()

    def drop(self, reason: str) -> None:
        """Close without waiting for the end."""
        self._fail(ApiError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.address} was closed: {reason}"))

    async def close(self) -> None:
        self._fail(ApiError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.address} was closed"))
        await asyncio.shield(self._lost)

    async def _negotiate(self, timeout_s: float) -> None:
        message = software()
        newest = DEFINED[ApiKey.API_VERSIONS].maximum
        response = await self.request(ApiKey.API_VERSIONS, message, timeout_s=timeout_s, api_version=newest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {row.api_key: row.max_version for row in response.api_keys}
            older = min(newest, offered.get(ApiKey.API_VERSIONS, 0))
            response = await self.request(ApiKey.API_VERSIONS, message, timeout_s=timeout_s, api_version=older)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), f"{self.address} refused to tell its API versions")
        self._versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in response.api_keys}
        levels = response.get("finalized_features") or ()
        self.finalized_features = {row.name: row.max_version_level for row in levels}

    # Sending

    def _make_header(self, api_key: int, api_version: int) -> _Header:
        tail = self._client_id + (b"\x00" if is_flexible(api_key, api_version) else b"")
        header = _Header(tail, has_flexible_response_header(api_key, api_version))
        self._headers[api_key, api_version] = header
        return header

    def _send(self, api_key: int, api_version: int, header: _Header, parts: Sequence[Buffer], now_s: float) -> int:
        if self._failure is not None:
            raise self._error()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        size = _REQUEST_START.size - _SIZE_BYTES + len(header.tail)
        for part in parts:
            size += len(part)
        start = _REQUEST_START.pack(size, api_key, api_version, correlation_id, len(self._client_id))
        frame: list[Buffer] = [start + header.tail, *parts]
        self.used_s = now_s
        if self._observer is not None:
            self._observer.sent(self.node, size + _SIZE_BYTES)
        if now_s >= self._login_due_s:
            self._hold()
        if self._held is not None and api_key not in _LOGIN_APIS:
            self._held.append((frame, size + _SIZE_BYTES))
        elif self._paused:
            self._queue.append((frame, size + _SIZE_BYTES))
        else:
            self._write(frame, size + _SIZE_BYTES)
            if self._queue:
                self._flush()
        return correlation_id

    def _hold(self) -> None:
        """Until the login is done only its requests leave, behind those that were made before."""
        self._login_due_s, self._held = inf, []
        self._login = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        assert self._log_in is not None
        try:
            await self._log_in(self)
        except ApiError as error:
            failure = error
        except Exception as error:
            failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"logging in again at {self.address}: {error!r}")
        else:
            self._queue.extend(self._held or ())
            self._login = self._held = None
            self._go_on()
            return
        self._login = None
        self._fail(failure)

    def _flush(self) -> None:
        while self._queue and not self._paused and self._failure is None:
            self._write(*self._queue.popleft())

    def _write(self, frame: list[Buffer], size: int) -> None:
        """Only while the transport is empty. What does not leave goes back to the front of the queue."""
        if self._descriptor is None:
            self._transport.writelines(frame)
            return
        try:
            sent = os.writev(self._descriptor, frame if len(frame) <= _PARTS_MAX else frame[:_PARTS_MAX])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._fail(self._loss(error))
            return
        if sent < size:
            rest = _after(frame, sent)
            piece = memoryview(rest[0])[:_PIECE_BYTES]
            if sent + len(piece) < size:
                self._queue.appendleft((_after(rest, len(piece)), size - sent - len(piece)))
            self._transport.write(piece)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    @property
    def _must_wait(self) -> bool:
        return self._paused or self._held is not None

    def _go_on(self) -> None:
        self._flush()
        if not self._must_wait:
            self._wake_senders()

    def _wake_senders(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _set_buffers(self, buffers: SocketBuffers) -> None:
        plain = self._transport.get_extra_info("socket")
        if plain is None:
            return
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A size that is set stops the kernel from adapting it, so it must not be less than what is there already.
        for option, size in ((socket.SO_SNDBUF, buffers.send_bytes), (socket.SO_RCVBUF, buffers.receive_bytes)):
            if size > plain.getsockopt(socket.SOL_SOCKET, option):
                plain.setsockopt(socket.SOL_SOCKET, option, size)

    # Receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        self._has_tls = transport.get_extra_info("sslcontext") is not None
        # To say so at the first byte: with TLS that is where the limit is reached, without where it is exceeded.
        self._transport.set_write_buffer_limits(high=1 if self._has_tls else 0)
        if plain is not None and not self._has_tls:
            self._descriptor = plain.fileno()
        if self._observer is not None:
            self._observer.opened(self.node)

    def get_buffer(self, sizehint: int) -> memoryview:
        return (self._staging if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        self._filled += nbytes
        try:
            if self._frame is None:
                self._take_staged()
            elif self._filled == len(self._frame):
                frame, self._frame, self._filled = self._frame, None, 0
                self._accept(frame)
        except ProtocolError as error:
            self._fail(self._nonsense(error))

    def _take_staged(self) -> None:
        """Take the responses that are whole, and make room for one that is not. Fewer than eight bytes stay."""
        staging, position, end = self._staging, 0, self._filled
        while end - position >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(staging, position)
            if not _CORRELATION_BYTES <= size <= _RESPONSE_SIZE_BYTES_MAX:
                raise ProtocolError(f"a response of {size} bytes")
            start = position + _SIZE_BYTES
            if start + size <= end:
                position = start + size
                self._accept(memoryview(staging[start:position].tobytes()))
            elif end - start < _CORRELATION_BYTES:
                break
            else:
                self._start_frame(size, staging[start:end])
                return
        self._filled = end - position
        if position and self._filled:
            staging[: self._filled] = staging[position:end]

    def _start_frame(self, size: int, received: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(received)
        if correlation_id not in self._pending:
            raise _not_asked(correlation_id)
        self._frame = self._frames.take(size)
        self._filled = len(received)
        self._frame[: self._filled] = received

    def _accept(self, frame: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        pending = self._pending.get(correlation_id)
        if pending is None:
            raise _not_asked(correlation_id)
        position = _body_position(frame) if pending.has_flexible_header else _CORRELATION_BYTES
        # Only now: what cannot be read fails the connection and with it everyone in `_pending`.
        del self._pending[correlation_id]
        now_s = self._loop.time()
        self.used_s = now_s
        if self._observer is not None:
            self._observer.received(self.node, len(frame) + _SIZE_BYTES, now_s - pending.sent_s)
        if not pending.response.done():
            pending.response.set_result(frame[position:])

    def eof_received(self) -> bool:
        self._fail(self._loss(None))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._loss(exc))
        self._descriptor = None
        if not self._lost.done():
            self._lost.set_result(None)
        if self._observer is not None:
            self._observer.closed(self.node)

    # Failing

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_s, self._check_deadlines)
        self._timer_at_s = deadline_s

    def _check_deadlines(self) -> None:
        self._timer, self._timer_at_s = None, inf
        if not self._pending:
            return
        first = min(self._pending.values(), key=lambda pending: pending.deadline_s)
        if first.deadline_s > self._loop.time():
            self._set_timer(first.deadline_s)
            return
        # Later answers on this socket are as doubtful as the missing one.
        patience_s = first.deadline_s - first.sent_s
        self._fail(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from {self.address} within {patience_s:g} s"))

    def _fail(self, failure: ApiError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._timer is not None:
            self._timer.cancel()
        if self._login is not None:
            self._login.cancel()
        self._held = None
        self._queue.clear()
        self._wake_senders()
        if self._paused:
            # The peer does not read: what waits for it would keep the socket open.
            self._transport.abort()
        else:
            self._transport.close()
        for pending in self._pending.values():
            if not pending.response.done():
                pending.response.set_exception(self._error())
                # Who gave up waiting is not worth a warning about an exception that nobody looked at.
                pending.response.exception()
        self._pending.clear()

    def _error(self) -> ApiError:
        """As many as there are who wait: an exception that is raised twice would collect their traces."""
        assert self._failure is not None
        return copy(self._failure)

    def _loss(self, error: Exception | None) -> ApiError:
        if self._has_tls and not self._versions:
            # In TLS 1.3 a broker says what it thinks of us when we are through with the handshake.
            return untrusted(self.address, error) if isinstance(error, ssl.SSLError) else no_handshake(self.address)
        reason = "the broker hung up" if error is None else str(error)
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"lost the connection to {self.address}: {reason}")

    def _nonsense(self, error: ProtocolError) -> ApiError:
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self.address} does not speak Kafka's protocol: {error}")


def _after(frame: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of a frame's parts after the first `sent` bytes."""
    for index, part in enumerate(frame):
        if sent < len(part):
            return [memoryview(part)[sent:], *frame[index + 1 :]]
        sent -= len(part)
    return []


def _body_position(frame: memoryview) -> int:
    """Behind a header with tagged fields, which hardly any broker sends."""
    if len(frame) > _CORRELATION_BYTES and frame[_CORRELATION_BYTES] == 0:
        return _CORRELATION_BYTES + 1
    try:
        return skip_tagged_fields(frame, _CORRELATION_BYTES)
    except MALFORMED as error:
        raise malformed("a header", error) from error


def _not_asked(correlation_id: int) -> ProtocolError:
    return ProtocolError(f"an answer to request {correlation_id}, which was not asked")
