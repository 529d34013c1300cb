"""What the kernel says of a process: its memory and its processor time."""

import os
import resource
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# CPUCLOCK_SCHED of the kernel: the sum over all threads, in nanoseconds.
_CPU_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of all the threads of a process, those that ended included."""
    # As clock_getcpuclockid numbers the clocks of other processes. What /proc says has a resolution of 10 ms only.
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits for an event."""
    # The state follows the name, which is in parentheses and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def raise_open_files_limit() -> int:
    """Allow this process and its children as many open files as the system lets them have; the limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
