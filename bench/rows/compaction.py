"""Compaction: the speed of the cleaner, in MB of the log before the cleaning.

While the log is loaded, `min.compaction.lag.ms` keeps the cleaner away. Then the lag is removed, and the time is
measured until the file `cleaner-offset-checkpoint`, which has the same format in both systems, shows that everything
before the active segment is clean. A smaller log is cleaned first in the same process, so that Kafka's cleaner is warm.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from bench.admin import alter_topic, create_topics
from bench.model import GIGABYTE, MEGABYTE, Bench, Broker, Metric, Row
from bench.payload import event_text

_BROKER_SETTINGS = {"log.cleaner.backoff.ms": "100"}
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # An hour, which keeps the cleaner away until the lag is removed.
    "min.compaction.lag.ms": "3600000",
}
_SEGMENT_BYTES = 16 * 1024 * 1024
_SEGMENT_BYTES_MIN = 1024 * 1024
_LOG_BYTES = 250_000_000
_LOG_BYTES_MIN = 12_000_000
_WARM_UP_PART = 0.4
_VERSIONS_PER_KEY = 5
_TEXT_BYTES = 4_000_000
# A prime number, so that the versions of a key are far apart.
_STRIDE = 7919
_TIMEOUT_S = 180.0
_POLL_INTERVAL_S = 0.01
_SETTLE_S = 2.0


def compact(key: str, record_bytes: int, compression: str, bench: Bench) -> Mapping[str, float]:
    """Load a small log and the measured one, and clean them one after the other."""
    directory = bench.directory / "broker"
    size_bytes = bench.scaled(_LOG_BYTES, minimum=_LOG_BYTES_MIN)
    broker = bench.system.start(directory, _BROKER_SETTINGS)
    try:
        for topic, part in (("warm-up", _WARM_UP_PART), ("measured", 1.0)):
            records = int(size_bytes * part) // record_bytes
            _load(bench, broker, topic, records=records, record_bytes=record_bytes, compression=compression)
            cleaned_bytes, wall_s, cpu_s = _clean(broker, directory / "data", topic)
    finally:
        broker.kill()
    return {f"{key}: MB/s": cleaned_bytes / MEGABYTE / wall_s, f"{key}: CPU s/GB": cpu_s / (cleaned_bytes / GIGABYTE)}


def _clean(broker: Broker, data: Path, topic: str) -> tuple[int, float, float]:
    """Start the cleaner; returns the size of the cleaned log, and the wall and processor time."""
    segments = sorted((data / f"{topic}-0").glob("*.log"))
    active_offset = int(segments[-1].stem)
    size_bytes = sum(path.stat().st_size for path in segments[:-1])
    if not size_bytes:
        raise RuntimeError(f"{topic} has no closed segment that could be cleaned")
    cpu_s = broker.cpu_seconds()
    started = time.perf_counter()
    alter_topic(broker, topic, {"min.compaction.lag.ms": "0"})
    while _clean_offset(data, topic) < active_offset:
        if time.perf_counter() - started > _TIMEOUT_S:
            raise TimeoutError(f"{topic} is clean up to {_clean_offset(data, topic)} instead of {active_offset}")
        time.sleep(_POLL_INTERVAL_S)
    return size_bytes, time.perf_counter() - started, broker.cpu_seconds() - cpu_s


def _clean_offset(data: Path, topic: str) -> int:
    """Return the offset up to which the topic's only partition is clean, from the cleaner's checkpoint."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def _load(bench: Bench, broker: Broker, topic: str, *, records: int, record_bytes: int, compression: str) -> None:
    segment_bytes = bench.scaled(_SEGMENT_BYTES, minimum=_SEGMENT_BYTES_MIN)
    create_topics(broker, {topic: 1}, {**_TOPIC_CONFIG, "segment.bytes": str(segment_bytes)})
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": compression,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    text = event_text(_TEXT_BYTES)
    keys = max(1, records // _VERSIONS_PER_KEY)
    for index in range(records):
        start = index * record_bytes % (_TEXT_BYTES - record_bytes)
        _produce(producer, topic, text[start : start + record_bytes], f"key-{index * _STRIDE % keys:08}")
    if left := producer.flush(_TIMEOUT_S):
        raise RuntimeError(f"{left} records were not acknowledged")
    # Closed segments are flushed in the background, and only flushed segments are cleaned.
    time.sleep(max(0.2, _SETTLE_S * min(1.0, bench.scale)))


def _produce(producer: Producer, topic: str, value: bytes, key: str) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
            return
        except BufferError:
            producer.poll(0.1)


def _row(size: str, record_bytes: int, compression: str) -> Row:
    key = f"compaction.{size}.{compression}"
    return Row(
        name=f"compaction/{size}/{compression}",
        title=f"{size} records, {compression}, {_VERSIONS_PER_KEY} versions of each key",
        family="Compaction",
        metrics=(
            Metric(name=f"{key}: MB/s", unit="MB/s", better="higher"),
            Metric(name=f"{key}: CPU s/GB", unit="s/GB", better="lower"),
        ),
        run=partial(compact, key, record_bytes, compression),
        shared=False,
        warm_up=False,
    )


ROWS = (_row("1KB", 1000, "none"), _row("100B", 100, "lz4"))
