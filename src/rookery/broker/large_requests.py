"""Requests of many bytes: copied out of their connection's buffer, bounded in total, and decoded in a worker thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rookery.base.bounds import LARGE_REQUESTS_AT_ONCE, WAITING_REQUEST_BYTES_MAX
from rookery.base.errors import ProtocolError

Result = TypeVar("Result")


class LargeRequests:
    """The large requests of one broker. `decoded_slots` is acquired while a decoded request is in memory."""

    def __init__(self) -> None:
        self.decoded_slots = asyncio.Semaphore(LARGE_REQUESTS_AT_ONCE)
        self._waiting_bytes = 0

    def admit(self, frame: memoryview) -> bytes:
        """Return a copy of the frame, to be passed to `decode` or `release`.

        Raises ProtocolError if too many bytes wait already.
        """
        if self._waiting_bytes and self._waiting_bytes + len(frame) > WAITING_REQUEST_BYTES_MAX:
            raise ProtocolError(f"a request of {len(frame)} bytes, while others of {self._waiting_bytes} bytes wait")
        self._waiting_bytes += len(frame)
        return bytes(frame)

    async def decode(self, frame: bytes, decode: Callable[[bytes], Result]) -> Result:
        try:
            return await in_worker(lambda: decode(frame))
        finally:
            self.release(frame)

    def release(self, frame: bytes) -> None:
        """Admit others instead of this frame, which is not needed any more."""
        self._waiting_bytes -= len(frame)


async def in_worker(work: Callable[[], Result]) -> Result:
    """Run pure work in a worker thread: the interpreter switches to the event loop every few milliseconds."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
