"""Buffers for large responses, used again when nobody looks at what is in them any more.

Megabytes of new memory cost more than receiving them does: the kernel has to find, clear and map each page. So the last
few buffers are kept. A buffer is free if it can be resized, which Python refuses as long as a view of it exists; views
may therefore be kept, sliced and passed on freely, and whoever drops the last one gives the buffer back.
"""

_KEPT_MAX = 3


class FrameBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """So many bytes, whatever is in them."""
        found = next((buffer for buffer in self._kept if size <= len(buffer) <= 2 * size and _is_free(buffer)), None)
        if found is None:
            found = bytearray(size)
            self._keep(found)
        return memoryview(found)[:size]

    def _keep(self, buffer: bytearray) -> None:
        """In the place of one that is free, or else of the oldest: its holders keep it alive."""
        if len(self._kept) == _KEPT_MAX:
            del self._kept[next((n for n, kept in enumerate(self._kept) if _is_free(kept)), 0)]
        self._kept.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    try:
        # Neither moves the bytes: the allocation has room to spare after the first time.
        buffer.append(0)
        del buffer[-1:]
    except BufferError:
        return False
    return True
