"""The network between the members of an embedded cluster."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rookery.testing.links import Link, Links
from rookery.testing.shifted_time import TimeShift


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@contextmanager
def echoing(links_of: dict[int, int]) -> Iterator[Links]:
    links = Links(links_of)
    try:
        yield links
    finally:
        links.close()


def run(links: Links, member: int, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: links.new_loop(member, TimeShift())) as runner:
        runner.run(work)


async def exchange(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], text: bytes) -> bytes:
    reader, writer = streams
    writer.write(text)
    return await asyncio.wait_for(reader.readexactly(len(text)), 0.5)


def listening_socket() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening


def test_connections_between_members_are_cut_and_healed() -> None:
    async def work() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, sock=listening)
        async with server:
            streams = await asyncio.open_connection("127.0.0.1", port)
            assert streams[1].get_extra_info("peername")[1] != port
            assert await exchange(streams, b"before") == b"before"
            links.cut([Link(1, 2)])
            with pytest.raises(TimeoutError):
                await exchange(streams, b"lost?")
            later = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises(TimeoutError):
                await exchange(later, b"new")
            links.heal()
            assert await asyncio.wait_for(streams[0].readexactly(5), 5) == b"lost?"
            assert await asyncio.wait_for(later[0].readexactly(3), 5) == b"new"
            for _, writer in (streams, later):
                writer.close()

    listening = listening_socket()
    port = listening.getsockname()[1]
    with echoing({port: 2}) as links:
        run(links, 1, work())


def test_the_other_direction_of_a_one_way_cut_is_open() -> None:
    async def work() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, sock=listening)
        async with server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            links.cut([Link(2, 1)])
            writer.write(b"there")
            await asyncio.sleep(0.1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(5), 0.2)
            links.cut([Link(1, 2)])
            links.heal()
            assert await asyncio.wait_for(reader.readexactly(5), 5) == b"there"
            writer.close()

    listening = listening_socket()
    port = listening.getsockname()[1]
    with echoing({port: 2}) as links:
        run(links, 1, work())


def test_a_member_reaches_itself_and_strangers_directly() -> None:
    async def work() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, sock=listening)
        async with server:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            assert writer.get_extra_info("peername")[1] == port
            writer.close()

    for is_member in (True, False):
        listening = listening_socket()
        port = listening.getsockname()[1]
        with echoing({port: 1} if is_member else {}) as links:
            run(links, 1, work())


def test_a_member_that_does_not_listen_answers_nothing() -> None:
    async def work() -> None:
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 5) == b""

    with listening_socket() as bound, echoing({bound.getsockname()[1]: 2}) as links:
        port = bound.getsockname()[1]
        run(links, 1, work())


def test_a_cancelled_attempt_to_connect_does_not_end_the_forwarder(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, may_start = threading.Event(), threading.Event()
    start_server = asyncio.start_server

    async def slow_start(*args: Any) -> asyncio.Server:
        starting.set()
        await asyncio.to_thread(may_start.wait)
        return await start_server(*args)

    async def work() -> None:
        async with await asyncio.get_running_loop().create_server(Echo, sock=listening):
            killed = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
            await asyncio.to_thread(starting.wait)
            killed.cancel()
            await asyncio.gather(killed, return_exceptions=True)
            may_start.set()
            streams = await asyncio.open_connection("127.0.0.1", port)
            assert await exchange(streams, b"again") == b"again"
            streams[1].close()

    monkeypatch.setattr("rookery.testing.links.asyncio.start_server", slow_start)
    listening = listening_socket()
    port = listening.getsockname()[1]
    with echoing({port: 2}) as links:
        run(links, 1, work())
