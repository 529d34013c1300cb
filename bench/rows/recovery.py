"""Recovery after SIGKILL: the time until partitions with about 1 GB after their recovery point are served again.

All data is in the active segments, which neither system has flushed or checkpointed when it is killed, so that both
must read all of it to find the valid batches. The recovery has ended when ListOffsets returns the end offsets that were
acknowledged before; the time includes the start of the process. A clean stop and start of the same directory is
measured too, to show how much of the time is recovery.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from bench.admin import create_topics
from bench.load import Load, run_loads
from bench.model import GIGABYTE, Bench, Broker, Metric, Row
from bench.probe import NotReadyError, Probe, await_broker

_TOPIC = "recovered"
_RECORD_BYTES = 1000
_RECORDS = 1_000_000
_PARTITIONS = 4


def recover(bench: Bench) -> Mapping[str, float]:
    """Load, kill and start the broker; then stop and start it once more."""
    directory = bench.directory / "broker"
    broker = bench.system.start(directory)
    try:
        create_topics(broker, {_TOPIC: _PARTITIONS})
        _produce(bench, broker)
        with Probe(broker.port) as probe:
            expected = _end_offsets(probe)
    finally:
        broker.kill()
    log_bytes = sum(path.stat().st_size for path in directory.glob(f"data/{_TOPIC}-*/*.log"))
    recovered_s = _timed_start(bench, directory, expected)
    clean_s = _timed_start(bench, directory, expected)
    return {
        "recovery: after SIGKILL, for each GB": recovered_s / (log_bytes / GIGABYTE),
        "recovery: after a clean stop": clean_s,
    }


def _timed_start(bench: Bench, directory: Path, expected: list[int]) -> float:
    def check(probe: Probe) -> None:
        found = _end_offsets(probe)
        if found != expected:
            raise NotReadyError(f"the partitions end at {found} instead of {expected}")

    started = time.perf_counter()
    broker = bench.system.spawn(directory)
    try:
        await_broker(broker, check)
        return time.perf_counter() - started
    finally:
        broker.stop()


def _produce(bench: Bench, broker: Broker) -> None:
    options = {
        "bootstrap": broker.bootstrap,
        "topic": _TOPIC,
        "partitions": _PARTITIONS,
        "record_bytes": _RECORD_BYTES,
        "records": bench.scaled(_RECORDS, minimum=1000),
        "settings": {"acks": "all"},
    }
    run_loads([Load("bench.librdkafka", "produce", options)], broker)


def _end_offsets(probe: Probe) -> list[int]:
    return [probe.end_offset(_TOPIC, partition) for partition in range(_PARTITIONS)]


ROWS = (
    Row(
        name="recovery",
        title="1 GB unflushed in 4 partitions",
        family="Recovery",
        metrics=(
            Metric(name="recovery: after SIGKILL, for each GB", unit="s/GB", better="lower"),
            Metric(name="recovery: after a clean stop", unit="s", better="lower"),
        ),
        run=recover,
        shared=False,
        warm_up=False,
    ),
)
