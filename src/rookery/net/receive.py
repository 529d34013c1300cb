"""The receiving half of a connection: bytes in, frames out. No sockets here.

A frame is a four-byte size and that many bytes. Memory follows the bytes that arrived, not what a size claims: a
connection without a partial frame reads into a scratch buffer that all connections of an event loop share (a loop
calls `get_buffer`, the socket and `buffer_updated` without a pause in between), and only what remains of it after a
turn is kept, in a buffer of the connection's own. A small one grows by a factor as data comes in; that of a large frame
is mapped memory of the frame's whole size, whose pages exist when they are written to, so that nothing is copied and
nothing is left behind when it goes. A connection that moves large frames keeps its own buffer, so that they land where
they are used; `trim` gives it back when they stop. `PartialFrames` bounds what all connections hold together.

Frames are views of these buffers: valid until the next turn.
"""

import struct
from typing import Generic, Protocol, TypeVar

from rookery.base.errors import ProtocolError
from rookery.base.memory import map_memory

SCRATCH_SIZE = 262_144

_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
_OWN_SIZE_MIN = 4096
_GROWTH = 4
# A frame gets mapped memory when this much of it has arrived: before, its size is only a claim. It counts from then on.
PARTIAL_SIZE_MIN = 65_536
# An empty buffer below this is given back at once, one above `_KEPT_SIZE_MAX` too: reading into the scratch is as good.
_KEPT_SIZE_MIN = 65_536
_KEPT_SIZE_MAX = 8_388_608

# The first four bytes of what is not ours, to tell the operator who is knocking.
_STRANGERS = {
    b"GET ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"PRI ": "an HTTP/2 request",
    b"SSH-": "an SSH client",
}
_TLS_HANDSHAKE = b"\x16\x03"


class FrameBuffer:
    """Invariant: `_start <= _end`, and the unconsumed bytes are `_view[_start:_end]`."""

    def __init__(self, scratch: memoryview, frame_size_max: int) -> None:
        self._scratch = scratch
        self._frame_size_max = frame_size_max
        self._view = scratch
        self._start = 0
        self._end = 0
        self._used = False

    @property
    def own_size(self) -> int:
        """The size of the buffer that this connection has for itself; not all of a large one has memory behind it."""
        return 0 if self._view is self._scratch else len(self._view)

    @property
    def partial_size(self) -> int:
        """The bytes at hand of a large frame that is not complete."""
        return 0 if self._view is self._scratch else self._end - self._start

    def writable(self) -> memoryview:
        """Where the next bytes should go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + self._wanted() > len(self._view):
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        self._used = True

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more arrives."""
        start = self._start
        available = self._end - start
        if available < _SIZE_BYTES:
            return None
        (size,) = _SIZE.unpack_from(self._view, start)
        if not 0 <= size <= self._frame_size_max:
            raise ProtocolError(self._describe(size))
        if available < _SIZE_BYTES + size:
            return None
        start += _SIZE_BYTES
        self._start = start + size
        return self._view[start : self._start]

    def settle(self) -> None:
        """End a turn: the scratch goes back to the others, what remains in it is kept."""
        remaining = self._end - self._start
        if self._view is self._scratch:
            if remaining:
                self._make_room()
        elif not remaining and not _KEPT_SIZE_MIN <= len(self._view) <= _KEPT_SIZE_MAX:
            self.release()

    def trim(self) -> None:
        """Give an empty buffer back that was not used since the last call."""
        if not self._used and self._start == self._end:
            self.release()
        self._used = False

    def release(self) -> None:
        """Give up the connection's own buffer with what is in it: the connection is over."""
        self._view = self._scratch
        self._start = self._end = 0

    def _wanted(self) -> int:
        """How many bytes from `_start` the current frame needs, as far as is known."""
        if self._end - self._start < _SIZE_BYTES:
            return _SIZE_BYTES
        return _SIZE_BYTES + int(_SIZE.unpack_from(self._view, self._start)[0])

    def _make_room(self) -> None:
        """Move what remains to the front of a buffer that is large enough, or a factor larger than what arrived."""
        remaining = self._end - self._start
        wanted = max(self._wanted(), _OWN_SIZE_MIN)
        size = max(remaining, min(wanted, max(remaining * _GROWTH, _OWN_SIZE_MIN)))
        target = self._view
        if target is self._scratch or len(target) < size:
            if remaining >= PARTIAL_SIZE_MIN:
                target = memoryview(map_memory(max(remaining, wanted)))
            else:
                target = memoryview(bytearray(size))
        target[:remaining] = self._view[self._start : self._end]
        self._view, self._start, self._end = target, 0, remaining

    def _describe(self, size: int) -> str:
        first = bytes(self._view[self._start : self._start + _SIZE_BYTES])
        stranger = "a TLS handshake" if first.startswith(_TLS_HANDSHAKE) else _STRANGERS.get(first)
        if stranger:
            return f"{stranger} on a plaintext listener"
        if size < 0:
            return f"a frame with the negative size {size}"
        return f"a frame of {size} bytes is larger than socket.request.max.bytes={self._frame_size_max}"


class Peer(Protocol):
    def refuse(self, reason: str) -> None:
        """End the connection."""
        ...


PeerT = TypeVar("PeerT", bound=Peer)


class PartialFrames(Generic[PeerT]):
    """What the connections of a listener hold of frames that are not complete: at most `size_max` bytes together.

    Where they hold more, the connection whose frame has been incomplete for longest is closed: a peer that sends a
    frame in one go is never that, and a peer that stops half way becomes it.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        # In the order in which their frames began.
        self._sizes: dict[PeerT, int] = {}
        self.size = 0

    def note(self, peer: PeerT, size: int) -> None:
        """A peer has `size` bytes of an incomplete frame now, or none."""
        self.size += size - self._sizes.get(peer, 0)
        if size:
            self._sizes[peer] = size
        else:
            self._sizes.pop(peer, None)
        while self.size > self._size_max:
            slowest = next(iter(self._sizes))
            self.size -= self._sizes.pop(slowest)
            slowest.refuse(
                f"requests of {self._size_max} bytes in all are incomplete, and this one for longest "
                "(queued.max.request.bytes)"
            )
