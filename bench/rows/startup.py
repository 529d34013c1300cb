"""The time from the start of the process to its first successful request: on an empty directory, with many partitions.

The requests are ApiVersions and Metadata on a plain socket, tried every 5 ms. Both systems start from files in the page
cache. Kafka's directory is formatted before the measurement; Rookery formats its directory within the measured time.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.admin import create_topics
from bench.model import Bench, Metric, Row
from bench.probe import Probe, await_broker, serves, serves_partitions

_PARTITIONS_PER_TOPIC = 100
# After a clean stop with 10,000 partitions, Kafka 4.3 leaves one without a leader for about a minute.
_PARTITIONS_PER_MISSING = 5000

T = TypeVar("T")


def start_empty(bench: Bench) -> Mapping[str, float]:
    """Start on a directory without topics."""
    formatted = bench.kept_directory / "formatted"
    if not formatted.exists():
        bench.system.prepare(formatted)
    wall_s, cpu_s, _ = _timed_start(bench, formatted, serves)
    return {"startup.empty: s": wall_s, "startup.empty: CPU s": cpu_s}


def start_with_partitions(partitions: int, bench: Bench) -> Mapping[str, float]:
    """Start on a directory with `partitions` partitions, which were created once and closed cleanly."""
    closed = bench.kept_directory / "closed"
    topics = _topics(bench.scaled(partitions, minimum=2))
    if not closed.exists():
        _create(bench, closed, topics)
    check = serves_partitions(topics, missing_max=sum(topics.values()) // _PARTITIONS_PER_MISSING)
    wall_s, cpu_s, missing = _timed_start(bench, closed, check)
    if missing:
        bench.notes.append(f"{bench.system.name} counted as started when {missing} partition(s) had no leader")
    return {f"startup.{partitions}p: s": wall_s, f"startup.{partitions}p: CPU s": cpu_s}


def _timed_start(bench: Bench, origin: Path, check: Callable[[Probe], T]) -> tuple[float, float, T]:
    """Start on a copy, which is deleted: Kafka would need a minute or more to close thousands of partitions cleanly."""
    directory = bench.directory / "broker"
    subprocess.run(["cp", "--archive", str(origin), str(directory)], check=True)
    started = time.perf_counter()
    broker = bench.system.spawn(directory)
    try:
        found = await_broker(broker, check)
        return time.perf_counter() - started, broker.cpu_seconds(), found
    finally:
        broker.kill()


def _topics(partitions: int) -> dict[str, int]:
    """Return topics with a hundred partitions each, and one with the remaining ones."""
    full, rest = divmod(partitions, _PARTITIONS_PER_TOPIC)
    counts = [_PARTITIONS_PER_TOPIC] * full + [rest] * (rest > 0)
    return {f"topic-{index:03}": count for index, count in enumerate(counts)}


def _create(bench: Bench, directory: Path, topics: Mapping[str, int]) -> None:
    broker = bench.system.start(directory)
    try:
        create_topics(broker, topics)
    except BaseException:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    broker.stop()


def _metrics(key: str, goal: str | None) -> tuple[Metric, ...]:
    return (
        Metric(name=f"startup.{key}: s", unit="s", better="lower", goal=goal),
        Metric(name=f"startup.{key}: CPU s", unit="s", better="lower"),
    )


ROWS = (
    Row(
        name="startup/empty",
        title="process start to first request",
        family="Start",
        metrics=_metrics("empty", "<= 0.4 s, <= 0.2"),
        run=start_empty,
        shared=False,
    ),
    Row(
        name="startup/2000p",
        title="start with 2,000 partitions",
        family="Start",
        metrics=_metrics("2000p", None),
        run=partial(start_with_partitions, 2000),
        shared=False,
        warm_up=False,
    ),
    Row(
        name="startup/10000p",
        title="start with 10,000 partitions",
        family="Start",
        metrics=_metrics("10000p", "<= 1.0"),
        run=partial(start_with_partitions, 10_000),
        shared=False,
        warm_up=False,
    ),
)
