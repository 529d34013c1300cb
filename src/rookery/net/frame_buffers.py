"""Buffers for large responses, used again when nobody looks at what is in them any more.

Megabytes of new memory cost more than receiving them does: the kernel has to find, clear and map each page. So the last
few buffers are kept. A buffer is free if it can be resized, which Python refuses as long as a view of it exists; views
may therefore be kept, sliced and passed on freely, and the buffer is free again when the last one is dropped.

The size of a response is what a broker claims. The memory of a large buffer follows the bytes that have arrived
(`base.memory`), so that a claim alone costs nothing.
"""

import mmap

from rookery.base.bounds import KEPT_RESPONSE_BYTES_MAX
from rookery.base.memory import is_unused, map_memory

_KEPT_MAX = 3
# From this size on a buffer is mapped memory.
_MAPPED_SIZE_MIN = 1_048_576


class FrameBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray | mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """So many bytes, whatever is in them."""
        found = next((buffer for buffer in self._kept if size <= len(buffer) <= 2 * size and _is_free(buffer)), None)
        if found is None:
            found = bytearray(size) if size < _MAPPED_SIZE_MIN else map_memory(size)
            if size <= KEPT_RESPONSE_BYTES_MAX:
                self._keep(found)
        return memoryview(found)[:size]

    def _keep(self, buffer: bytearray | mmap.mmap) -> None:
        """In the place of one that is free, or else of the oldest: its holders keep it alive."""
        if len(self._kept) == _KEPT_MAX:
            del self._kept[next((n for n, kept in enumerate(self._kept) if _is_free(kept)), 0)]
        self._kept.append(buffer)


def _is_free(buffer: bytearray | mmap.mmap) -> bool:
    if isinstance(buffer, mmap.mmap):
        return is_unused(buffer)
    try:
        # Neither moves the bytes: the allocation has room to spare after the first time.
        buffer.append(0)
        del buffer[-1:]
    except BufferError:
        return False
    return True
