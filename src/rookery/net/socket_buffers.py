"""The system's buffers of a connection's socket: `send.buffer.bytes`, `receive.buffer.bytes`."""

import asyncio
import socket
from typing import NamedTuple

SYSTEM_DEFAULT_BYTES = -1


class SocketBuffers(NamedTuple):
    """The least that the system's buffers should have; the system may give more, and adapts what it gives."""

    send_bytes: int = SYSTEM_DEFAULT_BYTES
    receive_bytes: int = SYSTEM_DEFAULT_BYTES


def prepare_socket(transport: asyncio.BaseTransport, buffers: SocketBuffers) -> None:
    plain = transport.get_extra_info("socket")
    if plain is None:
        return
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A size that is set stops the kernel from adapting it, so it must not be less than what is there already.
    for option, size in ((socket.SO_SNDBUF, buffers.send_bytes), (socket.SO_RCVBUF, buffers.receive_bytes)):
        if size > plain.getsockopt(socket.SOL_SOCKET, option):
            plain.setsockopt(socket.SOL_SOCKET, option, size)
