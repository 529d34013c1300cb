"""Counts that are compared with the baseline, with a second try for what looks dearer."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.cost import environment
from bench.cost.baseline import Baseline, Comparison, compare
from bench.cost.counters import Counter
from bench.cost.operations import Operation
from bench.cost.session import Counts, count_all


def count_and_compare(
    known: Baseline,
    operations: Sequence[Operation],
    counter: Counter,
    directory: Path,
    *,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[Counts, Comparison]:
    """Count the operations, and those again that are dearer than allowed; the lower count is the result.

    A disturbance only adds to a count: on a machine so busy that each window takes seconds, background jobs are in all
    of them. A change of the code is in the second count too.
    """
    here = environment.describe(counter.name)
    counts = count_all(operations, counter, directory / "first", report=report)
    comparison = compare(known, counts, here)
    dearer = {row.name for row in comparison.rows if row.expected is not None and comparison.is_dearer(row)}
    if not dearer:
        return counts, comparison
    again = [operation for operation in operations if operation.name in dearer]
    second = count_all(again, counter, directory / "second", report=report).instructions
    lower = {name: min(count, second.get(name, count)) for name, count in counts.instructions.items()}
    counts = Counts(counts.calibration, lower)
    return counts, compare(known, counts, here)
