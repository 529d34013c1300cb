"""The processor's own count of this process's instructions, as `perf stat -e instructions:u` reads it.

perf_event_open(2) through ctypes. Many virtual machines and containers have no such counter, and some systems reserve
it for root (`kernel.perf_event_paranoid` above 2): `PerfEvent` then raises OSError. As a program, exits with 0 if this
machine has it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import NamedTuple

_SYSCALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_THIS_PROCESS, _ANY_CPU, _NO_GROUP, _CLOSE_ON_EXEC = 0, -1, -1, 8
# type, size, config, sample_period, sample_type, read_format, flags, wakeup_events, bp_type, config1
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_COUNT = struct.Struct("=Q")
# Count the threads that are started later, but neither kernel nor hypervisor, and never share the register.
_INHERIT, _PINNED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 2, 1 << 5, 1 << 6
_FLAGS = _INHERIT | _PINNED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR


class EventKind(NamedTuple):
    """PERF_TYPE_... and PERF_COUNT_... of linux/perf_event.h."""

    type: int
    config: int


INSTRUCTIONS = EventKind(0, 1)


class PerfEvent:
    """Counts from its creation until `close`."""

    def __init__(self, kind: EventKind = INSTRUCTIONS) -> None:
        number = _SYSCALL_NUMBERS.get(platform.machine())
        if sys.platform != "linux" or number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        attributes = _ATTRIBUTES.pack(kind.type, _ATTRIBUTES.size, kind.config, 0, 0, 0, _FLAGS, 0, 0, 0)
        arguments = map(ctypes.c_long, (_THIS_PROCESS, _ANY_CPU, _NO_GROUP, _CLOSE_ON_EXEC))
        system = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = system.syscall(ctypes.c_long(number), attributes, *arguments)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def read(self) -> int:
        data = os.read(self._descriptor, _COUNT.size)
        if len(data) < _COUNT.size:
            # The kernel returns nothing for a pinned event that lost its register.
            raise OSError(errno.EBUSY, "another program uses the processor's counter")
        return int(_COUNT.unpack(data)[0])

    def close(self) -> None:
        os.close(self._descriptor)


def is_supported(kind: EventKind = INSTRUCTIONS) -> bool:
    try:
        event = PerfEvent(kind)
    except OSError:
        return False
    try:
        return event.read() >= 0
    except OSError:
        return False
    finally:
        event.close()


if __name__ == "__main__":
    sys.exit(not is_supported())
