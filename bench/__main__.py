"""`make bench`: measures both systems side by side, and writes the page that compares them."""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from bench import machine, report, results
from bench.rows import ROWS
from bench.runner import Plan, Runner, select
from bench.systems import systems

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_JARS = Path(os.environ.get("ROOKERY_BENCH_JARS", ROOT / ".cache" / "java"))
COMPILED_PYTHON = ROOT / ".cache" / "compiled" / "bin" / "python"
RESULTS_NAME = Path("performance") / "results.json"


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console()
    if options.list:
        for row in ROWS:
            console.print(f"{row.name}  [dim]{row.title}[/]", highlight=False, soft_wrap=True)
        return 0
    path = options.output / RESULTS_NAME
    if options.report_only:
        report.write(results.load(path), options.output)
        return 0
    try:
        compared = systems(options.systems.split(","), jars=options.jars, compiled_python=COMPILED_PYTHON)
        rows = select(ROWS, options.rows)
    except (ValueError, FileNotFoundError) as error:
        console.print(f"[red]error:[/] {error}", highlight=False, soft_wrap=True)
        return 2
    plan = Plan(
        rows=rows,
        systems=compared,
        rounds=options.rounds,
        scale=options.scale,
        warm_up=options.warm_up,
        directory=options.directory.resolve(),
        commit=machine.commit(),
    )
    found = results.load(path)
    found.machine = machine.describe(options.directory, options.jars)
    failed = []
    for measured in Runner(plan, console).run():
        found.merge([measured], [row.name for row in ROWS])
        results.save(found, path)
        failed += [measured.name] if measured.errors else []
    report.write(found, options.output)
    console.print(f"[red]failed: {', '.join(failed)}[/]" if failed else "[green]every row ran[/]", highlight=False)
    return 1 if failed else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("--rows", default="", help="patterns, comma separated: 'produce/*,startup'; by default all rows")
    add("--rounds", type=int, default=3, help="measured rounds for each row and system")
    add("--scale", type=float, default=1.0, help="size of the loads; less than 1 for a quick run")
    add("--systems", default="rookery,kafka", help="the systems to run: rookery, rookery-compiled, kafka")
    add("--no-warm-up", dest="warm_up", action="store_false", help="skip the round that is not counted")
    add("--directory", type=Path, default=ROOT / ".cache" / "bench", help="the directory for the data of all systems")
    add("--jars", type=Path, default=DEFAULT_JARS, help="Apache Kafka's jars, by default ROOKERY_BENCH_JARS")
    add("--output", type=Path, default=ROOT / "docs", help="where performance.md and performance/ are written")
    add("--report-only", action="store_true", help="write the page again from the existing results")
    add("--list", action="store_true", help="list the rows")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
