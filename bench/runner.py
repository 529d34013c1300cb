"""Runs the rows: their order, their rounds, and their failures.

For each row, a round that is not counted warms up both systems (several, if their brokers have just started); then they
take turns (rookery, kafka, kafka, rookery, ...), so that neither always runs after the other. Rows with the shared
brokers run first, those with plain ones before those with other deployments. Brokers are stopped before a row that does
not use them, so that during a measurement only its own brokers run, and those of the other system, which are idle. The
failure of a row is recorded, and the run continues.
"""

import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.model import FLOOR, PLAIN, WARM_UP_ROUND, Bench, Broker, Deployment, Row, System
from bench.results import RowResult

# The broker's JVM compiles its hot code within a fraction of a full round.
WARM_UP_PART = 0.4
# A JVM that has just started is slow.
COLD_WARM_UPS = 5


class Turn(NamedTuple):
    """One run of a row. `name` is the name of the system or client, or `floor`."""

    round: int
    system: System
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rows to run, and the settings of the run."""

    rows: Sequence[Row]
    systems: Sequence[System]
    rounds: int
    scale: float
    warm_up: bool
    directory: Path
    commit: str

    def rounds_of(self, row: Row) -> int:
        return self.rounds if row.rounds_max is None else min(self.rounds, row.rounds_max)

    def turns(self, row: Row) -> Iterator[Turn]:
        """Yield the runs of each round, in order."""
        first = WARM_UP_ROUND if self.warm_up and row.warm_up else 0
        for round_number in range(first, self.rounds_of(row)):
            contestants = self._contestants(row)
            for system, name in contestants if round_number % 2 == 0 else contestants[::-1]:
                yield Turn(round_number, system, name)

    def _contestants(self, row: Row) -> list[tuple[System, str]]:
        if row.contestants:
            return [(self.systems[0], name) for name in row.contestants]
        if not row.compared:
            return [(self.systems[0], FLOOR)]
        return [(system, system.name) for system in self.systems]


def select(rows: Sequence[Row], patterns: str) -> list[Row]:
    """Return the rows whose name, or a leading part of it, matches one of the patterns, such as `produce/*,startup`."""
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    for pattern in wanted:
        if not any(_matches(row.name, pattern) for row in rows):
            raise ValueError(f"no row is named {pattern}; --list shows them")
    return [row for row in rows if not wanted or any(_matches(row.name, pattern) for pattern in wanted)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")


@dataclass(slots=True)
class Runner:
    """One run of the benchmark."""

    plan: Plan
    console: Console
    # By the names of the deployment and the system.
    _brokers: dict[tuple[str, str], Broker] = field(default_factory=dict)
    # The shared brokers that have run for a while.
    _warm: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> Iterator[RowResult]:
        """Yield each result immediately, so that an interrupted run keeps its results."""
        ordered = sorted(self.plan.rows, key=_order)
        turns = sum(len(list(self.plan.turns(row))) for row in ordered)
        try:
            with _progress(self.console) as progress:
                task = progress.add_task("", total=turns)
                for row in ordered:
                    if row.compared:
                        self._stop_brokers(besides=row.deployments if row.shared else ())
                    result = self._run_row(row, progress, task)
                    _print_result(self.console, result)
                    if result.errors:
                        # The next row gets new brokers, which are not affected by the failure.
                        self._stop_brokers()
                    yield result
        finally:
            self._stop_brokers()
            shutil.rmtree(self._files, ignore_errors=True)

    def _run_row(self, row: Row, progress: Progress, task: TaskID) -> RowResult:
        result = RowResult(name=row.name, title=row.title, family=row.family, metrics=list(row.metrics))
        result.commit, result.scale = self.plan.commit, self.plan.scale
        result.timestamp = datetime.now(UTC).isoformat(timespec="seconds")
        started = time.monotonic()
        for turn in self.plan.turns(row):
            label = "warm-up" if turn.round == WARM_UP_ROUND else f"round {turn.round + 1}"
            progress.update(task, description=f"{row.name} · {turn.name} · {label}")
            if turn.name not in result.errors:
                self._run_turn(row, turn, result)
            progress.advance(task)
        shutil.rmtree(self._kept(row), ignore_errors=True)
        result.seconds = round(time.monotonic() - started, 1)
        return result

    def _run_turn(self, row: Row, turn: Turn, result: RowResult) -> None:
        round_number, system, name = turn
        scratch = self.plan.directory / "scratch" / f"{_path_name(row.name)}-{name}"
        kept = self._kept(row) / name
        try:
            for directory in (scratch, kept):
                directory.mkdir(parents=True, exist_ok=True)
            bench = Bench(
                system=system,
                files=self._files,
                shared_brokers=self._shared(row, system) if row.shared and row.compared else {},
                directory=scratch,
                scale=self.plan.scale * (WARM_UP_PART if round_number == WARM_UP_ROUND else 1.0),
                round=round_number,
                kept_directory=kept,
                contestant=name,
            )
            for _ in range(self._repetitions(row, bench)):
                values = row.run(bench)
            if round_number != WARM_UP_ROUND:
                result.add(name, values)
                result.notes += [note for note in bench.notes if note not in result.notes]
        except Exception as error:
            result.fail(name, f"{type(error).__name__}: {error}")
            self.console.print(traceback.format_exc(), style="dim", highlight=False, markup=False)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _repetitions(self, row: Row, bench: Bench) -> int:
        if bench.round != WARM_UP_ROUND or not row.shared:
            return 1
        used = {(deployment.name, bench.system.name) for deployment in row.deployments}
        if used <= self._warm:
            return 1
        self._warm |= used
        return COLD_WARM_UPS

    def _shared(self, row: Row, system: System) -> dict[str, Broker]:
        """Return the system's long-running brokers; those of all systems are started before the first row that uses
        them."""
        for deployment in row.deployments:
            for each in self.plan.systems:
                if (deployment.name, each.name) not in self._brokers:
                    self._brokers[deployment.name, each.name] = self._start(deployment, each)
        return {deployment.name: self._brokers[deployment.name, system.name] for deployment in row.deployments}

    def _start(self, deployment: Deployment, system: System) -> Broker:
        directory = self._shared_directory(deployment.name, system.name)
        shutil.rmtree(directory, ignore_errors=True)
        self._files.mkdir(parents=True, exist_ok=True)
        broker = system.start(directory, deployment.settings(self._files), deployment.protocols)
        try:
            deployment.prepare(broker)
        except BaseException:
            broker.stop()
            raise
        return broker

    def _stop_brokers(self, besides: Sequence[Deployment] = ()) -> None:
        kept = {deployment.name for deployment in besides}
        stopped = [names for names in self._brokers if names[0] not in kept]
        brokers = [self._brokers.pop(names) for names in stopped]
        self._warm.difference_update(stopped)
        for broker in brokers:
            broker.stop()
        for names in stopped:
            shutil.rmtree(self._shared_directory(*names), ignore_errors=True)

    def _shared_directory(self, deployment: str, system: str) -> Path:
        return self.plan.directory / "shared" / deployment / system

    @property
    def _files(self) -> Path:
        return self.plan.directory / "files"

    def _kept(self, row: Row) -> Path:
        return self.plan.directory / "kept" / _path_name(row.name)


def _order(row: Row) -> int:
    if row.shared or not row.compared:
        return 0 if row.deployments == (PLAIN,) else 1
    return 2


def _path_name(name: str) -> str:
    return name.replace("/", "-")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _print_result(console: Console, result: RowResult) -> None:
    for system, error in result.errors.items():
        console.print(f"[red]✗[/] {result.name} · {system}: {error.splitlines()[0]}", highlight=False, soft_wrap=True)
    for metric in result.metrics:
        by_system = result.values.get(metric.name, {})
        medians = {system: result.median(metric, system) for system in by_system}
        parts = [f"{system} {median:,.4g}" for system, median in medians.items() if median is not None]
        ratio = result.ratio(metric)
        if parts:
            shown = f" · ratio {ratio:.2f} ({metric.better} is better)" if ratio is not None else ""
            console.print(f"{metric.name}: {' · '.join(parts)} {metric.unit}{shown}", highlight=False, soft_wrap=True)
