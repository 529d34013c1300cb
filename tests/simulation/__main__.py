"""`python -m tests.simulation --seeds 1..200`: run simulated worlds, several at a time, and report the violations."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from tests.simulation.run import FAULTS_S
from tests.simulation.scenarios import SCENARIOS, Outcome, scenario_for, simulate

_LINES_SHOWN = 60


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    failed = count = 0
    seeds = [seed for text in options.seeds for seed in _seeds(text)]
    started_s = time.monotonic()
    with ExitStack() as stack:
        for count, outcome in enumerate(_outcomes(stack, seeds, options), 1):
            if options.digest:
                print(f"{outcome.seed} {outcome.scenario} {outcome.step_count} {outcome.digest}")
            if options.trace:
                print("\n".join(outcome.lines))
            if outcome.violations:
                failed += 1
                _report(outcome)
                if options.first:
                    break
            elif not options.digest:
                _show_progress(outcome, count, len(seeds), time.monotonic() - started_s)
    if not options.digest:
        print(f"\n{count - failed} of {count} worlds are clean ({time.monotonic() - started_s:.0f} s)")
    return 1 if failed else 0


def _outcomes(stack: ExitStack, seeds: Sequence[int], options: argparse.Namespace) -> Iterator[Outcome]:
    """Return the outcomes in the order of the seeds."""
    run = partial(_run, options.scenario, options.seconds)
    jobs = min(options.jobs, len(seeds))
    if jobs <= 1:
        return map(run, seeds)
    pool = stack.enter_context(ProcessPoolExecutor(jobs))
    # After `--first` has found a failure, the worlds that have not begun are left out.
    stack.callback(pool.shutdown, cancel_futures=True)
    return pool.map(run, seeds)


def _run(scenario: str | None, faults_s: float, seed: int) -> Outcome:
    chosen = SCENARIOS[scenario] if scenario else scenario_for(seed)
    return simulate(seed, replace(chosen, faults_s=faults_s))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", nargs="+", default=["1..100"], help="numbers and ranges, such as 7 or 1..200")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="only this one; by default the seed chooses")
    parser.add_argument("--seconds", type=float, default=FAULTS_S, help="how long faults happen in each world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many worlds run at a time")
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print the last lines of the trace, for clean runs too")
    parser.add_argument("--digest", action="store_true", help="print the hash of all events")
    return parser.parse_args(arguments)


def _seeds(text: str) -> Iterator[int]:
    first, _, last = text.partition("..")
    yield from range(int(first), int(last or first) + 1)


def _report(outcome: Outcome) -> None:
    print(f"\nFAILED  seed {outcome.seed}, scenario {outcome.scenario}, commit {_commit()}")
    for violation in outcome.violations:
        print(f"  {violation}")
    print("the last events:")
    print("\n".join(f"  {line}" for line in outcome.lines[-_LINES_SHOWN:]))
    print(
        f"reproduce: .venv/bin/python -m tests.simulation --seeds {outcome.seed} --scenario {outcome.scenario} "
        f"--seconds {outcome.faults_s:g} --trace"
    )


def _commit() -> str:
    """Return the checked-out commit, marked if the tree differs from it."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def _show_progress(outcome: Outcome, count: int, total: int, elapsed_s: float) -> None:
    print(
        f"\r{count}/{total}  seed {outcome.seed} {outcome.scenario}: {outcome.simulated_s:.0f} simulated s, "
        f"{outcome.counts.acknowledged} acknowledged, {outcome.counts.read} read, "
        f"{outcome.counts.commits} commits, {outcome.counts.generations} generations  ({elapsed_s:.0f} s)\033[K",
        end="",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
