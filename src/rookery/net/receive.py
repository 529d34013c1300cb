"""The receiving half of a connection: bytes in, frames out. No sockets here.

A frame is a four-byte size and that many bytes. The memory in use is proportional to the bytes that arrived, not to the
size that a frame claims. A connection without a partial frame reads into a scratch buffer that all connections of an
event loop share (a loop calls `get_buffer`, the socket and `buffer_updated` without interruption). Only the bytes that
remain after a turn are copied, to a buffer of the connection. A small one grows by a factor as data arrives; that of a
large frame is mapped memory of the frame's whole size, whose pages exist once they are written to, so that nothing is
copied again and all memory is returned when it is released. A connection that receives large frames keeps its buffer,
so that they need no copy; `trim` releases it when they stop. `PartialFrames` bounds the memory of all connections
together.

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
# A frame gets mapped memory, and counts in `PartialFrames`, when this much of it has arrived: before, its size is only
# a claim.
PARTIAL_SIZE_MIN = 65_536
# An empty buffer outside of these sizes is released immediately: a small one saves little compared to the scratch
# buffer, and a large one would hold much memory.
_KEPT_SIZE_MIN = 65_536
_KEPT_SIZE_MAX = 8_388_608

# The first four bytes of other protocols, for a log line that names the mistake.
_FOREIGN_PROTOCOLS = {
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
        self._size_key = "socket.request.max.bytes"
        self._view = scratch
        self._start = 0
        self._end = 0
        self._used = False

    @property
    def own_size(self) -> int:
        """The size of the connection's own buffer; of a large one, not all pages exist."""
        return 0 if self._view is self._scratch else len(self._view)

    @property
    def partial_size(self) -> int:
        """The bytes of an incomplete frame that the connection's own buffer holds."""
        return 0 if self._view is self._scratch else self._end - self._start

    def limit(self, frame_size_max: int, key: str) -> None:
        """Limit later frames to another size; `key` is the setting that has it."""
        self._frame_size_max, self._size_key = frame_size_max, key

    def writable(self) -> memoryview:
        """Return the space for the next bytes; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + self._wanted() > len(self._view):
            self._grow()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        self._used = True

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size, or None until more bytes arrive."""
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

    def end_turn(self) -> None:
        """Copy the bytes that remain in the scratch buffer, which other connections use next, to an own buffer."""
        remaining = self._end - self._start
        if self._view is self._scratch:
            if remaining:
                self._grow()
        elif not remaining and not _KEPT_SIZE_MIN <= len(self._view) <= _KEPT_SIZE_MAX:
            self.release()

    def trim(self) -> None:
        """Release an empty buffer that was not used since the last call."""
        if not self._used and self._start == self._end:
            self.release()
        self._used = False

    def release(self) -> None:
        """Release the connection's own buffer, with the bytes in it."""
        self._view = self._scratch
        self._start = self._end = 0

    def _wanted(self) -> int:
        """Return how many bytes from `_start` the present frame needs, as far as its size is known."""
        if self._end - self._start < _SIZE_BYTES:
            return _SIZE_BYTES
        return _SIZE_BYTES + int(_SIZE.unpack_from(self._view, self._start)[0])

    def _grow(self) -> None:
        """Move the remaining bytes to the front of a buffer that fits the frame, or is a factor larger than them."""
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
        foreign = "a TLS handshake" if first.startswith(_TLS_HANDSHAKE) else _FOREIGN_PROTOCOLS.get(first)
        if foreign:
            return f"{foreign} on a plaintext listener"
        if size < 0:
            return f"a frame with the negative size {size}"
        return f"a frame of {size} bytes is larger than {self._size_key}={self._frame_size_max}"


class Peer(Protocol):
    def drop(self, reason: str) -> None:
        """Close the connection immediately."""
        ...


PeerT = TypeVar("PeerT", bound=Peer)


class PartialFrames(Generic[PeerT]):
    """Bounds the bytes of incomplete frames that the connections of a listener hold together to `size_max`.

    If they hold more, the connection whose frame has been incomplete for the longest time is closed. A peer that sends
    its frame without a pause is not affected, while one that stops in the middle of a frame eventually is.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        # In the order in which the frames began.
        self._sizes: dict[PeerT, int] = {}
        self.size = 0

    def update(self, peer: PeerT, size: int) -> None:
        """Set the number of bytes that a peer holds of an incomplete frame; 0 if it has none."""
        self.size += size - self._sizes.get(peer, 0)
        if size:
            self._sizes[peer] = size
        else:
            self._sizes.pop(peer, None)
        while self.size > self._size_max:
            slowest = next(iter(self._sizes))
            self.size -= self._sizes.pop(slowest)
            slowest.drop(
                f"incomplete requests exceed {self._size_max} bytes, and this one has been incomplete for longest "
                "(queued.max.request.bytes)"
            )
