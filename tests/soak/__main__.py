"""Kills Spark's drivers, workers and brokers, and counts the rows of the output: `python -m tests.soak --runs 100`.

A run is one driver that is hit by one event. A series is a few runs of one query; after each series a last driver
finishes the query, and every row must have been written once. The first events are the named steps, each once, then
random events. Every fourth series runs on a cluster of two workers, where slowed tasks get speculative copies. A seed
determines the events, but not their exact timing.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

from rookery.testing.embedded import EmbeddedBroker
from tests.soak.cluster import SPECULATION, cluster
from tests.soak.series import COMMIT_STEPS, Event, Series, killed_at, random_event
from tests.spark.sink.faulty_sink import arm

_RUNS_PER_SERIES = 3
_CLUSTER_EVERY = 4
_FILES_PER_RUN = 3
_LAST_DRIVERS_MAX = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="all series on a cluster")
    arguments = parser.parse_args()
    randomness = Random(arguments.seed)
    events = [killed_at(step) for step in COMMIT_STEPS]
    events += [random_event(randomness) for _ in range(arguments.runs - len(events))]
    directory = Path(tempfile.mkdtemp(prefix="rookery-soak-"))
    print(f"{arguments.runs} runs, seed {arguments.seed}, in {directory}", flush=True)
    with EmbeddedBroker(mode="process", data_dir=directory / "broker") as broker:
        for number, start in enumerate(range(0, arguments.runs, _RUNS_PER_SERIES), 1):
            some = events[start : start + _RUNS_PER_SERIES]
            where = directory / f"series-{start}"
            if arguments.cluster or number % _CLUSTER_EVERY == 0:
                with cluster(directory / f"cluster-{start}") as master:
                    series = Series(broker, where, f"soak-{start}", master=master, settings=SPECULATION)
                    is_right = run(series, some, start, is_slow=True)
            else:
                is_right = run(Series(broker, where, f"soak-{start}"), some, start, is_slow=False)
            if not is_right:
                return 1
    shutil.rmtree(directory)
    print(f"{arguments.runs} runs, every row once", flush=True)
    return 0


def run(series: Series, events: list[Event], start: int, *, is_slow: bool) -> bool:
    for number, event in enumerate(events, start + 1):
        # Each run needs work to do, independent of the runs before.
        series.add_files(_FILES_PER_RUN)
        if is_slow:
            arm(series.directory / "faults", "task is slow")
        code = series.run_driver(event)
        print(f"run {number:4}: {event.name}{' (cluster)' if is_slow else ''}: exit {code}", flush=True)
    for _ in range(_LAST_DRIVERS_MAX):
        # A fault that was armed but has not happened may still happen to this driver.
        if series.run_driver(None) == 0:
            break
    else:
        print(f"series {start}: the query does not finish, see {series.directory}", flush=True)
        return False
    wrong = series.difference()
    if wrong:
        print(f"series {start}: rows found and expected: {wrong}, see {series.directory}", flush=True)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
