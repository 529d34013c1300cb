"""A listener on loopback, on asyncio's and on uvloop's event loop, and the client's end of a connection."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rookery.base.types import Buffer
from rookery.net.connection import Connection, ConnectionInfo, Handler
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.send import Reply

Run = Callable[[Coroutine[Any, Any, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class MemoryFile:
    """A file without a descriptor, as the simulated disk has."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        self.read_sizes: list[int] = []

    @property
    def path(self) -> Path:
        return Path("memory")

    def append(self, data: Buffer) -> None:
        self._data += data

    def append_parts(self, parts: Any) -> None:
        self._data += b"".join(parts)

    def read_at(self, position: int, size: int) -> bytes:
        self.read_sizes.append(size)
        return bytes(self._data[position : position + size])

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        return

    def descriptor(self) -> int | None:
        return None


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(request: memoryview, _: ConnectionInfo) -> Reply:
    return [frame(bytes(request))]


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@asynccontextmanager
async def listening(handle: Handler, **settings: Any) -> AsyncIterator[Listener]:
    listener = Listener("127.0.0.1", 0, handle, settings=ListenerSettings(**settings))
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


async def connect(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.bound_port)


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until `condition` is true; pytest's time-out ends a wait that never succeeds."""
    while not condition():
        await asyncio.sleep(0.001)


def connections_of(listener: Listener) -> list[Connection]:
    return list(listener._connections)


def reset(writer: asyncio.StreamWriter) -> None:
    """Abort the connection, so that the peer gets a reset instead of an end of file."""
    descriptor = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
    descriptor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    descriptor.close()
    writer.transport.abort()


async def expect_closed(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that arrive until the peer closes the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
