"""A listening port: accepts connections within the limits, reaps idle ones, ends them all on close.

One periodic check looks at all connections; there is no timer per connection or request.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rookery.base.errors import StartupError
from rookery.net.connection import Connection, ConnectionLimits, Handler
from rookery.net.receive import SCRATCH_SIZE

UNLIMITED = 2**31 - 1
# Kafka's value for "leave the operating system's buffer size alone".
SYSTEM_DEFAULT = -1
_CHECK_INTERVAL_MIN = 0.01
_CHECK_INTERVAL_MAX = 10.0
_CHECKS_PER_IDLE_TIME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Named after the configuration keys, with their defaults."""

    name: str = "PLAINTEXT"
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = 50
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # Negative: connections are never closed for being idle.
    connections_max_idle_ms: int = 600_000
    unfinished_requests_max: int = 8


class Listener:
    """`await bind()` takes the port, `await start()` serves; `await close()` returns when the last connection is gone.

    The two are apart because a node learns its port before it can tell the cluster, and must not serve before it has.
    """

    def __init__(self, host: str, port: int, handle: Handler, *, settings: ListenerSettings | None = None) -> None:
        self._host = host
        self._port = port
        self._handle = handle
        self._settings = settings or ListenerSettings()
        self._limits = ConnectionLimits(
            request_size_max=self._settings.socket_request_max_bytes,
            unfinished_max=self._settings.unfinished_requests_max,
        )
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._check: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()
        self._closing = False

    @property
    def bound_port(self) -> int:
        """The port that is listened on; the system's choice if 0 was asked for."""
        return self._port

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Serve; binds first if that was not done."""
        if not self._sockets:
            await self.bind()
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            backlog = self._settings.socket_listen_backlog_size
            self._servers.append(await loop.create_server(self._connect, sock=listening, backlog=backlog))
        self._schedule_check(loop)

    async def bind(self) -> None:
        """Take the port; StartupError if that cannot be done."""
        loop, sockets = asyncio.get_running_loop(), self._sockets
        try:
            found = await loop.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in dict.fromkeys(found):
                listening = self._make_socket(family)
                sockets.append(listening)
                # A second address of the same host gets the port that the system chose for the first.
                listening.bind((address[0], self._port, *address[2:]))
                self._port = listening.getsockname()[1]
        except OSError as error:
            self._close_sockets()
            raise StartupError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; "
                "stop what uses the port, or set another one in listeners"
            ) from error

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _make_socket(self, family: int) -> socket.socket:
        """Accepted sockets inherit these options; buffer sizes must be known before the window is negotiated."""
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option, size in (
            (socket.SO_SNDBUF, self._settings.socket_send_buffer_bytes),
            (socket.SO_RCVBUF, self._settings.socket_receive_buffer_bytes),
        ):
            if size != SYSTEM_DEFAULT:
                listening.setsockopt(socket.SOL_SOCKET, option, size)
        return listening

    def _connect(self) -> Connection:
        return Connection(
            self._handle,
            limits=self._limits,
            scratch=self._scratch,
            listener_name=self._settings.name,
            on_made=self._admit,
            on_lost=self._forget,
        )

    def _admit(self, connection: Connection) -> str | None:
        """Why a new connection is refused, if it is."""
        host = connection.info.peer_host
        if self._closing:
            return "the listener is closing"
        if len(self._connections) >= self._settings.max_connections:
            return f"max.connections={self._settings.max_connections} are open"
        limit = self._settings.max_connections_per_ip_overrides.get(host, self._settings.max_connections_per_ip)
        if self._per_ip[host] >= limit:
            return f"max.connections.per.ip={limit} are open from this address"
        self._connections.add(connection)
        self._per_ip[host] += 1
        return None

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        host = connection.info.peer_host
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        if not self._connections:
            self._all_gone.set()

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        interval = _CHECK_INTERVAL_MAX
        if self._settings.connections_max_idle_ms >= 0:
            wanted = self._settings.connections_max_idle_ms / 1000 / _CHECKS_PER_IDLE_TIME
            interval = min(interval, max(wanted, _CHECK_INTERVAL_MIN))
        self._check = loop.call_later(interval, self._check_connections, loop)

    def _check_connections(self, loop: asyncio.AbstractEventLoop) -> None:
        idle_max = self._settings.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            connection.check_idle(loop.time(), idle_max if idle_max >= 0 else None)
        self._schedule_check(loop)

    async def close(self) -> None:
        """Stop accepting and end all connections; replies that are not yet written are dropped."""
        self._closing = True
        if self._check is not None:
            self._check.cancel()
        for server in self._servers:
            server.close()
        self._close_sockets()
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()
        self._servers.clear()
