"""The memory of the test's process, on systems that report it."""

import mmap
from pathlib import Path

import pytest

_STATM = Path("/proc/self/statm")

NEEDS_RESIDENT_BYTES = pytest.mark.skipif(not _STATM.exists(), reason="the memory of a process is read from /proc")


def resident_bytes() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
