"""Loads without a broker: the speed of the machine's sockets and files, as a limit for the other figures.

`send` and `receive` transfer bytes over one loopback connection, `append` writes a file, and `echo` responds to the
tiny requests of bench.wire with the same bytes, on the event loop that Rookery uses.
"""

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import cast

from bench.load import Measurements, await_go, run_action
from bench.payload import event_text

CHUNK_BYTES = 1 << 20
_HOST = "127.0.0.1"


def receive(*, port: int, total_bytes: int) -> Measurements:
    """Receive bytes, measured from the first to the last."""
    buffer = bytearray(CHUNK_BYTES)
    with socket.create_server((_HOST, port)) as server:
        await_go()
        connection, _ = server.accept()
        with connection:
            left = total_bytes - connection.recv_into(buffer)
            started_s = time.perf_counter()
            while left > 0:
                count = connection.recv_into(buffer)
                if not count:
                    raise ConnectionError(f"closed with {left} bytes missing")
                left -= count
            return {"elapsed_s": time.perf_counter() - started_s, "bytes": total_bytes}


def send(*, port: int, total_bytes: int) -> Measurements:
    chunk = event_text(CHUNK_BYTES)
    await_go()
    with socket.create_connection((_HOST, port)) as connection:
        for _ in range(total_bytes // CHUNK_BYTES):
            connection.sendall(chunk)
    return {"bytes": total_bytes}


def append(*, directory: str, total_bytes: int) -> Measurements:
    """Write a new file chunk by chunk, then sync it."""
    chunk = event_text(CHUNK_BYTES)
    path = Path(directory) / "append"
    await_go()
    with path.open("wb", buffering=0) as file:
        started_s = time.perf_counter()
        for _ in range(total_bytes // CHUNK_BYTES):
            file.write(chunk)
        written_s = time.perf_counter() - started_s
        os.fsync(file.fileno())
        synced_s = time.perf_counter() - started_s
    path.unlink()
    return {"written_s": written_s, "synced_s": synced_s, "bytes": total_bytes}


class _Echo(asyncio.Protocol):
    """Sends received data back. `connections` is the number of open connections."""

    connections = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods, but is not an instance of the class.
        self._transport = cast(asyncio.Transport, transport)
        _Echo.connections += 1

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        _Echo.connections -= 1


async def _serve_echo(port: int) -> None:
    """Serve until all connections of the measurement are closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Echo, _HOST, port)
    await loop.run_in_executor(None, await_go)
    while _Echo.connections:
        await asyncio.sleep(0.05)
    server.close()


def echo(*, port: int) -> Measurements:
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve_echo(port))
    else:
        uvloop.run(_serve_echo(port))
    return {}


if __name__ == "__main__":
    run_action({"receive": receive, "send": send, "append": append, "echo": echo})
