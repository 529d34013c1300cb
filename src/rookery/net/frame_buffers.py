"""Buffers for large responses, reused when no view of them is referenced any more.

Allocating megabytes costs more than receiving them: the kernel has to find, clear and map each page. So the last few
buffers are kept. A buffer is free if it can be resized, which Python refuses as long as a view of it exists. Views may
therefore be kept, sliced and passed on; the buffer becomes free when the last one is dropped.

The size of a response is a claim of the broker. The memory of a large buffer is committed as bytes arrive
(`base.memory`), so a false claim costs nothing.
"""

import mmap

from rookery.base.bounds import KEPT_RESPONSE_BYTES_MAX
from rookery.base.memory import is_unused, map_memory

_KEPT_MAX = 3
# Buffers of this size and larger are mapped memory.
_MAPPED_SIZE_MIN = 1_048_576


class FrameBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray | mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes with undefined content."""
        found = next((buffer for buffer in self._kept if size <= len(buffer) <= 2 * size and _is_free(buffer)), None)
        if found is None:
            found = bytearray(size) if size < _MAPPED_SIZE_MIN else map_memory(size)
            if size <= KEPT_RESPONSE_BYTES_MAX:
                self._keep(found)
        return memoryview(found)[:size]

    def _keep(self, buffer: bytearray | mmap.mmap) -> None:
        """Keep `buffer`, in exchange for a free one or else the oldest, which stays alive while it is referenced."""
        if len(self._kept) == _KEPT_MAX:
            del self._kept[next((n for n, kept in enumerate(self._kept) if _is_free(kept)), 0)]
        self._kept.append(buffer)


def _is_free(buffer: bytearray | mmap.mmap) -> bool:
    if isinstance(buffer, mmap.mmap):
        return is_unused(buffer)
    try:
        # Neither call moves the bytes: the first append over-allocates, and later ones fit.
        buffer.append(0)
        del buffer[-1:]
    except BufferError:
        return False
    return True
