"""Writes the bytes of requests to one broker, in the order of the calls. Called by `Channel`.

The parts of a frame are passed to the kernel by one `writev`, without joining them. If the kernel does not take all of
them, a piece of the rest goes to the transport, and what remains to the front of `_queue`. The transport's write buffer
limits are zero: it calls `pause_writing` as soon as it holds one byte, and `resume_writing` when the kernel has taken
it; then writing continues. If there is no plain socket (TLS, a simulated network), the transport gets the frame piece
by piece until it pauses. With TLS there are two transports, and the inner one may buffer several pieces (asyncio's
limit) before the outer one pauses.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable

from rookery.base.types import Buffer

# The most that a call of `transport.write` passes, and so the transport holds; four full TLS records.
_PIECE_BYTES = 65_536
# The kernel accepts at most 1024 parts (IOV_MAX) in one call.
_PARTS_MAX = 1000


class ChannelWriter:
    """Queues and writes frames. `on_loss` is called with the error when writing to the socket fails."""

    def __init__(self, on_loss: Callable[[OSError], None]) -> None:
        self._on_loss = on_loss
        self._transport: asyncio.Transport
        self._descriptor: int | None = None
        self._is_closed = False
        self._is_paused = False
        self._queue: deque[tuple[list[Buffer], int]] = deque()
        # The frames that wait until a login is complete; None while there is no login.
        self._held: list[tuple[list[Buffer], int]] | None = None
        self._drained: asyncio.Future[None] | None = None

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        has_tls = transport.get_extra_info("sslcontext") is not None
        # Make the transport pause at the first byte: with TLS it pauses when the limit is reached, without TLS when it
        # is exceeded.
        transport.set_write_buffer_limits(high=1 if has_tls else 0)
        plain = transport.get_extra_info("socket")
        if plain is not None and not has_tls:
            self._descriptor = plain.fileno()

    @property
    def must_wait(self) -> bool:
        """Whether a new frame would be queued instead of written immediately."""
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
        """Wait until all frames have been written, or the writer is closed."""
        while self.must_wait and not self._is_closed:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def hold(self) -> None:
        """From now on write only the frames that may not be held, after those that were sent before."""
        self._held = []

    def release(self) -> None:
        """Write the held frames, and end `hold`."""
        self._queue.extend(self._held or ())
        self._held = None
        self._continue()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._continue()

    def close(self, *, graceful: bool) -> None:
        """Drop the frames that were not written and close the transport.

        `graceful`: frames that were written may still arrive, and the TLS shutdown is sent; the peer may delay both.
        """
        self._is_closed = True
        self._descriptor = self._held = None
        self._queue.clear()
        self._wake()
        if graceful and not self._is_paused:
            self._transport.close()
        else:
            # `transport.close` waits until the peer has read everything: one that does not would keep the socket open.
            self._transport.abort()

    def _continue(self) -> None:
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
        """Write a frame; the transport must be empty. What cannot be written goes back to the front of the queue."""
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
            rest = _skip_bytes(frame, sent)
            piece = memoryview(rest[0])[:_PIECE_BYTES]
            if sent + len(piece) < size:
                self._queue.appendleft((_skip_bytes(rest, len(piece)), size - sent - len(piece)))
            self._transport.write(piece)

    def _write_pieces(self, frame: memoryview) -> None:
        """Write a joined frame. Written part by part, each part would become a TLS record with a header and a MAC."""
        while frame and not self._is_paused:
            self._transport.write(frame[:_PIECE_BYTES])
            frame = frame[_PIECE_BYTES:]
        if frame:
            self._queue.appendleft(([frame], len(frame)))


def _skip_bytes(frame: list[Buffer], sent: int) -> list[Buffer]:
    """Return the parts of a frame without its first `sent` bytes."""
    for index, part in enumerate(frame):
        if sent < len(part):
            return [memoryview(part)[sent:], *frame[index + 1 :]]
        sent -= len(part)
    return []
