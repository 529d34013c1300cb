"""Splits the bytes that arrive from one broker into responses. Called by `Channel`.

Small responses arrive in a staging buffer that is reused, and are copied out of it. A response that has arrived only in
part gets its own buffer (`frame_buffers`), into which the kernel then writes the rest. A view of a response therefore
stays valid as long as it is referenced. No memory is allocated for a response to a request that was not sent.
"""

import struct
from collections.abc import Callable, Container

from rookery.base.bounds import RESPONSE_BYTES_MAX
from rookery.base.errors import ProtocolError
from rookery.net.frame_buffers import FrameBuffers

_INT32 = struct.Struct(">i")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
_STAGING_BYTES = 16_384


class ChannelReader:
    """Calls `accept` with the correlation id and the frame of each response.

    `expected` contains the correlation ids of the requests that wait for a response.
    """

    def __init__(self, expected: Container[int], accept: Callable[[int, memoryview], None]) -> None:
        self._expected = expected
        self._accept = accept
        # Bytes arrive in `_frame` if there is one, else in the staging buffer; `_filled` counts those in it.
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._frame: memoryview | None = None
        self._frames = FrameBuffers()
        self._filled = 0

    def get_buffer(self) -> memoryview:
        return (self._staging if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process `nbytes` new bytes. Raises ProtocolError for bytes that are no response to a pending request."""
        self._filled += nbytes
        if self._frame is None:
            self._take_staged()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._accept(self._correlation_id(frame), frame)

    def _take_staged(self) -> None:
        """Accept the complete responses, and move an incomplete one to its own buffer. Fewer than eight bytes stay."""
        staging, position, end = self._staging, 0, self._filled
        while end - position >= _SIZE_BYTES:
            (size,) = _INT32.unpack_from(staging, position)
            if not _CORRELATION_BYTES <= size <= RESPONSE_BYTES_MAX:
                raise ProtocolError(f"a response of {size} bytes")
            start = position + _SIZE_BYTES
            if start + size <= end:
                position = start + size
                frame = memoryview(staging[start:position].tobytes())
                self._accept(self._correlation_id(frame), frame)
            elif end - start < _CORRELATION_BYTES:
                break
            else:
                self._start_frame(size, staging[start:end])
                return
        self._filled = end - position
        if position and self._filled:
            staging[: self._filled] = staging[position:end]

    def _start_frame(self, size: int, received: memoryview) -> None:
        # Check the correlation id before memory is taken: `size` is only what the peer claims.
        self._correlation_id(received)
        self._frame = self._frames.take(size)
        self._filled = len(received)
        self._frame[: self._filled] = received

    def _correlation_id(self, frame: memoryview) -> int:
        """Return the correlation id, the first field of a frame. Raises ProtocolError if no request has it."""
        (correlation_id,) = _INT32.unpack_from(frame)
        if correlation_id not in self._expected:
            raise ProtocolError(f"a response to request {correlation_id}, which was not sent")
        return int(correlation_id)
