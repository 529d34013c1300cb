"""The open connections of a client: one per broker and lane, opened on demand.

Requests of one lane share a connection, on which a long poll delays the requests after it. Concurrent calls for the
same connection share one attempt, and get the same connection or the same error. An address that could not be reached
is tried again only after `reconnect.backoff.ms`, which doubles. A connection that was idle for
`connections.max.idle.ms` is closed. A closed pool stays closed: `connect` raises `ClientStateError`, also in the calls
that were waiting. `cluster` is the only caller.
"""

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from rookery.base.errors import ApiError
from rookery.base.types import NodeId
from rookery.client.backoff import Backoff
from rookery.client.errors import ClientStateError
from rookery.client.settings.common import CommonSettings
from rookery.net.address import Address
from rookery.net.channel import Channel, ChannelObserver, SocketBuffers
from rookery.security.settings import SaslSettings, TlsSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    from rookery.net.authentication import Authenticator


class _Key(NamedTuple):
    address: Address
    lane: str


class _Unreachable(NamedTuple):
    """The failures of an address since its last successful connection."""

    failure_count: int
    not_before_s: float


_IDLE_CHECK_S_MIN = 0.01
_NEVER_FAILED = _Unreachable(0, 0.0)


def closed_error() -> ClientStateError:
    return ClientStateError("the client is closed")


# Both functions import their modules only if the settings need them: most clients use neither TLS nor SASL, and start
# faster without.


def _tls_context(settings: TlsSettings | None) -> "SSLContext | None":
    if settings is None:
        return None
    from rookery.security.tls import client_context

    return client_context(settings)


def _authenticator(
    settings: SaslSettings | None, timeout_s: float, randomness: Random | None
) -> "Authenticator | None":
    if settings is None:
        return None
    from rookery.net.authentication import Authenticator

    return Authenticator(settings, timeout_s=timeout_s, randomness=randomness)


class ConnectionPool:
    def __init__(
        self, settings: CommonSettings, *, observer: ChannelObserver | None, randomness: Random | None
    ) -> None:
        self._client_id = settings.client_id
        self._reconnect = Backoff(settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000)
        self._setup = Backoff(
            settings.socket_connection_setup_timeout_ms / 1000, settings.socket_connection_setup_timeout_max_ms / 1000
        )
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._idle_max_s = settings.connections_max_idle_ms / 1000
        self._buffers = SocketBuffers(settings.send_buffer_bytes, settings.receive_buffer_bytes)
        self._tls = _tls_context(settings.security.tls)
        self._authenticator = _authenticator(settings.security.sasl, self._request_timeout_s, randomness)
        self._observer = observer
        self._randomness = randomness
        self._connections: dict[_Key, Channel] = {}
        self._opening: dict[_Key, asyncio.Task[Channel]] = {}
        self._unreachable: dict[Address, _Unreachable] = {}
        self._idle_check: asyncio.TimerHandle | None = None
        self._is_closed = False

    def find(self, lane: str) -> Channel | None:
        """Return any open connection of a lane."""
        for key, connection in self._connections.items():
            if key.lane == lane and not connection.is_closed:
                return connection
        return None

    def get(self, address: Address, lane: str) -> Channel | None:
        """Return the open connection to an address, or None."""
        connection = self._connections.get(_Key(address, lane))
        return None if connection is None or connection.is_closed else connection

    async def connect(self, address: Address, lane: str, node: NodeId) -> Channel:
        """Return the connection to an address. Opens it if there is none, after a pause if the last attempt failed."""
        connection = self.get(address, lane)
        if connection is not None:
            return connection
        if self._is_closed:
            raise closed_error()
        key = _Key(address, lane)
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(key, node))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        try:
            # `wait` does not cancel the task when this caller is cancelled: other callers share it. Not asyncio.shield:
            # since Python 3.14 it reports the task's failure as unhandled whenever one caller was cancelled.
            await asyncio.wait((opening,))
            return opening.result()
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            # `close` cancelled the task, not this caller: a CancelledError would look like the caller's cancellation.
            if opening.cancelled() and waiting is not None and not waiting.cancelling():
                raise closed_error() from None
            raise

    def by_availability(self, addresses: Iterable[Address]) -> list[Address]:
        """Return `addresses` in the given order, then those that failed, by the time of their next attempt."""
        return sorted(addresses, key=lambda address: self._unreachable.get(address, _NEVER_FAILED).not_before_s)

    def set_nodes(self, nodes: Mapping[Address, NodeId]) -> None:
        """Set the node ids of connections that were opened to bootstrap addresses."""
        for key, connection in self._connections.items():
            connection.node = nodes.get(key.address, connection.node)

    def drop_all(self, address: Address, pause_s: float) -> None:
        """Drop all connections, and prefer other addresses to `address` for `pause_s`."""
        for connection in self._connections.values():
            connection.drop("its broker does not belong to the cluster any more")
        self._connections.clear()
        self._unreachable[address] = _Unreachable(0, asyncio.get_running_loop().time() + pause_s)

    async def close(self) -> None:
        """Close for good. Everything is closed before anything is awaited, so a cancelled call leaves nothing open."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if self._idle_check is not None:
            self._idle_check.cancel()
            self._idle_check = None
        for connection in self._connections.values():
            connection.drop("the client is closed")
        if self._authenticator is not None:
            self._authenticator.close()
        if opening:
            await asyncio.wait(opening)
        for connection in list(self._connections.values()):
            await connection.close()

    async def _open(self, key: _Key, node: NodeId) -> Channel:
        loop = asyncio.get_running_loop()
        failed = self._unreachable.get(key.address, _NEVER_FAILED)
        if failed.not_before_s > loop.time():
            await asyncio.sleep(failed.not_before_s - loop.time())
        try:
            connection = await Channel.open(
                key.address,
                client_id=self._client_id,
                timeout_s=min(self._setup.pause_s(failed.failure_count, self._randomness), self._request_timeout_s),
                node=node,
                observer=self._observer,
                buffers=self._buffers,
                tls=self._tls,
            )
            await self._log_in(connection)
        except ApiError:
            pause_s = self._reconnect.pause_s(failed.failure_count, self._randomness)
            self._unreachable[key.address] = _Unreachable(failed.failure_count + 1, loop.time() + pause_s)
            raise
        self._unreachable.pop(key.address, None)
        self._connections[key] = connection
        self._check_idle_later()
        return connection

    async def _log_in(self, connection: Channel) -> None:
        if self._authenticator is None:
            return
        try:
            await self._authenticator.log_in(connection)
        except BaseException:
            await connection.close(graceful=False)
            raise

    def _opened(self, key: _Key, task: asyncio.Task[Channel]) -> None:
        if self._opening.get(key) is task:
            del self._opening[key]
        if not task.cancelled():
            # Mark the exception as retrieved: asyncio would warn if all waiting callers were cancelled.
            task.exception()

    def _check_idle_later(self) -> None:
        if self._idle_max_s < 0 or self._idle_check is not None or not self._connections:
            return
        loop = asyncio.get_running_loop()
        first_s = min(connection.used_s for connection in self._connections.values())
        # At most ten checks per idle time.
        delay_s = max(first_s + self._idle_max_s - loop.time(), self._idle_max_s / 10, _IDLE_CHECK_S_MIN)
        self._idle_check = loop.call_later(delay_s, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_check = None
        now_s = asyncio.get_running_loop().time()
        for key, connection in list(self._connections.items()):
            if not connection.is_busy and now_s - connection.used_s >= self._idle_max_s:
                connection.drop("it was idle for connections.max.idle.ms")
            if connection.is_closed:
                del self._connections[key]
        self._check_idle_later()
