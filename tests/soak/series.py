"""Runs one query with drivers that are killed one after the other, until the last finishes; compares the output."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic, sleep

from rookery.base.errors import ApiError
from rookery.client.sync import Admin, Consumer
from rookery.spark.sink.names import decisions_id
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.sink.faulty_sink import arm

ROOT = Path(__file__).parent.parent.parent
LOCAL = "local[2,3]"
# The steps of `committer`, in order.
COMMIT_STEPS = ("took over", "checked", "written", "decided", "ended", "listed", "done", "swept")
DRIVER_S_MAX = 300
_ROWS_PER_FILE = 40
_POLL_S = 0.05


@dataclass
class Series:
    """A query and its drivers. `directory` holds the input files, the checkpoint, the armed faults and the logs."""

    broker: EmbeddedBroker
    directory: Path
    topic: str
    master: str = LOCAL
    settings: Mapping[str, str] = field(default_factory=dict)
    driver_count: int = 0
    file_count: int = 0

    def __post_init__(self) -> None:
        for name in ("files", "faults"):
            (self.directory / name).mkdir(parents=True)
        self.broker.create_topic(self.topic, partitions=2)

    def add_files(self, count: int) -> None:
        """Add input files; each becomes a batch."""
        for number in range(self.file_count, self.file_count + count):
            rows = [f"{number}/{row}" for row in range(_ROWS_PER_FILE)]
            (self.directory / "files" / f"{number:03}").write_text("\n".join(rows), encoding="utf-8")
        self.file_count += count

    # One driver

    def run_driver(self, event: "Event | None") -> int:
        """Run a driver and return its exit code, which is negative if the driver was killed."""
        self.driver_count += 1
        (self.directory / "started").unlink(missing_ok=True)
        given = {
            "directory": str(self.directory),
            "master": self.master,
            "settings": dict(self.settings),
            "options": {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "topic": self.topic},
        }
        command = [sys.executable, "-m", "tests.soak.driver", json.dumps(given)]
        with (self.directory / f"driver-{self.driver_count}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **_ENVIRONMENT}
            )
            try:
                if event is not None:
                    event.happen(self, process)
                return process.wait(DRIVER_S_MAX)
            finally:
                kill_group(process)

    def wait_for_start(self, process: "subprocess.Popen[bytes]") -> None:
        deadline_s = monotonic() + DRIVER_S_MAX
        while process.poll() is None and not (self.directory / "started").exists() and monotonic() < deadline_s:
            sleep(_POLL_S)

    def sink(self) -> str | None:
        with suppress(OSError, ValueError):
            return str(json.loads((self.directory / "checkpoint" / "metadata").read_text(encoding="utf-8"))["id"])
        return None

    # The output

    def difference(self) -> dict[str, tuple[int, int]]:
        """Return the rows whose number is wrong: how often they were found, and how often they are expected."""
        config = {"bootstrap.servers": self.broker.bootstrap_servers, "isolation.level": "read_committed"}
        with Consumer[bytes, bytes](config) as consumer:
            values = consumer.read_arrow(self.topic).column("value").to_pylist()
        found = Counter(value.decode() for value in values)
        expected = Counter(f"{number}/{row}" for number in range(self.file_count) for row in range(_ROWS_PER_FILE))
        return {row: (found[row], expected[row]) for row in {*found, *expected} if found[row] != expected[row]}


# Workers need this to find the tests; drivers find them in their working directory.
_ENVIRONMENT = {"PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Event:
    """An event that hits a driver."""

    name: str
    happen: "Callable[[Series, subprocess.Popen[bytes]], None]"


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_at(step: str, occasion: int = 1) -> Event:
    def happen(series: Series, process: "subprocess.Popen[bytes]") -> None:
        arm(series.directory / "faults", f"driver is killed at {step}", occasion)

    return Event(f"driver killed at {step} ({occasion})", happen)


def armed(fault: str, occasion: int = 1) -> Event:
    return Event(fault, lambda series, _: arm(series.directory / "faults", fault, occasion))


def killed_after(delay_s: float) -> Event:
    def happen(series: Series, process: "subprocess.Popen[bytes]") -> None:
        series.wait_for_start(process)
        sleep(delay_s)
        kill_group(process)

    return Event(f"driver killed after {delay_s:.2f} s", happen)


def broker_restarted_after(delay_s: float) -> Event:
    def happen(series: Series, process: "subprocess.Popen[bytes]") -> None:
        series.wait_for_start(process)
        sleep(delay_s)
        series.broker.restart(clean=False)

    return Event(f"broker killed and restarted after {delay_s:.2f} s", happen)


def fenced_after(delay_s: float) -> Event:
    """Fence the driver's producer, as another driver that takes over would."""

    def happen(series: Series, process: "subprocess.Popen[bytes]") -> None:
        series.wait_for_start(process)
        sleep(delay_s)
        sink = series.sink()
        with suppress(ApiError), Admin({"bootstrap.servers": series.broker.bootstrap_servers}) as admin:
            if sink is not None:
                admin.fence_producers([decisions_id(sink)])

    return Event(f"decisions fenced after {delay_s:.2f} s", happen)


def random_event(randomness: Random) -> Event:
    step, occasion = randomness.choice(COMMIT_STEPS), randomness.randint(1, 3)
    # About the duration of a query of three files.
    delay_s = randomness.uniform(0, 4)
    events = [
        killed_at(step, occasion),
        killed_at(step, occasion),
        killed_after(delay_s),
        killed_after(delay_s),
        armed("worker is killed", occasion),
        armed("executor is killed", occasion),
        armed(f"commit fails at {step}", occasion),
        armed(f"commit is killed at {step}", occasion),
        broker_restarted_after(delay_s),
        fenced_after(delay_s),
    ]
    return randomness.choice(events)
