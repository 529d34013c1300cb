"""From the preparation of a broker's data to the counts of operations.

The data is written by a broker that is not counted: to create 1,000 topics under valgrind takes a minute. The counted
broker then starts on the same directory. Operations that need 1,000 topics get another broker than the rest, because
the work of its background jobs grows with the number of partitions.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bench.cost.client import RunOnce
from bench.cost.counters import Counter
from bench.cost.operations import Operation, prepare_data
from bench.process import is_asleep
from bench.systems import ProcessBroker, Rookery

_EMPTY_WINDOWS = 9
_MARK_TIMEOUT_S = 300.0
_POLL_INTERVAL_S = 0.002
# Few partitions, over which background jobs go once a second; and no pause before a new group's first generation.
_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Counts(NamedTuple):
    """`instructions` by the names of the operations, and those of the calibration in the same environment."""

    calibration: int
    instructions: dict[str, int]


class CountedBroker:
    """Sets marks and returns the instructions between them."""

    def __init__(self, broker: ProcessBroker, counter: Counter, directory: Path) -> None:
        self._broker = broker
        self._counter = counter
        self._directory = directory
        self.calibration = counter.count(directory, self._marks())
        self._mark()
        # What a mark takes itself.
        self._overhead = min(self._mark() for _ in range(_EMPTY_WINDOWS))

    def count(self, operation: Operation) -> int:
        """Return the instructions per run in the cheapest of several windows.

        The others hold work of background jobs, which is done by the clock: the slower the machine, the more of it.
        """
        run = operation.prepare(self._broker.port)
        # The first window warms up.
        _, *counts = [self._count_window(run, operation.times) for _ in range(1 + operation.windows)]
        return min(counts)

    def _count_window(self, run: RunOnce, times: int) -> int:
        for _ in range(times):
            run()
        return (self._mark() - self._overhead) // times

    def _mark(self) -> int:
        """Set a mark and return the instructions since the last one."""
        expected = len(self._marks()) + 1
        # What the broker still does after the last reply belongs before the mark, and the end of the signal's handler
        # before the next request: a turn of the event loop for both is cheaper than two.
        self._await(self._is_idle)
        self._broker.send_signal(signal.SIGUSR1)
        self._await(lambda: len(self._marks()) == expected)
        self._await(self._is_idle)
        return self._counter.count(self._directory, self._marks())

    def _is_idle(self) -> bool:
        """Whether the broker waits for an event, for longer than a thread waits for another one."""
        before_s = self._broker.cpu_seconds()
        time.sleep(_POLL_INTERVAL_S)
        return is_asleep(self._broker.pid) and self._broker.cpu_seconds() == before_s

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _MARK_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline_s or not self._broker.is_running():
                raise RuntimeError(f"the counted broker does not respond\n{self._broker.log()}")
            time.sleep(_POLL_INTERVAL_S)

    def _marks(self) -> list[int]:
        return [int(line) for line in _marks_path(self._directory).read_text().splitlines()]


def _marks_path(directory: Path) -> Path:
    return directory / "marks"


@contextmanager
def counted_broker(counter: Counter, directory: Path, *, topics: int = 0) -> Iterator[CountedBroker]:
    """Run a broker below `directory`, with at least that many topics."""
    plain = Rookery().start(directory, _SETTINGS)
    try:
        prepare_data(plain.port, topics)
    finally:
        plain.stop()
    # Hashes of strings decide how often dictionaries collide.
    command = ["env", "PYTHONHASHSEED=0", *counter.command(directory), sys.executable]
    command += ["-m", "bench.cost.counted", counter.name, str(_marks_path(directory))]
    broker = Rookery(command=command).start(directory, _SETTINGS)
    try:
        yield CountedBroker(broker, counter, directory)
    finally:
        broker.kill()


def count_all(
    operations: Sequence[Operation],
    counter: Counter,
    directory: Path,
    *,
    report: Callable[[str], None] = lambda text: None,
) -> Counts:
    """Count each of the operations; `report` gets a line about what is being done."""
    calibrations: list[int] = []
    instructions: dict[str, int] = {}
    for topics, group in _by_topics(operations):
        report(f"starting a broker with {topics or 'few'} topics ...")
        with counted_broker(counter, directory / f"topics-{topics}", topics=topics) as broker:
            calibrations.append(broker.calibration)
            for operation in group:
                report(f"{operation.title} ...")
                instructions[operation.name] = broker.count(operation)
    return Counts(calibrations[0], {operation.name: instructions[operation.name] for operation in operations})


def _by_topics(operations: Sequence[Operation]) -> Iterable[tuple[int, Iterator[Operation]]]:
    return groupby(sorted(operations, key=lambda operation: operation.topics), lambda operation: operation.topics)
