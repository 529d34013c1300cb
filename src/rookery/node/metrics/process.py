"""Metrics of the process, its event loop and its machine, from Linux' files in /proc."""

import gc
import os
import resource
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rookery.base.clock import Clock, thread_time
from rookery.telemetry import names
from rookery.telemetry.measurements import Family, Idle, single

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_KIBIBYTE: Final = 1024
_NANOS_PER_S: Final = 1e9
_MINUTE_S: Final = 60.0
# Positions in /proc/self/stat after the name of the process, which may have spaces.
_START_TICKS: Final = 19
_VIRTUAL_BYTES: Final = 20
_RESIDENT_PAGES: Final = 21
_MEMORY_KINDS: Final = {"MemTotal": "total", "MemAvailable": "available", "Cached": "cached", "Dirty": "dirty"}


class LoopTime:
    """How busy the thread of the event loop is, by its processor time. All methods are called on that thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s, self._start_cpu_s = clock.monotonic(), thread_time()
        # (time, processor time), at most a minute old.
        self._samples: deque[tuple[float, float]] = deque([(self._start_s, self._start_cpu_s)])

    def sample(self) -> None:
        """Take note of the time; called every few seconds."""
        now_s = self._clock.monotonic()
        self._samples.append((now_s, thread_time()))
        while now_s - self._samples[0][0] > _MINUTE_S and len(self._samples) > 1:
            self._samples.popleft()

    @property
    def busy_s(self) -> float:
        return thread_time() - self._start_cpu_s

    def idle(self) -> Idle:
        now_s, cpu_s = self._clock.monotonic(), thread_time()
        elapsed_s = max(now_s - self._start_s, 1e-9)
        idle_s = max(0.0, elapsed_s - (cpu_s - self._start_cpu_s))
        then_s, then_cpu_s = self._samples[0]
        recent_s = max(now_s - then_s, 1e-9)
        recent = max(0.0, 1 - (cpu_s - then_cpu_s) / recent_s)
        return Idle(idle_s * _NANOS_PER_S, idle_s / elapsed_s, recent)


class Collections:
    """Counts the runs of Python's garbage collector, and their time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = 0.0
        self.counts = [0, 0, 0]
        self.seconds = [0.0, 0.0, 0.0]

    def begin(self) -> None:
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began_s = self._clock.monotonic()
            return
        self.counts[info["generation"]] += 1
        self.seconds[info["generation"]] += self._clock.monotonic() - self._began_s


def loop_families(loop_time: LoopTime) -> Iterator[Family]:
    idle = loop_time.idle()
    yield single(names.NETWORK_IDLE, idle.last_minute_share)
    yield single(names.HANDLER_IDLE, idle)
    yield single(names.LOOP_BUSY, loop_time.busy_s)


def process_families(collections: Collections) -> Iterator[Family]:
    """Return the metrics of this process and machine. Without /proc, as on other systems, only some of them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield single(names.CPU_SECONDS, usage.ru_utime + usage.ru_stime)
    yield single(names.FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield single(names.THREADS, threading.active_count())
    yield single(names.LOAD, os.getloadavg()[0])
    for generation, (count, seconds) in enumerate(zip(collections.counts, collections.seconds, strict=True)):
        tag = ("gc", f"generation {generation}")
        yield single(names.COLLECTIONS, count, tag)
        yield single(names.COLLECTION_SECONDS, seconds, tag)
    if (_PROC / "self/stat").exists():
        yield from _linux_families()


def _linux_families() -> Iterator[Family]:
    fields = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    resident = int(fields[_RESIDENT_PAGES]) * _PAGE_BYTES
    yield single(names.RESIDENT_BYTES, resident)
    yield single(names.VIRTUAL_BYTES, int(fields[_VIRTUAL_BYTES]))
    yield single(names.MEMORY_USED, resident, ("area", "heap"))
    booted_s = float(_read_fields(_PROC / "stat", " ").get("btime", "0"))
    yield single(names.START_TIME, booted_s + int(fields[_START_TICKS]) / _TICKS_PER_S)
    yield single(names.OPEN_FILES, len(os.listdir(_PROC / "self/fd")))
    memory = _read_fields(_PROC / "meminfo", ":")
    yield Family(
        names.MEMORY_TOTAL,
        [
            ((("kind", kind),), int(memory[key].split()[0]) * _KIBIBYTE)
            for key, kind in _MEMORY_KINDS.items()
            if key in memory
        ],
    )
    disk = _read_fields(_PROC / "self/io", ":")
    yield single(names.DISK_READ, int(disk.get("read_bytes", "0")))
    yield single(names.DISK_WRITTEN, int(disk.get("write_bytes", "0")))


def _read_fields(path: Path, separator: str) -> dict[str, str]:
    """Return the lines `name: value` of a file; none if it cannot be read, as in some containers."""
    try:
        pairs = (line.partition(separator) for line in path.read_text().splitlines())
        return {name: value.strip() for name, _, value in pairs}
    except OSError:
        return {}
