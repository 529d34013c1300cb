"""Memory for a number of bytes that a peer has announced: pages exist only once they are written.

A `bytearray` of the announced size takes that memory immediately, because Python clears it. Mapped memory grows with
what has arrived, and is returned to the system as a whole when its last view is gone.
"""

import mmap
import sys


def map_memory(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    # Private: a child process must not write into the memory of its parent.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def is_unused(memory: mmap.mmap) -> bool:
    """Return whether no view of the memory is left, so that it may be reused."""
    try:
        memory.resize(len(memory))
    except (BufferError, OSError, SystemError, ValueError):
        # If a map cannot be resized on this platform, it always counts as used.
        return False
    return True
