"""A proxy between clients and a broker that cuts connections at any byte, or holds data back.

It runs in the test's event loop. The broker must advertise the proxy's address, so that all clients connect to it:

    async with Proxy() as proxy, proxied_broker(proxy) as broker:
        proxy.cut_at_random(Random(seed), cuts=50)

A connection is cut after a random number of bytes in one direction: in the middle of a request or response, or between
two. The data before the cut arrives, except that a reset may discard some of it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from rookery.testing import EmbeddedBroker

_HOST = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024


class Direction(Enum):
    TO_BROKER = "to the broker"
    TO_CLIENT = "to the client"


class _Cut(NamedTuple):
    direction: Direction
    after_bytes: int
    is_reset: bool


class _Link:
    """A client's connection, and the proxy's connection to the broker for it."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter, cut: _Cut | None) -> None:
        self._writers = (client, broker)
        self._cut = cut
        self._carried = dict.fromkeys(Direction, 0)

    def allow(self, direction: Direction, size_bytes: int) -> int:
        """Return how many of these bytes may pass."""
        allowed = size_bytes
        if self._cut is not None and self._cut.direction is direction:
            allowed = min(size_bytes, self._cut.after_bytes - self._carried[direction])
        self._carried[direction] += allowed
        return allowed

    def end(self) -> None:
        is_reset = self._cut is not None and self._cut.is_reset
        for writer in self._writers:
            if is_reset:
                writer.transport.abort()
            else:
                writer.close()


class Proxy:
    def __init__(self) -> None:
        self.broker_port: int | None = None
        # The number of connections that were cut so far.
        self.cut_count = 0
        # The number of bytes in each direction.
        self.carried_bytes = dict.fromkeys(Direction, 0)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._randomness: Random | None = None
        self._cuts_left = 0
        self._cut_bytes_max = 1
        self._gates = {direction: asyncio.Event() for direction in Direction}
        for gate in self._gates.values():
            gate.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, _HOST, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"{_HOST}:{self._server.sockets[0].getsockname()[1]}"

    @property
    def cuts_left(self) -> int:
        return self._cuts_left

    def cut_at_random(self, randomness: Random, *, cuts: int, after_bytes_max: int = 20_000) -> None:
        """Cut the open connections now, and every new connection once, until `cuts` connections are cut."""
        self._randomness, self._cuts_left, self._cut_bytes_max = randomness, cuts, after_bytes_max
        self.cut_all()

    def cut_all(self) -> None:
        for link in list(self._links):
            link.end()

    def hold(self, direction: Direction) -> None:
        """Hold all data in this direction until `release`; connections stay open."""
        self._gates[direction].clear()

    def release(self, direction: Direction) -> None:
        self._gates[direction].set()

    def _draw_cut(self) -> _Cut | None:
        if self._randomness is None or self._cuts_left <= 0:
            return None
        # Small limits hit the first requests of a connection, large ones a busy connection.
        limit_bytes = self._randomness.choice((200, 2_000, self._cut_bytes_max))
        direction = self._randomness.choice(list(Direction))
        return _Cut(direction, self._randomness.randrange(limit_bytes), self._randomness.random() < 0.5)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except OSError:
            # The broker is down.
            writer.close()
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.broker_port is not None, "the broker's port is not set"
        broker_reader, broker_writer = await asyncio.open_connection(_HOST, self.broker_port)
        link = _Link(writer, broker_writer, self._draw_cut())
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump(link, reader, broker_writer, Direction.TO_BROKER)),
            asyncio.ensure_future(self._pump(link, broker_reader, writer, Direction.TO_CLIENT)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.end()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Copy data until one end closes, or the cut."""
        while data := await reader.read(_CHUNK_BYTES):
            await self._gates[direction].wait()
            allowed = link.allow(direction, len(data))
            self.carried_bytes[direction] += allowed
            writer.write(data[:allowed])
            await writer.drain()
            if allowed < len(data):
                self.cut_count += 1
                self._cuts_left -= 1
                return


@asynccontextmanager
async def proxied_broker(proxy: Proxy, **settings: str) -> AsyncIterator[EmbeddedBroker]:
    """Start a broker that advertises the proxy. `settings` have underscores instead of dots."""
    own = {name.replace("_", "."): value for name, value in settings.items()}
    broker = EmbeddedBroker(settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}", **own})
    async with broker:
        proxy.broker_port = broker.port
        yield broker
