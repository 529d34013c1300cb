"""Writing through TLS: all bytes arrive, in records not smaller than necessary. The peer blocks in a thread."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rookery.net.channel_writer import ChannelWriter
from tests.support.certificates import make_certificates

TIMEOUT_S = 30
DRAIN_TIMEOUT_S = 0.3
PART_BYTES = 100_000
# More than the kernel takes for a peer that does not read.
LARGE_BYTES = 30_000_000


class Sender(asyncio.Protocol):
    """A protocol that owns a writer as `Channel` does, without requests."""

    def __init__(self) -> None:
        self.losses: list[OSError] = []
        self.outgoing = ChannelWriter(self.losses.append)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outgoing.start(cast(asyncio.Transport, transport))

    def pause_writing(self) -> None:
        self.outgoing.pause()

    def resume_writing(self) -> None:
        self.outgoing.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


def exchange(directory: Path, send: Callable[[ChannelWriter], None], *, read_after: str) -> list[bytes]:
    """Return what the peer reads, TLS record by record.

    The peer begins to read when draining has timed out ("timeout"), when all is "written", or when the connection is
    "lost".
    """
    certificates = make_certificates(directory)
    may_read = threading.Event()
    records: list[bytes] = []

    def read(server: socket.socket) -> None:
        plain, _ = server.accept()
        with certificates.server_context().wrap_socket(plain, server_side=True) as peer:
            assert may_read.wait(TIMEOUT_S)
            while record := peer.recv(PART_BYTES):
                records.append(record)

    async def work(port: int) -> None:
        trusting = ssl.create_default_context(cafile=str(certificates.authority))
        _, sender = await asyncio.get_running_loop().create_connection(
            Sender, "127.0.0.1", port, ssl=trusting, server_hostname="localhost", ssl_shutdown_timeout=0.5
        )
        send(sender.outgoing)
        if read_after == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sender.outgoing.drain(), DRAIN_TIMEOUT_S)
            may_read.set()
        await sender.outgoing.drain()
        if read_after == "written":
            may_read.set()
        sender.outgoing.close(graceful=True)
        await sender.lost
        may_read.set()
        assert not sender.losses

    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = threading.Thread(target=read, args=(server,))
        reader.start()
        try:
            asyncio.run(asyncio.wait_for(work(server.getsockname()[1]), TIMEOUT_S))
        finally:
            may_read.set()
            reader.join()
    return records


def test_a_request_of_many_parts_is_one_record(tmp_path: Path) -> None:
    parts = [b"%d" % number for number in range(50)]

    def send(outgoing: ChannelWriter) -> None:
        outgoing.send([*parts], sum(map(len, parts)), may_be_held=True)

    assert exchange(tmp_path, send, read_after="written") == [b"".join(parts)]


@pytest.mark.parametrize("read_after", ["written", "lost"])
def test_bytes_written_before_the_close_arrive_however_late_the_peer_reads(tmp_path: Path, read_after: str) -> None:
    """With acks=0 only the kernel still holds them, and no response would show their loss."""
    frames = [[bytes([number]) * PART_BYTES, b"%d" % number] for number in range(20)]

    def send(outgoing: ChannelWriter) -> None:
        for first, second in frames:
            outgoing.send([first, second], len(first) + len(second), may_be_held=True)

    expected = b"".join(part for frame in frames for part in frame)
    assert b"".join(exchange(tmp_path, send, read_after=read_after)) == expected


def test_drain_waits_for_a_large_request_that_the_peer_does_not_read(tmp_path: Path) -> None:
    def send(outgoing: ChannelWriter) -> None:
        outgoing.send([bytes(LARGE_BYTES)], LARGE_BYTES, may_be_held=True)

    assert sum(map(len, exchange(tmp_path, send, read_after="timeout"))) == LARGE_BYTES
