"""What the benchmark is made of: rows, their metrics, and what a row is given to run with.

A row is one experiment. It runs for one system and one round at a time and returns one value for each of its metrics;
who goes first, how often, and what becomes of the values is the runner's business (bench.runner).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Direction = Literal["higher", "lower"]
WARM_UP_ROUND = -1
# The name under which rows that need no broker (raw sockets, raw files) are recorded.
FLOOR = "floor"
MEGABYTE = 1e6
GIGABYTE = 1e9


class Broker(Protocol):
    """A broker in a process of its own."""

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port`."""

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...

    def is_running(self) -> bool:
        """Whether the process is there, serving or not."""

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""

    def rss_bytes(self) -> int:
        """Resident memory now."""

    def stop(self) -> None:
        """SIGTERM, and wait; no error if it is gone already."""

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no handler runs."""


class System(Protocol):
    """One of the two that are compared."""

    @property
    def name(self) -> str:
        """`rookery` or `kafka`."""

    def prepare(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """What must be done once before the first start on a data directory (Kafka: format it)."""

    def spawn(self, directory: Path, settings: Mapping[str, str] | None = None) -> Broker:
        """Start the process on a prepared directory and return at once, before it serves."""

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Broker:
        """Prepare if needed, spawn, and return when it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One line of the report.

    `goal` bounds the ratio rookery/kafka, unless it names a unit, `<= 0.4 s`, or another client, `>= 1.5 x aiokafka`.
    """

    name: str
    unit: str
    better: Direction
    goal: str | None = None


@dataclass(slots=True, kw_only=True)
class Bench:
    """What a row gets for one run."""

    system: System
    # The long-running broker of the system; only rows that are `shared` may touch it.
    shared_broker: Broker | None
    # Scratch, emptied after the run.
    directory: Path
    # 1.0 is full size.
    scale: float
    round: int
    # Kept over the rounds of one row and system, for preparations that are too slow to repeat.
    kept_directory: Path
    # The contestant: the system's name, or the client's in a row that compares clients.
    contestant: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def broker(self) -> Broker:
        assert self.shared_broker is not None, "a row that uses the shared broker says so: shared=True"
        return self.shared_broker

    def scaled(self, full: int, *, minimum: int = 1) -> int:
        """A size of the full run, brought down to this one's scale."""
        return max(minimum, int(full * self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment, which gives one or more metrics."""

    # "produce/1KB/12p/lz4/acks=1": what the patterns of `--rows` select from.
    name: str
    title: str
    # The section of the report.
    family: str
    metrics: tuple[Metric, ...]
    run: Callable[[Bench], Mapping[str, float]]
    # True: uses the long-running broker of the system (a warm JVM); False: starts its own.
    shared: bool = True
    # False: needs no broker at all, and runs once a round under the name `floor`.
    compared: bool = True
    # Clients that take turns on the broker of the first system, instead of the systems.
    contestants: tuple[str, ...] = ()
    # Slow rows run fewer rounds than the others.
    rounds_max: int | None = None
    # Rows that start a broker of their own have nothing to warm up.
    warm_up: bool = True
