"""The network between the members of an embedded cluster, which can be cut.

The connections of one member to another go through a forwarder: the event loop of a member (`LinkedLoop`) opens them to
a port of it instead. A cut stops the forwarding and closes nothing: bytes on their way stay there, and a new connection
is accepted and gets no answer, as in a network that loses packets. After `heal`, everything that waited goes on.

The connections of clients, which are not members, are not forwarded.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rookery.base.loop_thread import LoopThread
from rookery.base.types import NodeId
from rookery.testing.managed import HOST
from rookery.testing.shifted_time import ShiftedLoop, TimeShift

_READ_BYTES: Final = 1 << 16


class Link(NamedTuple):
    """One direction between two members."""

    source: NodeId
    target: NodeId


class Links:
    """The forwarders of a cluster, in one thread. `owners` maps each port of a member to its node id."""

    def __init__(self, owners: dict[int, NodeId]) -> None:
        self._owners = owners
        self._thread = LoopThread("rookery-links", asyncio.new_event_loop)
        # By source and port of the target.
        self._forwarders: dict[tuple[NodeId, int], asyncio.Task[asyncio.Server]] = {}
        self._gates: dict[Link, asyncio.Event] = {}

    def new_loop(self, member: NodeId, shift: TimeShift) -> "LinkedLoop":
        """Return an event loop for a member: its connections to other members are forwarded."""
        return LinkedLoop(shift, lambda port: self._forwarded(member, port))

    def cut(self, links: Iterable[Link]) -> None:
        """Stop forwarding on these links; returns when nothing more arrives over them."""
        self._thread.submit(self._set(list(links), is_open=False)).result()

    def heal(self) -> None:
        """Forward on all links again."""
        self._thread.submit(self._set(list(self._gates), is_open=True)).result()

    def close(self) -> None:
        self._thread.stop()

    async def _forwarded(self, member: NodeId, port: int) -> int:
        """Return the port to connect to instead of `port`; runs on the member's loop."""
        target = self._owners.get(port)
        if target is None or target == member:
            return port
        return await asyncio.wrap_future(self._thread.submit(self._forwarder(member, port)))

    async def _forwarder(self, member: NodeId, port: int) -> int:
        key = (member, port)
        if key not in self._forwarders:
            serving = asyncio.start_server(lambda *streams: self._forward(member, port, *streams), HOST, 0)
            self._forwarders[key] = asyncio.ensure_future(serving)
        # Without `shield`, a member that is killed while it connects would cancel the forwarder for ever: after its
        # restart it could not reach the other member any more.
        server = await asyncio.shield(self._forwarders[key])
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def _forward(
        self, member: NodeId, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there = Link(member, self._owners[port])
        try:
            await self._gate(there).wait()
            target_reader, target_writer = await asyncio.open_connection(HOST, port)
        except OSError:
            # The member does not listen: its end of the connection is closed before it answers anything.
            writer.transport.abort()
            return
        back = Link(there.target, there.source)
        await asyncio.gather(
            self._pump(reader, target_writer, self._gate(there)), self._pump(target_reader, writer, self._gate(back))
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await gate.wait()
                writer.write(data)
                await writer.drain()
        # The end of a connection is not noticed over a cut either.
        await gate.wait()
        writer.close()

    def _gate(self, link: Link) -> asyncio.Event:
        if link not in self._gates:
            self._gates[link] = asyncio.Event()
            self._gates[link].set()
        return self._gates[link]

    async def _set(self, links: list[Link], *, is_open: bool) -> None:
        for link in links:
            gate = self._gate(link)
            if is_open:
                gate.set()
            else:
                gate.clear()


class LinkedLoop(ShiftedLoop):
    """The event loop of a member. `forwarded` returns the port to connect to instead of another one."""

    def __init__(self, shift: TimeShift, forwarded: Callable[[int], Any]) -> None:
        super().__init__(shift)
        self._forwarded = forwarded

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        if host is not None and port is not None:
            port = await self._forwarded(port)
        return await super().create_connection(protocol_factory, host, port, **options)
