"""Simulated connections: order, delays, cuts, resets, and flow control."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from rookery.net.network import SocketOptions
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import WINDOW_BYTES, Latency, Link, SimulatedNetwork
from tests.simulation.trace import Trace

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_PORT = 1


class Net:
    def __init__(self) -> None:
        trace = Trace()
        self.loop = SimulatedLoop(trace, lambda: (0.0, 0.0))
        self.network = SimulatedNetwork(self.loop, Random(7), trace)
        self.server = Process("server", "there")
        self.client = Process("client", "here")

    def run(self, serve: Serve, client: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def listen() -> None:
            def make_protocol() -> asyncio.BaseProtocol:
                return asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve)

            bound = await self.network.bind("there", _PORT, SocketOptions())
            await bound.serve(make_protocol)

        async def main() -> None:
            await self.loop.spawn(self.server, listen())
            async with asyncio.timeout(1000):
                await self.loop.spawn(self.client, client())

        self.loop.run_until_complete(main())
        self.loop.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(100)
    while await reader.read(1000):
        pass
    writer.close()


@pytest.fixture
def net() -> Net:
    return Net()


def test_bytes_arrive_in_order(net: Net) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        sent = b"".join(b"%d," % number for number in range(500))
        for start in range(0, len(sent), 7):
            writer.write(sent[start : start + 7])
        writer.write_eof()
        assert await reader.read() == sent
        assert net.loop.time() > 0
        writer.close()
        await writer.wait_closed()

    net.run(echo, client)


def test_no_process_listens(net: Net) -> None:
    async def client() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("there", _PORT + 1)

    net.run(echo, client)


def test_a_cut_link_holds_bytes_back(net: Net) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.network.cut("here", "there")
        writer.write(b"late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("there", _PORT), 5)
        net.network.heal()
        assert await reader.readexactly(4) == b"late"
        assert net.loop.time() > 5
        writer.close()

    net.run(echo, client)


def test_a_one_way_cut_lets_the_other_direction_pass(net: Net) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.network.cut_one_way("here", "there")
        writer.write(b"late")
        await asyncio.sleep(5)
        net.network.mend("here", "there")
        assert await reader.readexactly(4) == b"late"
        net.network.cut_one_way("there", "here")
        writer.write(b"answered late")
        sent_s = net.loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(13), 5)
        # The SYN arrives, but its acknowledgement does not.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("there", _PORT), 5)
        net.network.heal_links()
        assert await reader.readexactly(13) == b"answered late"
        assert net.loop.time() < sent_s + 11
        writer.close()

    net.run(echo, client)


def test_a_link_has_its_own_latency(net: Net) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.network.set_link("here", "there", Link(Latency(2.0, 2.0)))
        sent_s = net.loop.time()
        writer.write(b"slow")
        assert await reader.readexactly(4) == b"slow"
        assert 2 < net.loop.time() - sent_s < 2.1
        net.network.mend("here", "there")
        sent_s = net.loop.time()
        writer.write(b"fast")
        assert await reader.readexactly(4) == b"fast"
        assert net.loop.time() - sent_s < 0.1
        writer.close()

    net.run(echo, client)


def test_a_bad_link_resets_connections(net: Net) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.network.set_link("there", "here", Link(reset_chance=1.0))
        writer.write(b"asked")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(5)
        net.network.heal_links()
        reader, writer = await asyncio.open_connection("there", _PORT)
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        writer.close()

    net.run(echo, client)


def test_a_paused_server_accepts_connections_and_answers_later(net: Net) -> None:
    async def client() -> None:
        net.loop.pause(net.server)
        reader, writer = await asyncio.open_connection("there", _PORT)
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(5), 5)
        net.loop.resume(net.server)
        assert await reader.readexactly(5) == b"hello"
        writer.close()

    net.run(echo, client)


def test_a_refusal_needs_both_directions(net: Net) -> None:
    """A host responds with a reset to bytes for a dead process, but only if the bytes reach it."""

    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.server.kill()
        net.network.process_ended(net.server, silently=True)
        net.network.cut_one_way("here", "there")
        writer.write(b"is anybody there?")
        reading = asyncio.create_task(reader.read())
        done, _ = await asyncio.wait([reading], timeout=60)
        assert not done
        net.network.heal()
        with pytest.raises(ConnectionResetError):
            await reading

    net.run(echo, client)


def test_a_receiver_that_does_not_read_stops_the_sender(net: Net) -> None:
    async def client() -> None:
        _, writer = await asyncio.open_connection("there", _PORT)
        for _ in range(10):
            writer.write(bytes(WINDOW_BYTES))
            await writer.drain()
        assert net.loop.time() > 90
        writer.close()

    net.run(swallow, client)


@pytest.mark.parametrize("silently", [True, False])
def test_a_dead_process_resets_its_connections(net: Net, silently: bool) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("there", _PORT)
        net.server.kill()
        net.network.process_ended(net.server, silently=silently)
        reading = asyncio.create_task(reader.read())
        done, _ = await asyncio.wait([reading], timeout=60)
        assert bool(done) != silently
        writer.write(b"is anybody there?")
        with pytest.raises(ConnectionResetError):
            await reading
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("there", _PORT)

    net.run(echo, client)
