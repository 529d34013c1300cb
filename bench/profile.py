"""`make profile`: shows where the broker spends its time, as flame graphs and lists of the most expensive functions.

Rookery runs as `rookery start`; each scenario repeatedly runs one of the benchmark's loads, while py-spy samples the
stacks 500 times per second: first for the flame graph, then for the list. Waiting threads are left out, as far as
py-spy detects them. `Runner.run` is the event loop: the work of uvloop in C, and some of its waiting.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.load import Load, run_loads
from bench.model import Broker
from bench.systems import Rookery
from bench.topics import topic, topics

ROOT = Path(__file__).resolve().parent.parent
RATE_HZ = 500
_PARTITIONS = 12
_RECORD_BYTES = 1000
_RECORDS = 500_000
_CONNECTIONS = 64
_METADATA_TOPICS = 1000
_REQUESTS_S = 4.0
_LISTED = 40
# A pool thread that waits for work; py-spy counts it as busy.
_WAITING_WORKER = "_worker (concurrent/futures/thread.py"

# Runs the load once; called repeatedly until the recordings have ended.
RunLoad = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    prepare: Callable[[Broker, ExitStack], RunLoad]


def _batched(broker: Broker, name: str, action: str) -> Load:
    options = {
        "bootstrap": broker.bootstrap,
        "topic": name,
        "partitions": _PARTITIONS,
        "record_bytes": _RECORD_BYTES,
        "records": _RECORDS,
        "settings": {},
    }
    return Load("bench.librdkafka", action, options)


def _produce(broker: Broker, stack: ExitStack) -> RunLoad:
    def run() -> None:
        with topic(broker, _PARTITIONS) as name:
            run_loads([_batched(broker, name, "produce")], broker)

    return run


def _fetch(broker: Broker, stack: ExitStack) -> RunLoad:
    name = stack.enter_context(topic(broker, _PARTITIONS))
    run_loads([_batched(broker, name, "produce")], broker)
    return lambda: _run(broker, _batched(broker, name, "consume"))


def _tiny_produces(broker: Broker, stack: ExitStack) -> RunLoad:
    name = stack.enter_context(topic(broker, _PARTITIONS))
    return lambda: _run(broker, _requests(broker, "produce", [name], partitions=_PARTITIONS))


def _metadata(broker: Broker, stack: ExitStack) -> RunLoad:
    names = stack.enter_context(topics(broker, _METADATA_TOPICS, partitions=1))
    return lambda: _run(broker, _requests(broker, "metadata", names, partitions=1))


def _requests(broker: Broker, kind: str, names: list[str], *, partitions: int) -> Load:
    options = {
        "port": broker.port,
        "kind": kind,
        "connections": _CONNECTIONS,
        "duration_s": _REQUESTS_S,
        "topics": names,
        "partitions": partitions,
    }
    return Load("bench.wire", "requests", options)


def _run(broker: Broker, load: Load) -> None:
    run_loads([load], broker)


SCENARIOS = (
    Scenario("produce", _produce),
    Scenario("fetch", _fetch),
    Scenario("tiny-produces", _tiny_produces),
    Scenario("metadata", _metadata),
)


@dataclass(frozen=True, slots=True)
class Recorder:
    """py-spy, for one broker."""

    pid: int
    seconds: float
    native: bool

    def record(self, path: Path, *, raw: bool) -> None:
        command = [shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy", "record"]
        command += ["--pid", str(self.pid), "--rate", str(RATE_HZ), "--duration", f"{self.seconds:.0f}"]
        command += ["--format", "raw" if raw else "flamegraph", "--output", str(path), "--threads"]
        # The list shows functions; the graph shows lines.
        command += ["--function"] * raw + ["--native"] * self.native
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"py-spy failed: {done.stderr}{done.stdout}")


def self_times(stacks: Iterable[str]) -> Counter[str]:
    """Return the samples of each function at the top of the stack, from py-spy's raw format: `outer;inner 17`."""
    samples: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        function = stack.rpartition(";")[2]
        if not function.startswith(_WAITING_WORKER):
            samples[function] += int(count)
    return samples


def list_self_times(samples: Counter[str]) -> str:
    total = samples.total() or 1
    lines = [f"{100 * count / total:6.2f} %  {function}" for function, count in samples.most_common(_LISTED)]
    return "\n".join([f"{total} samples at {RATE_HZ}/s; self time", *lines, ""])


def profile(scenario: Scenario, broker: Broker, recorder: Recorder, output: Path) -> str:
    """Write the scenario's flame graph and list; returns the list."""
    with ExitStack() as stack, _repeated(scenario.prepare(broker, stack)):
        recorder.record(output / f"{scenario.name}.svg", raw=False)
        recorder.record(output / f"{scenario.name}.raw", raw=True)
    listed = list_self_times(self_times((output / f"{scenario.name}.raw").read_text().splitlines()))
    (output / f"{scenario.name}.txt").write_text(listed)
    return listed


@contextmanager
def _repeated(run: RunLoad) -> Iterator[None]:
    """Run the load repeatedly in a thread; its exception is raised at the end."""
    ended = threading.Event()
    problems: list[Exception] = []

    def repeat() -> None:
        try:
            while not ended.is_set():
                run()
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if problems:
        raise problems[0]


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console()
    options.output.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        if options.scenarios and scenario.name not in options.scenarios.split(","):
            continue
        with tempfile.TemporaryDirectory(dir=options.output) as directory:
            broker = Rookery().start(Path(directory).resolve() / "broker")
            try:
                with console.status(f"{scenario.name} ..."):
                    recorder = Recorder(broker.pid, options.seconds, options.native)
                    listed = profile(scenario, broker, recorder, options.output)
            finally:
                broker.stop()
        shown = "\n".join(listed.splitlines()[:15])
        console.print(f"[bold]{scenario.name}[/]: {options.output / scenario.name}.svg\n{shown}\n", highlight=False)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__)
    add = parser.add_argument
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    add("--scenarios", default="", help=f"comma separated, of: {names}; by default all")
    add("--seconds", type=float, default=8.0, help="length of each of the two recordings")
    add("--native", action="store_true", help="with the stacks of native extensions")
    add("--output", type=Path, default=ROOT / ".cache" / "profile", help="where the files are written")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
