"""`make cost`: count all operations and compare them with the baseline; `--update` makes the counts the baseline."""

import argparse
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console

from bench.cost import baseline, environment, report
from bench.cost.baseline import Baseline
from bench.cost.counters import CALLGRIND, PERF, find_counter
from bench.cost.operations import OPERATIONS
from bench.cost.run import count_and_compare
from bench.cost.session import Counts

MISSING = "this machine has neither valgrind nor a processor that counts instructions. Run: apt-get install valgrind"


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console(soft_wrap=True, highlight=False)
    known = baseline.load(options.baseline)
    counter = find_counter(options.counter or known.environment["counter"], only=bool(options.counter))
    operations = [one for one in OPERATIONS if any(fnmatch(one.name, part) for part in options.operations.split(","))]
    if counter is None or not operations:
        names = ", ".join(one.name for one in OPERATIONS)
        console.print(f"error: {MISSING if counter is None else f'no such operation; there are {names}'}")
        return 2
    with tempfile.TemporaryDirectory(prefix="rookery-cost-") as directory, console.status("") as status:
        counts, comparison = count_and_compare(known, operations, counter, Path(directory), report=status.update)
    console.print(report.table(comparison))
    console.print(report.explain_environment(comparison))
    if options.update:
        new = merge(known, counts, environment.describe(counter.name))
        baseline.save(new, options.baseline)
        options.page.write_text(report.refresh(options.page.read_text(), new))
        return 0
    problems = report.failures(comparison)
    console.print(report.join([*problems, *report.improvements(comparison)]))
    return 1 if problems else 0


def merge(known: Baseline, counts: Counts, where: dict[str, str]) -> Baseline:
    """Return the counts as a baseline. Operations that were not counted keep theirs within the same environment."""
    order = [operation.name for operation in OPERATIONS]
    kept = {} if baseline.compare(known, counts, where).differences else known.instructions
    found = {**kept, **counts.instructions}
    return Baseline(where, counts.calibration, {name: found[name] for name in order if name in found})


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.cost", description=__doc__)
    add = parser.add_argument
    add("--operations", default="*", help="patterns of names, comma separated: 'produce-*,heartbeat'")
    add("--counter", choices=(CALLGRIND, PERF), default="", help="by default the baseline's if the machine has it")
    add("--update", action="store_true", help="make the counts the baseline, and write the table of docs/cost.md")
    add("--baseline", type=Path, default=baseline.PATH, help="the file of the baseline")
    add("--page", type=Path, default=report.PAGE, help="the page with the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
