"""A listening port: accepts connections within the limits, closes idle ones, and closes all of them on `close`.

One periodic check covers all connections; there is no timer per connection or request.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from rookery.base.bounds import PARTIAL_REQUEST_BYTES_MAX
from rookery.base.errors import StartupError
from rookery.base.values import value_class
from rookery.net.connection import Connection, ConnectionLimits, Handler
from rookery.net.guard import Guard
from rookery.net.network import BoundPort, Network, SocketOptions, TcpNetwork
from rookery.net.outbox import Outbox
from rookery.net.receive import SCRATCH_SIZE, PartialFrames
from rookery.quotas.connections import ConnectionRates

UNLIMITED = 2**31 - 1
_CHECK_INTERVAL_MIN = 0.01
_CHECK_INTERVAL_MAX = 10.0
_CHECKS_PER_IDLE_TIME = 4


@value_class(kw_only=True)
class ListenerSettings:
    """The fields are named after the configuration keys and have their defaults."""

    name: str = "PLAINTEXT"
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 50
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # Negative: idle connections are never closed.
    connections_max_idle_ms: int = 600_000
    unfinished_requests_max: int = 8
    # Negative: PARTIAL_REQUEST_BYTES_MAX.
    queued_max_request_bytes: int = -1


class ListenerCounts(NamedTuple):
    """What a listener has done since its start."""

    made: int = 0
    closed: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0


class Listener:
    """`await bind()` binds the port, `await start()` serves; `await close()` returns when all connections are closed.

    Binding and serving are separate because a node must register its port with the cluster before it serves.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handle: Handler,
        *,
        settings: ListenerSettings | None = None,
        network: Network | None = None,
        rates: ConnectionRates | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._handle = handle
        self._settings = settings or ListenerSettings()
        self._network = network or TcpNetwork()
        self._rates = rates or ConnectionRates()
        self._guard = guard
        self._limits = ConnectionLimits(
            request_size_max=self._settings.socket_request_max_bytes,
            unfinished_max=self._settings.unfinished_requests_max,
        )
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._outbox = Outbox()
        queued_max = self._settings.queued_max_request_bytes
        self._partial_frames: PartialFrames[Connection] = PartialFrames(
            queued_max if queued_max > 0 else PARTIAL_REQUEST_BYTES_MAX
        )
        self._bound: BoundPort | None = None
        # In the order of their arrival: the order of a set would depend on addresses in memory.
        self._connections: dict[Connection, None] = {}
        self._per_ip: Counter[str] = Counter()
        # Without the bytes of open connections.
        self._counts = ListenerCounts()
        self._check: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()
        self._closing = False

    @property
    def bound_port(self) -> int:
        """The listening port; if 0 was requested, the one that the system chose."""
        return self._port

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def connections(self) -> Collection[Connection]:
        return self._connections.keys()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def counts(self) -> ListenerCounts:
        made, closed, received, sent = self._counts
        received += sum(connection.bytes_received for connection in self._connections)
        sent += sum(connection.bytes_sent for connection in self._connections)
        return ListenerCounts(made, closed, received, sent)

    def configure(self, settings: ListenerSettings) -> None:
        """Apply other limits to new connections. Open ones stay, even if they exceed the new limits."""
        self._settings = settings

    @property
    def partial_bytes(self) -> int:
        """The bytes of large incomplete requests that all connections hold."""
        return self._partial_frames.size

    async def start(self) -> None:
        """Serve, after binding the port if that was not done before."""
        bound = self._bound or await self.bind()
        await bound.serve(self._connect)
        self._schedule_check(asyncio.get_running_loop())

    async def bind(self) -> BoundPort:
        """Bind the port. Raises StartupError if that fails."""
        settings = self._settings
        options = SocketOptions(
            settings.socket_send_buffer_bytes, settings.socket_receive_buffer_bytes, settings.socket_listen_backlog_size
        )
        try:
            self._bound = await self._network.bind(self._host, self._port, options)
        except OSError as error:
            raise StartupError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; "
                "stop the program that uses the port, or choose another one with --listen or listeners"
            ) from error
        self._port = self._bound.port
        return self._bound

    def _connect(self) -> asyncio.BaseProtocol:
        connection = Connection(
            self._handle,
            limits=self._limits,
            scratch=self._scratch,
            outbox=self._outbox,
            partial_frames=self._partial_frames,
            listener_name=self._settings.name,
            on_made=self._admit,
            on_lost=self._remove,
        )
        if self._guard is None:
            return connection
        return self._guard.protect(connection, self._handle, self._limits.request_size_max)

    def _admit(self, connection: Connection) -> str | None:
        """Register a new connection, or return why it is rejected."""
        host = connection.info.peer_host
        if self._closing:
            return "the listener is closing"
        if len(self._connections) >= self._settings.max_connections:
            return f"max.connections={self._settings.max_connections} are open"
        limit = self._settings.max_connections_per_ip_overrides.get(host, self._settings.max_connections_per_ip)
        if self._per_ip[host] >= limit:
            return f"max.connections.per.ip={limit} are open from this address"
        self._connections[connection] = None
        self._counts = self._counts._replace(made=self._counts.made + 1)
        self._per_ip[host] += 1
        self._delay(connection)
        if self._guard is not None:
            self._guard.admit(connection, asyncio.get_running_loop().time())
        return None

    def _delay(self, connection: Connection) -> None:
        """Let a new connection wait if there are more than may be accepted by now, or close it after a delay."""
        loop = asyncio.get_running_loop()
        delay_s, reason = self._rates.admit(self._settings.name, connection.info.peer_host, loop.time())
        if reason is not None:
            connection.refuse(reason, after_s=delay_s)
        elif delay_s > 0:
            connection.mute(delay_s)

    def _remove(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        made, closed, received, sent = self._counts
        self._counts = ListenerCounts(
            made, closed + 1, received + connection.bytes_received, sent + connection.bytes_sent
        )
        if self._guard is not None:
            self._guard.forget(connection)
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
        if self._guard is not None:
            self._guard.check(loop.time())
        self._schedule_check(loop)

    async def close(self) -> None:
        """Stop accepting, and abort all connections; unwritten replies are dropped."""
        self._closing = True
        if self._check is not None:
            self._check.cancel()
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()
