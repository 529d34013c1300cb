"""The bytes that arrive from one broker, cut into responses.

Small responses arrive in a buffer that is used again and again, and leave it as bytes of their own. A response that has
not arrived in full gets a buffer of its own (`frame_buffers`), into which the kernel then writes the rest. So a view of
a response stays valid as long as somebody holds it. Nothing is allocated for a response that nobody asked for.
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
    """`expected` has the requests that are to be answered; `accept` gets a correlation id of them, and the frame."""

    def __init__(self, expected: Container[int], accept: Callable[[int, memoryview], None]) -> None:
        self._expected = expected
        self._accept = accept
        # Either the staging buffer, or the frame that is being filled.
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._frame: memoryview | None = None
        self._frames = FrameBuffers()
        self._filled = 0

    def get_buffer(self) -> memoryview:
        return (self._staging if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Raises ProtocolError for what is no response to a request of ours."""
        self._filled += nbytes
        if self._frame is None:
            self._take_staged()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._accept(self._asked(frame), frame)

    def _take_staged(self) -> None:
        """Take the responses that are whole, and make room for one that is not. Fewer than eight bytes stay."""
        staging, position, end = self._staging, 0, self._filled
        while end - position >= _SIZE_BYTES:
            (size,) = _INT32.unpack_from(staging, position)
            if not _CORRELATION_BYTES <= size <= RESPONSE_BYTES_MAX:
                raise ProtocolError(f"a response of {size} bytes")
            start = position + _SIZE_BYTES
            if start + size <= end:
                position = start + size
                frame = memoryview(staging[start:position].tobytes())
                self._accept(self._asked(frame), frame)
            elif end - start < _CORRELATION_BYTES:
                break
            else:
                self._start_frame(size, staging[start:end])
                return
        self._filled = end - position
        if position and self._filled:
            staging[: self._filled] = staging[position:end]

    def _start_frame(self, size: int, received: memoryview) -> None:
        self._asked(received)
        self._frame = self._frames.take(size)
        self._filled = len(received)
        self._frame[: self._filled] = received

    def _asked(self, frame: memoryview) -> int:
        """The correlation id, which is the first that a frame has."""
        (correlation_id,) = _INT32.unpack_from(frame)
        if correlation_id not in self._expected:
            raise ProtocolError(f"an answer to request {correlation_id}, which was not asked")
        return int(correlation_id)
