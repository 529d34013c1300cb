"""The programs that count instructions: callgrind of valgrind, and the processor itself (`bench.cost.perf_event`).

Both count what the broker's process executes outside of the kernel. callgrind runs the process on an emulated
processor, about forty times slower, and needs nothing but valgrind.
"""

import re
import shutil
from pathlib import Path
from typing import Protocol

from bench.cost import perf_event

CALLGRIND, PERF = "callgrind", "perf"

_MARKED_FUNCTION = "ctermid"
_DUMP = "callgrind"
_TOTALS = re.compile(rb"^totals: (\d+)$", re.MULTILINE)


class Counter(Protocol):
    @property
    def name(self) -> str: ...

    def command(self, directory: Path) -> list[str]:
        """Return what precedes the interpreter in the broker's command line. The counter's files go to `directory`."""
        ...

    def count(self, directory: Path, marks: list[int]) -> int:
        """Return the instructions between the last two marks. `marks` are the numbers in the file of marks."""
        ...


class Perf:
    name = PERF

    def command(self, directory: Path) -> list[str]:
        return []

    def count(self, directory: Path, marks: list[int]) -> int:
        return marks[-1] - marks[-2]


class Callgrind:
    name = CALLGRIND

    def __init__(self, valgrind: str = "valgrind") -> None:
        self._valgrind = valgrind

    def command(self, directory: Path) -> list[str]:
        options = [f"--dump-before={_MARKED_FUNCTION}", f"--callgrind-out-file={directory / _DUMP}", "--dump-line=no"]
        return [self._valgrind, "--tool=callgrind", *options]

    def count(self, directory: Path, marks: list[int]) -> int:
        dump = directory / f"{_DUMP}.{len(marks)}"
        found = _TOTALS.search(dump.read_bytes())
        if found is None:
            raise RuntimeError(f"{dump} has no totals")
        dump.unlink()
        return int(found[1])


def find_counter(preferred: str, *, only: bool = False) -> Counter | None:
    """Return the preferred counter if this machine has it, else another one unless `only`; None if there is none."""
    available: dict[str, Counter] = {}
    valgrind = shutil.which("valgrind")
    if valgrind is not None:
        available[CALLGRIND] = Callgrind(valgrind)
    if perf_event.is_supported():
        available[PERF] = Perf()
    others = [] if only else list(available.values())
    return available.get(preferred) or next(iter(others), None)
