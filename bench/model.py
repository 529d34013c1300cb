"""The model of the benchmark: rows, their metrics, and the input of a row's run.

A row is one experiment. It runs for one system and one round at a time and returns one value for each of its metrics.
The runner (bench.runner) decides the order and the number of runs, and stores the values.
"""

from collections.abc import Callable, Mapping, Sequence
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
    """A broker in its own process."""

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port`."""

    @property
    def port(self) -> int: ...

    def address(self, protocol: str) -> str:
        """Return `127.0.0.1:port` of the listener with a security protocol."""

    @property
    def pid(self) -> int: ...

    def is_running(self) -> bool:
        """Return whether the process runs, serving or not."""

    def cpu_seconds(self) -> float:
        """Return the user and system time of all its threads so far."""

    def rss_bytes(self) -> int:
        """Return the current resident memory."""

    def stop(self) -> None:
        """Stop it with SIGTERM and wait; it may already have ended."""

    def kill(self) -> None:
        """Kill it with SIGKILL: nothing is flushed, no handler runs."""


class System(Protocol):
    """One of the compared systems."""

    @property
    def name(self) -> str:
        """`rookery` or `kafka`."""

    def prepare(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """Prepare a data directory before the first start on it (Kafka: format it)."""

    def spawn(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> Broker:
        """Start the process on a prepared directory and return immediately, before it serves.

        `protocols` are security protocols, each of which gets a listener besides the plaintext one.
        """

    def start(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> Broker:
        """Prepare the directory if needed, spawn the process, and return when it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """How the long-running brokers of a row are started."""

    name: str
    # The security protocols of further listeners.
    protocols: tuple[str, ...] = ()
    # Returns the settings, the same for all systems. They may name files, which it makes in the directory if they are
    # not there: all systems and deployments share it.
    settings: Callable[[Path], Mapping[str, str]] = lambda directory: {}
    # Is called when the broker serves.
    prepare: Callable[[Broker], None] = lambda broker: None


# As the systems are shipped.
PLAIN = Deployment(name="plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One line of the report.

    `goal` is a bound of the ratio rookery/kafka, unless it has a unit, `<= 0.4 s`, or a client, `>= 1.5 x aiokafka`.
    """

    name: str
    unit: str
    better: Direction
    goal: str | None = None


@dataclass(slots=True, kw_only=True)
class Bench:
    """The input of a row for one run."""

    system: System
    # The files that settings of the deployments name.
    files: Path
    # The long-running brokers of the system, by the names of their deployments; only `shared` rows may use them.
    shared_brokers: Mapping[str, Broker]
    # A scratch directory, emptied after the run.
    directory: Path
    # 1.0 is full size.
    scale: float
    round: int
    # A directory that is kept for all rounds of one row and system, for preparations that are too slow to repeat.
    kept_directory: Path
    # The contestant: the system's name, or the client's in a row that compares clients.
    contestant: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def broker(self) -> Broker:
        """The broker of the row's first deployment."""
        assert self.shared_brokers, "a row that uses the shared broker needs shared=True"
        return next(iter(self.shared_brokers.values()))

    def scaled(self, full: int, *, minimum: int = 1) -> int:
        """Return a size of the full run, scaled for this run."""
        return max(minimum, int(full * self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment, which has one or more metrics."""

    # Such as "produce/1KB/12p/lz4/acks=1"; the patterns of `--rows` match it.
    name: str
    title: str
    # The section of the report.
    family: str
    metrics: tuple[Metric, ...]
    run: Callable[[Bench], Mapping[str, float]]
    # True: uses the long-running broker of the system (a warm JVM); False: starts its own.
    shared: bool = True
    # Those of the long-running brokers that the row uses.
    deployments: tuple[Deployment, ...] = (PLAIN,)
    # False: needs no broker, and runs once per round with the name `floor`.
    compared: bool = True
    # Clients that take turns on the broker of the first system, instead of the systems.
    contestants: tuple[str, ...] = ()
    # Slow rows run fewer rounds than the others.
    rounds_max: int | None = None
    # Rows that start their own broker have nothing to warm up.
    warm_up: bool = True
