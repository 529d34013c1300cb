"""The instructions per request are those of the committed baseline (docs/cost.md). `make cost` shows them all."""

import itertools
import warnings
from pathlib import Path

import pytest

from bench.cost import baseline, environment, report
from bench.cost.__main__ import MISSING
from bench.cost.baseline import Baseline, Comparison
from bench.cost.client import RunOnce
from bench.cost.counters import find_counter
from bench.cost.operations import OPERATIONS, Operation
from bench.cost.run import count_and_compare
from bench.cost.session import Counts

ONE_IN = 20


def prepare_planted(port: int) -> RunOnce:
    """ApiVersions, with one request more than there should be for every twenty."""
    run = _api_versions().prepare(port)
    numbers = itertools.count(1)

    def run_planted() -> None:
        run()
        if next(numbers) % ONE_IN == 0:
            run()

    return run_planted


def _api_versions() -> Operation:
    return next(operation for operation in OPERATIONS if operation.name == "api-versions")


# Under valgrind a broker starts in ten seconds if nothing else runs.
@pytest.mark.timeout(900)
def test_no_operation_costs_more_than_its_baseline(tmp_path: Path) -> None:
    known = baseline.load()
    counter = find_counter(known.environment["counter"])
    if counter is None:
        pytest.skip(MISSING)
    planted = Operation("planted", "ApiVersions and 5 % more", prepare_planted, times=ONE_IN)
    counts, comparison = count_and_compare(known, [*OPERATIONS, planted], counter, tmp_path)
    rows = [row for row in comparison.rows if row.name != planted.name]
    comparison = Comparison(rows, comparison.differences)
    failures = report.failures(comparison)
    assert not failures, f"{report.explain_environment(comparison)}\n{report.join(failures)}"
    for sentence in report.improvements(comparison):
        warnings.warn(sentence, stacklevel=1)

    here = environment.describe(counter.name)
    own = Baseline(here, counts.calibration, counts.instructions)
    dearer = Counts(counts.calibration, {"api-versions": counts.instructions[planted.name]})
    assert report.failures(baseline.compare(own, dearer, here)), "five percent more go unnoticed"
