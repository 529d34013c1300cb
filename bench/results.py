"""The results file: every value of every round, and everything that the report needs about the rows.

A run of some rows replaces only those; each row has the date and commit of its measurement.
"""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.model import Metric

KAFKA = "kafka"
ROOKERY = "rookery"
# The same source with its hot modules compiled (docs/decisions/0008).
COMPILED = "rookery-compiled"
# The compared clients: other Python clients, and Spark's connector.
PYTHON_CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python")
SPARK_KAFKA = "spark-sql-kafka"
CLIENTS = (*PYTHON_CLIENTS, SPARK_KAFKA)


@dataclass(slots=True, kw_only=True)
class RowResult:
    """The results of one row."""

    name: str
    title: str
    family: str
    metrics: list[Metric]
    # Metric name -> system -> one value for each round.
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    # System -> error; a row with an error has no values for that system.
    errors: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    timestamp: str = ""
    commit: str = ""
    scale: float = 1.0
    seconds: float = 0.0

    def add(self, system: str, values: Mapping[str, float]) -> None:
        for metric in self.metrics:
            self.values.setdefault(metric.name, {}).setdefault(system, []).append(values[metric.name])

    def fail(self, system: str, error: str) -> None:
        self.errors[system] = error
        for by_system in self.values.values():
            by_system.pop(system, None)

    def median(self, metric: Metric, system: str) -> float | None:
        values = self.values.get(metric.name, {}).get(system)
        return statistics.median(values) if values else None

    def spread(self, metric: Metric, system: str) -> float | None:
        """Return the distance between the lowest and the highest round, divided by the median."""
        values = self.values.get(metric.name, {}).get(system)
        if not values or len(values) < 2:
            return None
        median = statistics.median(values)
        return (max(values) - min(values)) / median if median else None

    def ratio(self, metric: Metric, system: str = ROOKERY, *, to: str = KAFKA) -> float | None:
        """Return Rookery's median divided by Kafka's, or by another client's."""
        ours, theirs = self.median(metric, system), self.median(metric, to)
        return ours / theirs if ours is not None and theirs else None

    def rounds(self, metric: Metric) -> int:
        return max((len(values) for values in self.values.get(metric.name, {}).values()), default=0)


@dataclass(slots=True, kw_only=True)
class Results:
    """The whole file."""

    machine: dict[str, str] = field(default_factory=dict)
    rows: list[RowResult] = field(default_factory=list)

    def merge(self, measured: Iterable[RowResult], order: list[str]) -> None:
        """Add new results. Rows that are not in `order` belong to an older benchmark and are removed."""
        by_name = {row.name: row for row in self.rows} | {row.name: row for row in measured}
        self.rows = [by_name[name] for name in order if name in by_name]


def load(path: Path) -> Results:
    """Load the file; returns empty results if there is none."""
    if not path.exists():
        return Results()
    data = json.loads(path.read_text())
    return Results(machine=data["machine"], rows=[_row(row) for row in data["rows"]])


def save(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(row), "values": _rounded(row.values)} for row in results.rows]
    path.write_text(json.dumps({"machine": results.machine, "rows": rows}, indent=1) + "\n")


def _row(data: dict[str, Any]) -> RowResult:
    return RowResult(**{**data, "metrics": [Metric(**metric) for metric in data["metrics"]]})


def _rounded(values: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """Round to six digits: further digits are noise, and make diffs of the file hard to read."""
    return {
        metric: {system: [float(f"{value:.6g}") for value in rounds] for system, rounds in by_system.items()}
        for metric, by_system in values.items()
    }
