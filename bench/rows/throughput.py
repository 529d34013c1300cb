"""Produce and consume throughput with librdkafka in large batches, and with plain sockets if librdkafka is the limit.

Sizes: 1 KB is 1,000 bytes, a MB 10^6 and a GB 10^9 bytes of values, before compression. The client settings are in
bench.librdkafka, the same for both systems; bench.payload creates the values. Producing is measured from the first
record to the last acknowledgement, with a new topic; the topic's end offsets are checked afterwards. Consuming reads
the records that were just produced, and are still in the page cache, from beginning to end, several times, in one
process for each consumer. Processor time is that of the broker process alone, per GB of values: in compressed rows the
broker moves only a third or a quarter of these bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.load import Load, Outcome, run_loads
from bench.model import GIGABYTE, MEGABYTE, Bench, Broker, Metric, Row
from bench.topics import count_records, partitions_text, topic

_SIZES = {"100B": 100, "1KB": 1000}
_PARTITIONS = (1, 12)
_COMPRESSIONS = ("none", "lz4", "zstd")
_ACKS = ("1", "all")
# Enough for a second or two at the rates of a small machine.
_BYTES = {"100B": 100_000_000, "1KB": 300_000_000}
_PASSES = {"none": 4, "lz4": 3, "zstd": 2}
_RECORDS_MIN = 1200
# The Java producer's default `batch.size`.
_SMALL_BATCH = {"batch.size": "16384"}
_RAW_RECORDS_PER_BATCH = 1000
_RAW_RECORD_BYTES = 1000
_RAW_PARTITIONS = 12
_RAW_IN_FLIGHT = 5
_RAW_FETCHES_IN_FLIGHT = 2
_RAW_FETCH_S = 3.0
_RAW_FETCH_S_MIN = 0.1
_CONSUMERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The settings of the records and the topic."""

    size: str
    partitions: int
    compression: str = "none"
    acks: str = "1"
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def record_bytes(self) -> int:
        return _SIZES[self.size]

    def records(self, bench: Bench) -> int:
        return bench.scaled(_BYTES[self.size] // self.record_bytes, minimum=_RECORDS_MIN)

    def load(self, action: str, broker: Broker, name: str, records: int, **more: Any) -> Load:
        options = {
            "bootstrap": broker.bootstrap,
            "topic": name,
            "partitions": self.partitions,
            "record_bytes": self.record_bytes,
            "records": records,
            **more,
        }
        return Load("bench.librdkafka", action, options)

    def produce_load(self, broker: Broker, name: str, records: int) -> Load:
        settings = {"compression.type": self.compression, "acks": self.acks, **dict(self.settings)}
        return self.load("produce", broker, name, records, settings=settings)


def produce(key: str, shape: Shape, bench: Bench) -> Mapping[str, float]:
    broker, records = bench.broker, shape.records(bench)
    with topic(broker, shape.partitions) as name:
        outcome = run_loads([shape.produce_load(broker, name, records)], broker)
        check_count(broker, name, shape.partitions, records)
    return values(key, outcome)


def consume(key: str, shape: Shape, consumers: int, bench: Bench) -> Mapping[str, float]:
    broker, records = bench.broker, shape.records(bench)
    passes = _PASSES[shape.compression]
    with topic(broker, shape.partitions) as name:
        run_loads([shape.produce_load(broker, name, records)])
        load = shape.load("consume", broker, name, records, passes=passes, settings={})
        return values(key, run_loads([load] * consumers, broker))


def produce_raw(key: str, bench: Bench) -> Mapping[str, float]:
    with topic(bench.broker, _RAW_PARTITIONS) as name:
        outcome = _fill(bench, name, per_partition=bench.scaled(80), broker=bench.broker)
    return values(key, outcome)


def consume_raw(key: str, bench: Bench) -> Mapping[str, float]:
    broker, per_partition = bench.broker, bench.scaled(40)
    with topic(broker, _RAW_PARTITIONS) as name:
        _fill(bench, name, per_partition=per_partition, broker=None)
        options = {
            "port": broker.port,
            "topic": name,
            "partitions": _RAW_PARTITIONS,
            "record_bytes": _RAW_RECORD_BYTES,
            "records_per_batch": _RAW_RECORDS_PER_BATCH,
            "batches_per_partition": per_partition,
            "duration_s": max(_RAW_FETCH_S_MIN, _RAW_FETCH_S * bench.scale),
            "in_flight": _RAW_FETCHES_IN_FLIGHT,
        }
        return values(key, run_loads([Load("bench.wire", "fetch", options)], broker))


def _fill(bench: Bench, name: str, *, per_partition: int, broker: Broker | None) -> Outcome:
    """Produce prebuilt batches; the processor time is that of `broker`."""
    options = {
        "port": bench.broker.port,
        "topic": name,
        "partitions": _RAW_PARTITIONS,
        "record_bytes": _RAW_RECORD_BYTES,
        "records_per_batch": _RAW_RECORDS_PER_BATCH,
        "batches": per_partition * _RAW_PARTITIONS,
        "in_flight": _RAW_IN_FLIGHT,
    }
    outcome = run_loads([Load("bench.wire", "produce", options)], broker)
    check_count(bench.broker, name, _RAW_PARTITIONS, int(outcome.result["records"]))
    return outcome


def check_count(broker: Broker, name: str, partitions: int, records: int) -> None:
    found = count_records(broker, name, partitions)
    if found != records:
        raise RuntimeError(f"the topic holds {found} records instead of {records}")


def values(key: str, outcome: Outcome) -> dict[str, float]:
    """Return the metrics. Loads that ran together count as one, with the time of the slowest."""
    elapsed_s = max(result["elapsed_s"] for result in outcome.results)
    size_bytes = outcome.total("bytes")
    return {
        f"{key}: MB/s": size_bytes / MEGABYTE / elapsed_s,
        f"{key}: records/s": outcome.total("records") / elapsed_s,
        f"{key}: CPU s/GB": outcome.cpu_s / (size_bytes / GIGABYTE),
    }


def _metrics(key: str) -> tuple[Metric, ...]:
    return (
        Metric(name=f"{key}: MB/s", unit="MB/s", better="higher", goal=">= 1.0"),
        Metric(name=f"{key}: records/s", unit="records/s", better="higher"),
        Metric(name=f"{key}: CPU s/GB", unit="s/GB", better="lower", goal="<= 1.0"),
    )


def _key(name: str) -> str:
    return name.replace("/", ".").replace("=", "")


def _produce_row(name: str, title: str, shape: Shape) -> Row:
    key = _key(name)
    return Row(name=name, title=title, family="Produce", metrics=_metrics(key), run=partial(produce, key, shape))


def _consume_row(name: str, title: str, shape: Shape, consumers: int = 1) -> Row:
    key = _key(name)
    run = partial(consume, key, shape, consumers)
    return Row(name=name, title=title, family="Consume", metrics=_metrics(key), run=run)


_PRODUCE = tuple(
    _produce_row(
        f"produce/{size}/{partitions}p/{compression}/acks={acks}",
        f"{size}, {partitions_text(partitions)}, {compression}, acks={acks}",
        Shape(size=size, partitions=partitions, compression=compression, acks=acks),
    )
    for size in _SIZES
    for partitions in _PARTITIONS
    for compression in _COMPRESSIONS
    for acks in _ACKS
)
_CONSUME = tuple(
    _consume_row(
        f"consume/{size}/{partitions}p/{compression}",
        f"{size}, {partitions_text(partitions)}, {compression}",
        Shape(size=size, partitions=partitions, compression=compression),
    )
    for size in _SIZES
    for partitions in _PARTITIONS
    for compression in _COMPRESSIONS
)
_SMALL = Shape(size="1KB", partitions=12, settings=tuple(_SMALL_BATCH.items()))
_RAW_PRODUCE, _RAW_CONSUME = "produce-raw/1MB-batches", "consume-raw/1KB/12p"

ROWS = (
    *_PRODUCE,
    _produce_row("produce-16KB-batches/1KB/12p", "1KB, 12 partitions, none, batches of at most 16 KB", _SMALL),
    Row(
        name=_RAW_PRODUCE,
        title="prebuilt batches of 1 MB from a plain socket, 12 partitions, 5 requests in flight",
        family="Produce",
        metrics=_metrics(_key(_RAW_PRODUCE)),
        run=partial(produce_raw, _key(_RAW_PRODUCE)),
    ),
    *_CONSUME,
    _consume_row("consume-16KB-batches/1KB/12p", "1KB, 12 partitions, none, batches of at most 16 KB", _SMALL),
    _consume_row(
        f"consume-{_CONSUMERS}-consumers/1KB/12p/none",
        f"1KB, 12 partitions, none, {_CONSUMERS} consumers of the same topic, summed",
        Shape(size="1KB", partitions=12),
        _CONSUMERS,
    ),
    Row(
        name=_RAW_CONSUME,
        title="1KB, 12 partitions, none, to a plain socket that drops the bytes",
        family="Consume",
        metrics=_metrics(_key(_RAW_CONSUME)),
        run=partial(consume_raw, _key(_RAW_CONSUME)),
    ),
)
