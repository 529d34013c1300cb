"""The floor: the speed of this machine's sockets and files without a broker, in the same run.

Bytes over one loopback connection between two processes, in pieces of 1 MB; a file written in pieces of 1 MB on the
brokers' file system; and tiny round trips between the generator of bench.wire and an echo server on the event loop that
Rookery uses, which no broker in Python on that loop can exceed.
"""

import socket
from collections.abc import Mapping
from functools import partial

from bench.load import Load, run_loads
from bench.model import MEGABYTE, Bench, Metric, Row
from bench.raw import CHUNK_BYTES

_TCP_CHUNKS = 8_000
_FILE_CHUNKS = 1_000
_CHUNKS_MIN = 8
_CONNECTIONS = (1, 16, 64)
_DURATION_S = 3.0
_DURATION_S_MIN = 0.1


def loopback(bench: Bench) -> Mapping[str, float]:
    options = {"port": _free_port(), "total_bytes": bench.scaled(_TCP_CHUNKS, minimum=_CHUNKS_MIN) * CHUNK_BYTES}
    received = run_loads([Load("bench.raw", action, options) for action in ("receive", "send")]).results[0]
    return {"floor.tcp: MB/s": received["bytes"] / MEGABYTE / received["elapsed_s"]}


def append(bench: Bench) -> Mapping[str, float]:
    total_bytes = bench.scaled(_FILE_CHUNKS, minimum=_CHUNKS_MIN) * CHUNK_BYTES
    options = {"directory": str(bench.directory), "total_bytes": total_bytes}
    result = run_loads([Load("bench.raw", "append", options)]).result
    return {
        "floor.file: without fsync": total_bytes / MEGABYTE / result["written_s"],
        "floor.file: with fsync": total_bytes / MEGABYTE / result["synced_s"],
    }


def echo(connections: int, bench: Bench) -> Mapping[str, float]:
    port = _free_port()
    options = {
        "port": port,
        "kind": "echo",
        "connections": connections,
        "duration_s": max(_DURATION_S_MIN, _DURATION_S * bench.scale),
    }
    server = Load("bench.raw", "echo", {"port": port})
    answered = run_loads([server, Load("bench.wire", "requests", options)]).results[1]
    return {f"floor.echo.{connections}c: requests/s": answered["requests"] / answered["elapsed_s"]}


def _free_port() -> int:
    """Return a port that was just free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _echo_row(connections: int) -> Row:
    return Row(
        name=f"floor/echo/{connections}c",
        title=f"tiny round trips over {connections} connection{'s' if connections > 1 else ''}",
        family="Floor",
        metrics=(Metric(name=f"floor.echo.{connections}c: requests/s", unit="requests/s", better="higher"),),
        run=partial(echo, connections),
        shared=False,
        compared=False,
    )


ROWS = (
    Row(
        name="floor/tcp",
        title="one loopback connection",
        family="Floor",
        metrics=(Metric(name="floor.tcp: MB/s", unit="MB/s", better="higher"),),
        run=loopback,
        shared=False,
        compared=False,
    ),
    Row(
        name="floor/file",
        title="appending to a file",
        family="Floor",
        metrics=(
            Metric(name="floor.file: without fsync", unit="MB/s", better="higher"),
            Metric(name="floor.file: with fsync", unit="MB/s", better="higher"),
        ),
        run=append,
        shared=False,
        compared=False,
    ),
    *(_echo_row(connections) for connections in _CONNECTIONS),
)
