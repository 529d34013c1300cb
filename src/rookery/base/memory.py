"""Memory for bytes of which only the number is known: pages exist once they are written to.

A `bytearray` of a size that a peer claims takes that memory at once, because Python clears it. Mapped memory follows
what has arrived, and goes back to the system as a whole when its last view is gone.
"""

import mmap
import sys


def map_memory(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    # Private: a child process must not write into what its parent receives.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def is_unused(memory: mmap.mmap) -> bool:
    """Whether no view of the memory is left, so that it may be used for something else."""
    try:
        memory.resize(len(memory))
    except (BufferError, OSError, SystemError, ValueError):
        # Where a map cannot be resized, it is never known to be unused.
        return False
    return True
