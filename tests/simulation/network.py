"""A network in memory: hosts, links between them, and connections that look like TCP to protocols.

A connection has two endpoints, each with a pipe to the other. A pipe keeps its segments in order and delivers each
after a seeded delay, in one piece or in several. A link is an ordered pair of hosts (sender, receiver), with its own
latency and its own probability of resets. If a link is cut, its segments wait, as while TCP retransmits, and are
delivered when it heals; a new connection needs the links of both directions. Bytes that the receiver has not taken
count against a window; those beyond it stay in the sender's write buffer, so that the sender's protocol is paused if
its peer is slow.

When a process is killed, its kernel resets its connections. A host that loses power sends nothing: its peers' bytes
vanish, and once it is up again it responds with a reset to what they send on old connections.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from rookery.net.network import SocketOptions
from tests.simulation.loop import Process, SimulatedLoop, current_process
from tests.simulation.trace import Trace

WINDOW_BYTES = 65_536
_CONNECT_RETRY_S = 1.0
_HIGH_WATER_DEFAULT = 65_536
_FIRST_CLIENT_PORT = 40_000
_SPLIT_CHANCE = 0.2
# The probability that a reset makes the peer's kernel drop data that it has not delivered yet.
_OVERTAKE_CHANCE = 0.5

# A refusal is the reset with which a host responds to a segment for a connection that it does not have.
_DATA, _END, _RESET, _REFUSAL = "data", "end", "reset", "refusal"


class _Segment(NamedTuple):
    due_s: float
    kind: str
    data: bytes


class Latency(NamedTuple):
    shortest_s: float = 0.0002
    longest_s: float = 0.003


class Link(NamedTuple):
    """The properties of one direction between two hosts. `reset_chance`: that a segment breaks its connection."""

    latency: Latency = Latency()
    reset_chance: float = 0.0


class Endpoint(asyncio.Transport):
    """One end of a connection, and the transport of the protocol there."""

    def __init__(self, network: "SimulatedNetwork", process: Process, address: tuple[str, int]) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.address = address
        self.peer: Endpoint
        self.protocol: asyncio.BaseProtocol
        # Segments in flight to this end.
        self.incoming: deque[_Segment] = deque()
        # Bytes that this end has sent and the other end has not taken.
        self.unread_bytes = 0
        self.is_lost = False
        self._loss: Exception | None = None
        self._is_open = False
        self._is_closing = False
        self._is_ended = False
        self._reading = True
        self._writing_paused = False
        self._high, self._low = _HIGH_WATER_DEFAULT, _HIGH_WATER_DEFAULT // 4
        self._pump: asyncio.TimerHandle | None = None

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer.address, "sockname": self.address}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_ended or not self.process.alive or not data:
            return
        self.unread_bytes += len(data)
        for piece in self.network.split(bytes(data)):
            self.network.send(self.peer, _DATA, piece)
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_ended and not self._is_closing:
            self._is_ended = True
            self.network.send(self.peer, _END)

    def close(self) -> None:
        if not self._is_closing and self.process.alive:
            self.write_eof()
            self._lose(None)

    def abort(self) -> None:
        if not self.is_lost and self.process.alive:
            self.network.send(self.peer, _RESET)
            self._lose(None)

    def get_write_buffer_size(self) -> int:
        return max(0, self.unread_bytes - WINDOW_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_DEFAULT if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.pump_soon()

    # The network's side

    def open(self) -> None:
        """Connect the protocol to this transport. Segments that arrived before are delivered after that."""
        self._is_open = True
        self.protocol.connection_made(self)
        if self.is_lost:
            self._report_loss()
        self.pump_soon()

    def reset(self) -> None:
        """Break the connection, with an error at this end."""
        self.incoming.clear()
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose(self, error: Exception | None) -> None:
        """Close this end. Like asyncio's transports it calls the protocol in a later callback, in its own process."""
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self._loss = error
        self.network.forget(self)
        if self._is_open:
            self._report_loss()

    def _report_loss(self) -> None:
        self.network.loop.call_soon(self.protocol.connection_lost, self._loss, context=self.process.context)

    def pump_soon(self) -> None:
        """Schedule the delivery of the first segment, in the process of this end."""
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        if self.incoming and self._is_open and not self.is_lost:
            due_s = max(self.incoming[0].due_s, self.network.loop.time())
            self._pump = self.network.loop.call_at(due_s, self._deliver, context=self.process.context)

    def _deliver(self) -> None:
        self._pump = None
        if self.is_lost or not self.incoming:
            return
        kind = self.incoming[0].kind
        here, there = self.process.host, self.peer.process.host
        if self.network.is_cut(there, here) or (kind == _REFUSAL and self.network.is_cut(here, there)):
            return
        if kind == _DATA and not self._reading:
            return
        data = self.incoming.popleft().data
        self.network.trace.hash(f"{self.address} {kind}", data)
        if kind == _DATA:
            self._receive(data)
        elif kind == _END:
            self._receive_end()
        else:
            self.reset()
        self.pump_soon()

    def _receive(self, data: bytes) -> None:
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.is_lost:
                buffer = memoryview(self.protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                self.protocol.buffer_updated(size)
                view = view[size:]
        else:
            assert isinstance(self.protocol, asyncio.Protocol)
            self.protocol.data_received(data)
        self.peer.taken(len(data))

    def _receive_end(self) -> None:
        assert isinstance(self.protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self.protocol.eof_received():
            self.close()

    def taken(self, size_bytes: int) -> None:
        self.unread_bytes -= size_bytes
        if self._writing_paused and not self.is_lost and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self.network.loop.call_soon(self._resume, context=self.process.context)

    def _resume(self) -> None:
        if not self.is_lost:
            self.protocol.resume_writing()


class _Port:
    """A port that a process has bound."""

    def __init__(self, network: "SimulatedNetwork", process: Process, port: int) -> None:
        self._network = network
        self.process = process
        self.port = port
        self.make_protocol: Callable[[], asyncio.BaseProtocol] | None = None

    async def serve(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self.make_protocol = make_protocol

    def close(self) -> None:
        self._network.ports.pop((self.process.host, self.port), None)


class SimulatedNetwork:
    """Implements `net.network.Network` for processes that listen, and `loop.Dialler` for those that connect."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.latency = Latency()
        self.ports: dict[tuple[str, int], _Port] = {}
        self._random = random
        # Ordered pairs (sender, receiver).
        self._cuts: set[tuple[str, str]] = set()
        self._links: dict[tuple[str, str], Link] = {}
        self._down: set[str] = set()
        # In the order in which they were opened.
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port = _FIRST_CLIENT_PORT
        loop.dialler = self

    # Listening and connecting

    async def bind(self, host: str, port: int, options: SocketOptions) -> _Port:
        process = current_process()
        assert host == process.host, "a process listens on its own host"
        if (host, port) in self.ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bound = _Port(self, process, port)
        self.ports[host, port] = bound
        return bound

    async def connect(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process = current_process()
        here = process.host
        while self.is_cut(here, host) or self.is_cut(host, here) or host in self._down:
            await asyncio.sleep(_CONNECT_RETRY_S)
        await asyncio.sleep(self._delay_s(here, host))
        bound = self.ports.get((host, port))
        if bound is None or bound.make_protocol is None:
            await asyncio.sleep(self._delay_s(host, here))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        client = Endpoint(self, process, (process.host, self._next_port))
        server = Endpoint(self, bound.process, (host, port))
        client.peer, server.peer = server, client
        client.protocol, server.protocol = make_protocol(), bound.make_protocol()
        self._endpoints |= {client: None, server: None}
        self.loop.call_soon(server.open, context=bound.process.context)
        try:
            await asyncio.sleep(self._delay_s(host, here))
        except asyncio.CancelledError:
            client.abort()
            raise
        client.open()
        return client, client.protocol

    # Segments

    def _delay_s(self, sender: str, receiver: str) -> float:
        link = self._links.get((sender, receiver))
        return self._random.uniform(*(self.latency if link is None else link.latency))

    def split(self, data: bytes) -> list[bytes]:
        """Split a write into the pieces in which it arrives; mostly it is one."""
        if len(data) < 2 or self._random.random() >= _SPLIT_CHANCE:
            return [data]
        cut = self._random.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    def send(self, receiver: Endpoint, kind: str, data: bytes = b"") -> None:
        sender = receiver.peer
        here, there = sender.process.host, receiver.process.host
        if receiver.is_lost or not receiver.process.alive:
            if kind != _RESET and there not in self._down:
                sender.incoming.append(_Segment(self.loop.time() + 2 * self._delay_s(here, there), _REFUSAL, b""))
                sender.pump_soon()
            return
        link = self._links.get((here, there))
        if link is not None and link.reset_chance and self._random.random() < link.reset_chance:
            receiver.reset()
            sender.reset()
            return
        due_s = self.loop.time() + self._delay_s(here, there)
        if receiver.incoming:
            due_s = max(due_s, receiver.incoming[-1].due_s)
        receiver.incoming.append(_Segment(due_s, kind, data))
        if len(receiver.incoming) == 1:
            receiver.pump_soon()

    def forget(self, endpoint: Endpoint) -> None:
        self._endpoints.pop(endpoint, None)

    # Faults

    @property
    def has_bad_links(self) -> bool:
        """Whether some link is cut or has its own properties."""
        return bool(self._cuts or self._links)

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cuts

    def cut(self, host: str, other: str) -> None:
        """Cut both directions between two hosts."""
        self._cuts |= {(host, other), (other, host)}

    def cut_one_way(self, sender: str, receiver: str) -> None:
        self._cuts.add((sender, receiver))

    def set_link(self, sender: str, receiver: str, link: Link) -> None:
        """Set the properties of one direction; `heal_links` removes them."""
        self._links[sender, receiver] = link

    def mend(self, host: str, other: str) -> None:
        """End all faults of the two links between two hosts."""
        for pair in ((host, other), (other, host)):
            self._cuts.discard(pair)
            self._links.pop(pair, None)
        self._deliver_held()

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()
        self._deliver_held()

    def heal_links(self) -> None:
        """End all faults of links, except the latency of the whole network."""
        self._links.clear()
        self.heal()

    def _deliver_held(self) -> None:
        for endpoint in list(self._endpoints):
            endpoint.pump_soon()

    def reset_some(self, chance: float) -> int:
        """Break each open connection with this probability; both ends get a reset immediately."""
        broken = 0
        for endpoint in list(self._endpoints):
            if not endpoint.is_lost and endpoint.process.alive and self._random.random() < chance:
                broken += 1
                endpoint.peer.reset()
                endpoint.reset()
        return broken

    def process_ended(self, process: Process, *, silently: bool, responses_arrive: bool = True) -> None:
        """Release the ports of a dead process and break its connections; `silently`: without a reset to the peers.

        With `responses_arrive` False, all its data in flight is lost, else that of some connections.
        """
        self.ports = {key: bound for key, bound in self.ports.items() if bound.process is not process}
        for endpoint in [each for each in self._endpoints if each.process is process]:
            self.forget(endpoint)
            endpoint.is_lost = True
            if not silently and not endpoint.peer.is_lost:
                if not responses_arrive or self._random.random() < _OVERTAKE_CHANCE:
                    endpoint.peer.incoming.clear()
                delay_s = self._delay_s(process.host, endpoint.peer.process.host)
                endpoint.peer.incoming.append(_Segment(self.loop.time() + delay_s, _RESET, b""))
                endpoint.peer.pump_soon()

    def set_down(self, host: str, *, down: bool) -> None:
        if down:
            self._down.add(host)
        else:
            self._down.discard(host)
