"""The bytes that leave for one broker, in the order of the calls.

A frame's parts go to the kernel by one `writev`, joined by nobody. What the kernel does not take waits in front of
`_queue`, but for a piece that is given to the transport. The transport's limits are zero: it says `pause_writing` as
long as it holds a single byte, and `resume_writing` when the kernel has taken it; then we go on. Where there is no
plain socket (TLS, a simulated network) the transport gets it piece by piece, as long as it does not pause. With TLS
there are two transports, of which the inner one may keep as much as asyncio lets it, some pieces, before the outer one
says so.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable

from rookery.base.types import Buffer

# What the transport holds while the kernel takes no more; four full records of TLS.
_PIECE_BYTES = 65_536
# The kernel takes at most 1024 parts in one call.
_PARTS_MAX = 1000


class ChannelWriter:
    """`on_loss` is called with what the socket says when it fails."""

    def __init__(self, on_loss: Callable[[OSError], None]) -> None:
        self._on_loss = on_loss
        self._transport: asyncio.Transport
        self._descriptor: int | None = None
        self._is_closed = False
        self._is_paused = False
        self._queue: deque[tuple[list[Buffer], int]] = deque()
        # What waits for the end of a login.
        self._held: list[tuple[list[Buffer], int]] | None = None
        self._drained: asyncio.Future[None] | None = None

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        has_tls = transport.get_extra_info("sslcontext") is not None
        # To say so at the first byte: with TLS that is where the limit is reached, without where it is exceeded.
        transport.set_write_buffer_limits(high=1 if has_tls else 0)
        plain = transport.get_extra_info("socket")
        if plain is not None and not has_tls:
            self._descriptor = plain.fileno()

    @property
    def must_wait(self) -> bool:
        """Whether a frame would not leave at once."""
        return self._is_paused or self._held is not None

    def send(self, frame: list[Buffer], size: int, *, may_be_held: bool) -> None:
        if self._held is not None and may_be_held:
            self._held.append((frame, size))
        elif self._is_paused:
            self._queue.append((frame, size))
        else:
            self._write(frame, size)
            if self._queue:
                self._flush()

    async def drain(self) -> None:
        """Until all that was sent has left, or never will."""
        while self.must_wait and not self._is_closed:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def hold(self) -> None:
        """From now on only those leave that may not be held, behind what was sent before."""
        self._held = []

    def release(self) -> None:
        self._queue.extend(self._held or ())
        self._held = None
        self._go_on()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._go_on()

    def close(self, *, in_peace: bool) -> None:
        """In peace: what has left our hands may arrive, and with TLS there is a goodbye, which the peer may delay."""
        self._is_closed = True
        self._descriptor = self._held = None
        self._queue.clear()
        self._wake()
        if in_peace and not self._is_paused:
            self._transport.close()
        else:
            # A peer that does not read, or answer, would keep the socket open.
            self._transport.abort()

    def _go_on(self) -> None:
        self._flush()
        if not self.must_wait:
            self._wake()

    def _wake(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _flush(self) -> None:
        while self._queue and not self._is_paused:
            self._write(*self._queue.popleft())

    def _write(self, frame: list[Buffer], size: int) -> None:
        """Only while the transport is empty. What does not leave goes back to the front of the queue."""
        if self._descriptor is None:
            self._write_pieces(memoryview(b"".join(frame)))
            return
        try:
            sent = os.writev(self._descriptor, frame if len(frame) <= _PARTS_MAX else frame[:_PARTS_MAX])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._on_loss(error)
            return
        if sent < size:
            rest = _after(frame, sent)
            piece = memoryview(rest[0])[:_PIECE_BYTES]
            if sent + len(piece) < size:
                self._queue.appendleft((_after(rest, len(piece)), size - sent - len(piece)))
            self._transport.write(piece)

    def _write_pieces(self, frame: memoryview) -> None:
        """Not part by part, of which TLS would make records with a header and a checksum of their own."""
        while frame and not self._is_paused:
            self._transport.write(frame[:_PIECE_BYTES])
            frame = frame[_PIECE_BYTES:]
        if frame:
            self._queue.appendleft(([frame], len(frame)))


def _after(frame: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of a frame's parts after the first `sent` bytes."""
    for index, part in enumerate(frame):
        if sent < len(part):
            return [memoryview(part)[sent:], *frame[index + 1 :]]
        sent -= len(part)
    return []
