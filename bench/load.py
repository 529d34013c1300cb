"""Loads, each in its own process, so that runs do not affect each other and the broker's processor time is separate.

A load (bench.librdkafka, bench.wire, bench.clients, bench.lookups and others) is a module that is run with the name of
an action and its options as JSON. It prepares (imports, payloads, connections), prints `ready`, waits for `go`, runs
the action, and prints its measurements as one line of JSON. So the preparation is not measured, several loads start
together, and the broker's processor time is read right before and after.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.model import Broker

TIMEOUT_S = 180.0
_ROOT = Path(__file__).resolve().parent.parent
_READY = "ready"

Measurements = dict[str, float]


class LoadError(Exception):
    """A load failed or did not end; the text is its standard error."""


@dataclass(frozen=True, slots=True)
class Load:
    """The command of a child process: `python -m <module> <action> <options as JSON>`."""

    module: str
    action: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of loads that ran together."""

    results: list[Measurements]
    # The broker's processor time while they ran.
    cpu_s: float

    @property
    def result(self) -> Measurements:
        assert len(self.results) == 1
        return self.results[0]

    def total(self, name: str) -> float:
        return sum(result[name] for result in self.results)


def run_loads(loads: Sequence[Load], broker: Broker | None = None, *, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Start all loads, let them run together when all are ready, and wait for their measurements."""
    children = [_Child(load, timeout_s) for load in loads]
    try:
        for child in children:
            child.await_ready()
        before_s = broker.cpu_seconds() if broker else 0.0
        for child in children:
            child.go()
        results = [child.result() for child in children]
        after_s = broker.cpu_seconds() if broker else 0.0
    finally:
        for child in children:
            child.close()
    return Outcome(results, after_s - before_s)


class _Child:
    def __init__(self, load: Load, timeout_s: float) -> None:
        self._name = f"{load.module} {load.action}"
        command = [sys.executable, "-m", load.module, load.action, json.dumps(dict(load.options))]
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(timeout_s, self._process.kill)
        self._watchdog.start()

    def await_ready(self) -> None:
        self._read_line(_READY)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> Measurements:
        measurements: Measurements = json.loads(self._read_line("{"))
        return measurements

    def close(self) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.communicate()

    def _read_line(self, start: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith(start):
            return line
        self._process.kill()
        _, errors = self._process.communicate()
        raise LoadError(f"{self._name} failed: {line}{errors.strip()[-2000:]}")


def await_go() -> None:
    """In the child process: report that the preparation is done; returns when the measurement starts."""
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        raise SystemExit("no process waits for this load")


def run_action(actions: Mapping[str, Callable[..., Mapping[str, float]]]) -> None:
    """Run the action of the command line with its options; the main function of a load."""
    name, options = sys.argv[1:]
    measurements = actions[name](**json.loads(options))
    sys.stdout.write(json.dumps(dict(measurements)) + "\n")
    sys.stdout.flush()
