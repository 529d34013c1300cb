"""The sizes of a socket's kernel buffers: `send.buffer.bytes`, `receive.buffer.bytes`."""

import asyncio
import socket
from typing import NamedTuple

SYSTEM_DEFAULT_BYTES = -1


class SocketBuffers(NamedTuple):
    """The minimum sizes of the kernel's buffers. The kernel may choose larger ones, and adapts their sizes."""

    send_bytes: int = SYSTEM_DEFAULT_BYTES
    receive_bytes: int = SYSTEM_DEFAULT_BYTES


def prepare_socket(transport: asyncio.BaseTransport, buffers: SocketBuffers) -> None:
    plain = transport.get_extra_info("socket")
    if plain is None:
        return
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Setting a size stops the kernel from adapting it, so a size is only set if it is larger than the current one.
    for option, size in ((socket.SO_SNDBUF, buffers.send_bytes), (socket.SO_RCVBUF, buffers.receive_bytes)):
        if size > plain.getsockopt(socket.SOL_SOCKET, option):
            plain.setsockopt(socket.SOL_SOCKET, option, size)
