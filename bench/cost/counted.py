"""`rookery start` in a process that reports its instruction count at marks.

    python -m bench.cost.counted COUNTER MARKS_FILE start ...

A mark ends one count and begins the next. Two marks enclose the calibration, before the broker starts; each SIGUSR1
sets another one. A mark appends a line to MARKS_FILE: with the counter `perf`, the processor's count so far. With
`callgrind` the line is 0, and valgrind writes a file of counts whenever libc's `ctermid` is called, which nothing else
in this process calls.

From the first signal on, the garbage collector is off: the time of its runs depends on all earlier allocations.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable

from bench.cost.calibration import calibrate
from bench.cost.counters import CALLGRIND
from bench.cost.perf_event import PerfEvent


def run(read_count: Callable[[], int], marks: int) -> None:
    """Run the `rookery` command of `sys.argv`. `marks` is the descriptor of the file of marks."""

    def mark() -> None:
        os.write(marks, b"%d\n" % read_count())

    def on_signal(number: int, frame: object) -> None:
        gc.disable()
        mark()

    signal.signal(signal.SIGUSR1, on_signal)
    # The first run specialises the bytecode.
    calibrate()
    mark()
    calibrate()
    mark()
    # Not imported before: the calibration's count must not depend on Rookery.
    from rookery.cli.main import main

    main()


def _let_callgrind_dump() -> int:
    os.ctermid()
    return 0


def _main() -> None:
    program, counter, marks_path, *arguments = sys.argv
    marks = os.open(marks_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.argv = [program, *arguments]
    run(_let_callgrind_dump if counter == CALLGRIND else PerfEvent().read, marks)


if __name__ == "__main__":
    _main()
