"""One socket to one broker: requests are sent immediately, responses are matched to them by correlation id.

`Channel.open` first requests the broker's API versions; every later request uses the highest version that both sides
support. A network failure is an `ApiError` with NETWORK_EXCEPTION or REQUEST_TIMED_OUT, so that callers treat it like
any other retriable error code. After its first failure a channel is closed and stays closed.

`channel_writer` owns the outgoing bytes, `channel_reader` the incoming ones.

Time-outs: one timer serves all requests; it is set to the earliest deadline or before it.

Security: a session that is about to end is renewed when the next request is sent (`log_in_again_at`, as Kafka's clients
do). A broker accepts no other request during the login, so requests are held back, and fail with the channel if the
login fails.

    state      ends when                                                      requests
    open       the broker closes, sends an invalid response or answers late   are sent
    failed     never                                                          raise the error that closed the channel
"""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import cache
from math import inf
from typing import NamedTuple, Protocol, cast

from rookery.base.distribution import version
from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import Buffer, NodeId
from rookery.net.address import Address
from rookery.net.channel_reader import ChannelReader
from rookery.net.channel_writer import ChannelWriter
from rookery.net.tls_errors import handshake_error, handshake_interrupted
from rookery.protocol.api import DEFINED, ApiKey, VersionRange, is_flexible
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import has_flexible_response_header
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import ApiVersionsRequest
from rookery.protocol.wire import MALFORMED, malformed, skip_tagged_fields

_REQUEST_START = struct.Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
# How long a broker may take to read the last bytes and to answer the TLS shutdown.
_TLS_SHUTDOWN_TIMEOUT_S = 5.0
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_UNKNOWN_NODE: NodeId = -1
_LOGIN_APIS = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class SocketBuffers(NamedTuple):
    """The minimum sizes of a socket's kernel buffers: `send.buffer.bytes`, `receive.buffer.bytes`.

    -1 leaves a size to the kernel. The kernel may choose larger ones, and adapts their sizes.
    """

    send_bytes: int = -1
    receive_bytes: int = -1


_SYSTEM_BUFFERS = SocketBuffers()


def software() -> ApiVersionsRequest:
    """Return the client's name and version, the body of an ApiVersions request."""
    return ApiVersionsRequest(client_software_name="rookery", client_software_version=_software_version())


@cache
def _software_version() -> str:
    """Return the installed version, cached because the look-up reads files."""
    return version()


class ChannelObserver(Protocol):
    """Counts what channels do. A node that is not known yet has a negative number, as in Kafka."""

    def opened(self, node: NodeId) -> None: ...
    def closed(self, node: NodeId) -> None: ...
    def sent(self, node: NodeId, size_bytes: int) -> None: ...
    def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None: ...


class _Pending(NamedTuple):
    response: asyncio.Future[memoryview]
    has_flexible_header: bool
    sent_s: float
    deadline_s: float


class _Header(NamedTuple):
    """The part of the request header that all requests of one API version share."""

    tail: bytes
    has_flexible_response: bool


class Channel(asyncio.BufferedProtocol):
    """Created by `open`. Safe to use from many tasks of one event loop."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        node: NodeId = _UNKNOWN_NODE,
        observer: ChannelObserver | None = None,
    ) -> None:
        self.address = address
        self.node = node
        self.used_s = 0.0
        self.finalized_features: Mapping[str, int] = {}
        # The lowest and the highest level of each.
        self.supported_features: Mapping[str, tuple[int, int]] = {}
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
        self._outgoing = ChannelWriter(lambda error: self._fail(self._loss(error)))
        self._incoming = ChannelReader(self._pending, self._accept)
        self._has_tls = False
        # The repeated login: when it is due, the coroutine that does it, and the task that is doing it.
        self._login_due_s = inf
        self._log_in: Callable[[Channel], Awaitable[None]] | None = None
        self._login: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        node: NodeId = _UNKNOWN_NODE,
        observer: ChannelObserver | None = None,
        buffers: SocketBuffers = _SYSTEM_BUFFERS,
        tls: ssl.SSLContext | None = None,
    ) -> "Channel":
        """Connect and request the API versions; `timeout_s` bounds connecting, and then each ApiVersions request."""
        connection = cls(address, client_id=client_id, node=node, observer=observer)
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                shutdown_s = None if tls is None else _TLS_SHUTDOWN_TIMEOUT_S
                transport, _ = await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=tls, ssl_shutdown_timeout=shutdown_s
                )
        except TimeoutError:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address} did not answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise handshake_error(address, error) from None
        except OSError as error:
            if isinstance(error, ConnectionError) and not error.errno:
                raise handshake_interrupted(address) from None
            # asyncio's own text for a refused connection hides the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {address}: {reason}") from None
        except (ValueError, OverflowError, RuntimeError) as error:
            # idna cannot encode the name, the port is out of range, or the executor that looks names up has been shut
            # down because the interpreter is exiting.
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {address}: {error}") from None
        try:
            _prepare_socket(transport, buffers)
            await connection._negotiate(timeout_s)
        except BaseException:
            await connection.close(graceful=False)
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def pending_timeout_s(self) -> float:
        """The time until the last deadline of the requests that wait for a response; zero if there is none."""
        deadlines = (pending.deadline_s for pending in self._pending.values())
        return max(max(deadlines, default=-inf) - self._loop.time(), 0)

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its response, or to be sent."""
        return bool(self._pending or self._outgoing.must_wait)

    def version(self, api_key: ApiKey) -> int:
        """Return the highest version of an API that both sides support. Raises UNSUPPORTED_VERSION if there is none."""
        ours, theirs = DEFINED[api_key], self._versions.get(api_key)
        if theirs is None or ours.minimum > theirs.maximum or theirs.minimum > ours.maximum:
            message = f"{self.address} serves no version of {api_key.name} that this client supports"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        return min(ours.maximum, theirs.maximum)

    # Requests

    async def request(
        self, api_key: ApiKey, message: Request[ResponseT], *, timeout_s: float, api_version: int | None = None
    ) -> ResponseT:
        """Send a request and wait for its response."""
        chosen = self.version(api_key) if api_version is None else api_version
        body = await self.submit(api_key, chosen, (encode_request(api_key, chosen, message),), timeout_s=timeout_s)
        if api_key == ApiKey.API_VERSIONS and bytes(body[:2]) == _UNSUPPORTED_VERSION:
            # The broker does not support the requested version and answers in version 0 (KIP-511).
            chosen = 0
        try:
            return cast(ResponseT, decode_response(api_key, chosen, body))
        except ProtocolError as error:
            raise self.reject_response(error) from None

    async def exchange(
        self, api_key: int, api_version: int, parts: Sequence[Buffer], *, timeout_s: float
    ) -> memoryview:
        """Send a request of encoded parts and return the body of the response, which the caller owns and decodes.

        A caller that cannot decode the body passes its error to `reject_response`.
        """
        return await self.submit(api_key, api_version, parts, timeout_s=timeout_s)

    def submit(
        self, api_key: int, api_version: int, parts: Sequence[Buffer], *, timeout_s: float
    ) -> asyncio.Future[memoryview]:
        """Like `exchange`, but return a future. The parts must not change until the response has arrived."""
        now_s = self._loop.time()
        response: asyncio.Future[memoryview] = self._loop.create_future()
        header = self._headers.get((api_key, api_version)) or self._make_header(api_key, api_version)
        deadline_s = now_s + timeout_s
        correlation_id = self._send(api_key, api_version, header, parts, now_s)
        if self._failure is not None:
            # Writing to the socket failed. The request must not enter `_pending`: that has been cleared already, and
            # the caller would wait forever.
            raise self._error()
        self._pending[correlation_id] = _Pending(response, header.has_flexible_response, now_s, deadline_s)
        if deadline_s < self._timer_at_s:
            self._set_timer(deadline_s)
        return response

    async def send(self, api_key: int, api_version: int, parts: Sequence[Buffer]) -> None:
        """Send a request that has no response (Produce with acks=0), and wait until it has been written."""
        header = self._headers.get((api_key, api_version)) or self._make_header(api_key, api_version)
        self._send(api_key, api_version, header, parts, self._loop.time())
        await self._outgoing.drain()
        if self._failure is not None:
            raise self._error()

    def log_in_again_at(self, due_s: float, log_in: Callable[["Channel"], Awaitable[None]]) -> None:
        """Call `log_in` at the first request from `due_s` on, which waits for it. The session ends soon after `due_s`.

        `due_s` is the event loop's time.
        """
        self._login_due_s, self._log_in = due_s, log_in

    def reject_response(self, error: ProtocolError) -> ApiError:
        """Close the channel because a response cannot be decoded, and return the error to raise.

        Later responses cannot be trusted either: the two sides may disagree where a response begins.
        """
        self._fail(self._invalid_response(error))
        return self._error()

    def drop(self, reason: str) -> None:
        """Close gracefully, without waiting until the socket is closed."""
        self._close(f": {reason}", graceful=True)

    async def close(self, *, graceful: bool = True) -> None:
        """Close the socket and wait until it is closed.

        `graceful=False`: close immediately, without the TLS shutdown and without draining the send buffer.
        """
        self._close("", graceful=graceful)
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
            raise ApiError(ErrorCode(response.error_code), f"{self.address} did not return its API versions")
        self._versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in response.api_keys}
        levels = response.get("finalized_features") or ()
        self.finalized_features = {row.name: row.max_version_level for row in levels}
        supported = response.get("supported_features") or ()
        self.supported_features = {row.name: (row.min_version, row.max_version) for row in supported}

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
            self._start_renewal()
        self._outgoing.send(frame, size + _SIZE_BYTES, may_be_held=api_key not in _LOGIN_APIS)
        return correlation_id

    def _start_renewal(self) -> None:
        """Until the login is complete, send only its own requests, after those that were submitted before it.

        A broker accepts no other request during a login.
        """
        self._login_due_s = inf
        self._outgoing.hold()
        self._login = self._loop.create_task(self._renew_session())

    async def _renew_session(self) -> None:
        assert self._log_in is not None
        try:
            await self._log_in(self)
        except ApiError as error:
            failure = error
        except Exception as error:
            failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"logging in again at {self.address}: {error!r}")
        else:
            self._login = None
            self._outgoing.release()
            return
        self._login = None
        self._fail(failure)

    def pause_writing(self) -> None:
        self._outgoing.pause()

    def resume_writing(self) -> None:
        self._outgoing.resume()

    # Receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._has_tls = transport.get_extra_info("sslcontext") is not None
        self._outgoing.start(cast(asyncio.Transport, transport))
        if self._observer is not None:
            self._observer.opened(self.node)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._incoming.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        try:
            self._incoming.buffer_updated(nbytes)
        except ProtocolError as error:
            self._fail(self._invalid_response(error))

    def _accept(self, correlation_id: int, frame: memoryview) -> None:
        pending = self._pending[correlation_id]
        position = _body_position(frame) if pending.has_flexible_header else _CORRELATION_BYTES
        # Not earlier: a malformed header fails the channel, which fails every request in `_pending`. A request that had
        # been removed before would never be answered.
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
        # A broker answers in order, so the responses to later requests cannot arrive before the missing one.
        timeout_s = first.deadline_s - first.sent_s
        self._fail(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from {self.address} within {timeout_s:g} s"))

    def _close(self, why: str, *, graceful: bool) -> None:
        text = f"the connection to {self.address} was closed{why}"
        self._fail(ApiError(ErrorCode.NETWORK_EXCEPTION, text), graceful=graceful)

    def _fail(self, failure: ApiError, *, graceful: bool = False) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._timer is not None:
            self._timer.cancel()
        if self._login is not None:
            self._login.cancel()
        self._outgoing.close(graceful=graceful)
        for pending in self._pending.values():
            if not pending.response.done():
                pending.response.set_exception(self._error())
                # Mark the exception as retrieved: asyncio would warn if no caller awaits the future any more.
                pending.response.exception()
        self._pending.clear()

    def _error(self) -> ApiError:
        """Return a copy per waiter: re-raising one exception would accumulate tracebacks."""
        assert self._failure is not None
        return copy(self._failure)

    def _loss(self, error: Exception | None) -> ApiError:
        if self._has_tls and not self._versions:
            # In TLS 1.3 a client's handshake is complete before the broker has checked the client's certificate, so
            # that a rejection arrives here instead of in `open`.
            if isinstance(error, ssl.SSLError):
                return handshake_error(self.address, error)
            return handshake_interrupted(self.address)
        reason = "the broker hung up" if error is None else str(error)
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"lost the connection to {self.address}: {reason}")

    def _invalid_response(self, error: ProtocolError) -> ApiError:
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self.address} does not speak Kafka's protocol: {error}")


def _prepare_socket(transport: asyncio.BaseTransport, buffers: SocketBuffers) -> None:
    plain = transport.get_extra_info("socket")
    if plain is None:
        return
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Setting a size stops the kernel from adapting it, so a size is only set if it is larger than the current one.
    for option, size in ((socket.SO_SNDBUF, buffers.send_bytes), (socket.SO_RCVBUF, buffers.receive_bytes)):
        if size > plain.getsockopt(socket.SOL_SOCKET, option):
            plain.setsockopt(socket.SOL_SOCKET, option, size)


def _body_position(frame: memoryview) -> int:
    """Return where the body begins, after a header with tagged fields. Brokers hardly ever send any."""
    if len(frame) > _CORRELATION_BYTES and frame[_CORRELATION_BYTES] == 0:
        return _CORRELATION_BYTES + 1
    try:
        return skip_tagged_fields(frame, _CORRELATION_BYTES)
    except MALFORMED as error:
        raise malformed("a header", error) from error
