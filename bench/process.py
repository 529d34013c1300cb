"""The memory and processor time of a process, from the kernel."""

import os
import resource
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# CPUCLOCK_SCHED of the kernel: the time of all threads, in nanoseconds.
_CPU_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of a process, including those that have ended."""
    # The clock number of a process, as in clock_getcpuclockid. The times in /proc have a resolution of only 10 ms.
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def rss_bytes(pid: int) -> int:
    """Return the resident memory, shared pages included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits for an event."""
    # The state follows the name, which is in parentheses and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def raise_open_files_limit() -> int:
    """Raise the limit of open files for this process and its children to the maximum; returns the limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
