"""The interface for listening: how a port is bound, and how accepted connections get their protocol.

`TcpNetwork` uses the operating system; the simulator has an implementation in memory. Clients need no such interface,
because `loop.create_connection` already is one.

Binding and serving are separate because a node must register its port with the cluster before it serves. The event
loop's own `create_server` does both in one step, and uvloop reports a port that is in use only when it serves.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

# Kafka's value for "use the operating system's buffer size".
SYSTEM_DEFAULT = -1


class SocketOptions(NamedTuple):
    send_buffer_bytes: int = SYSTEM_DEFAULT
    receive_buffer_bytes: int = SYSTEM_DEFAULT
    listen_backlog: int = 50


class BoundPort(Protocol):
    """A bound port; connections are accepted only after `serve`."""

    @property
    def port(self) -> int:
        """The port; if 0 was requested, the one that the system chose."""
        ...

    async def serve(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None: ...

    def close(self) -> None:
        """Stop accepting; accepted connections stay open."""
        ...


class Network(Protocol):
    async def bind(self, host: str, port: int, options: SocketOptions) -> BoundPort:
        """Bind a port on all addresses of `host` (empty: on every interface). Raises OSError if that fails."""
        ...


class TcpNetwork:
    """The operating system's network."""

    async def bind(self, host: str, port: int, options: SocketOptions) -> BoundPort:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listening = _make_socket(family, options)
                sockets.append(listening)
                # If the system chooses the port, a second address of the host gets the same one.
                listening.bind((address[0], port, *address[2:]))
                port = listening.getsockname()[1]
        except OSError:
            for listening in sockets:
                listening.close()
            raise
        return _TcpPort(port, sockets, options.listen_backlog)


class _TcpPort:
    def __init__(self, port: int, sockets: list[socket.socket], backlog: int) -> None:
        self._port = port
        self._sockets = sockets
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        return self._port

    async def serve(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            self._servers.append(await loop.create_server(make_protocol, sock=listening, backlog=self._backlog))

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()


def _make_socket(family: int, options: SocketOptions) -> socket.socket:
    """Return a socket whose options accepted ones inherit: buffers must be set before the window is negotiated."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    for option, size in (
        (socket.SO_SNDBUF, options.send_buffer_bytes),
        (socket.SO_RCVBUF, options.receive_buffer_bytes),
    ):
        if size != SYSTEM_DEFAULT:
            listening.setsockopt(socket.SOL_SOCKET, option, size)
    return listening
