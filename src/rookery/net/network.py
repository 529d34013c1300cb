"""The seam for listening: how a port is taken, and how connections that arrive there get their protocol.

`TcpNetwork` is the operating system's; the simulator brings its own, in memory. Clients need no seam of their own,
because `loop.create_connection` already is one.

Taking a port and serving are apart because a node learns its port before it can tell the cluster, and must not serve
before it has. The event loop's own `create_server` does both at once, and uvloop's tells only when it serves that a
port is taken.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

# Kafka's value for "leave the operating system's buffer size alone".
SYSTEM_DEFAULT = -1


class SocketOptions(NamedTuple):
    send_buffer_bytes: int = SYSTEM_DEFAULT
    receive_buffer_bytes: int = SYSTEM_DEFAULT
    listen_backlog: int = 50


class BoundPort(Protocol):
    """A port that is ours; nobody is answered before `serve`."""

    @property
    def port(self) -> int:
        """The system's choice if 0 was asked for."""
        ...

    async def serve(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None: ...

    def close(self) -> None:
        """Accept no more; connections that were accepted go on."""
        ...


class Network(Protocol):
    async def bind(self, host: str, port: int, options: SocketOptions) -> BoundPort:
        """Take a port of all addresses of `host` (empty: of every interface); OSError if that cannot be done."""
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
                # A second address of the same host gets the port that the system chose for the first.
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
    """Accepted sockets inherit these options; buffer sizes must be known before the window is negotiated."""
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
