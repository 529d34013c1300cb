"""Rookery's Spark connector and Spark's connector, with the same broker; and the decoding of Avro alone.

Rookery's sink writes in transactions, exactly once; Spark's has none. So Rookery's is also measured without them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.load import Load, Measurements, run_loads
from bench.model import MEGABYTE, Bench, Metric, Row
from bench.results import ROOKERY, SPARK_KAFKA
from bench.topics import count_records, topic

_SIZES = {"100B": 100, "1KB": 1000}
_PARTITIONS = 4
_RECORDS_MIN = 2000
_PASSES = 2
_RECORDS = {"100B": 3_000_000, "1KB": 600_000}
_AVRO_RECORDS = 2_000_000
_DECODED_RECORDS = 4_000_000
_ROUNDS_MAX = 5
# The time includes the start of a session and the first passes, which are not counted.
_TIMEOUT_S = 400.0
_GOAL = f">= 1.0 x {SPARK_KAFKA}"
_FORMATS = {ROOKERY: "rookery", SPARK_KAFKA: "kafka"}
_DELIVERIES = {"exactly-once": {}, "at-least-once": {"delivery": "at-least-once"}}


def read(key: str, size: str, bench: Bench) -> Mapping[str, float]:
    records = bench.scaled(_RECORDS[size], minimum=_RECORDS_MIN)
    with topic(bench.broker, _PARTITIONS) as name:
        options = {
            "bootstrap": bench.broker.bootstrap,
            "topic": name,
            "partitions": _PARTITIONS,
            "record_bytes": _SIZES[size],
            "records": records,
            "settings": {"acks": "all"},
        }
        run_loads([Load("bench.librdkafka", "produce", options)])
        result = _run(bench, "read", {"topic": name, "records": records, "passes": _PASSES})
    return _rates(key, result, _SIZES[size])


def read_avro(key: str, bench: Bench) -> Mapping[str, float]:
    records = bench.scaled(_AVRO_RECORDS, minimum=_RECORDS_MIN)
    with topic(bench.broker, _PARTITIONS) as name:
        result = _run(bench, "read_avro", {"topic": name, "records": records, "passes": _PASSES})
    return {f"{key}: rows/s": result["records"] / result["elapsed_s"]}


def write(key: str, size: str, delivery: str, bench: Bench) -> Mapping[str, float]:
    records = bench.scaled(_RECORDS[size], minimum=_RECORDS_MIN)
    options = _DELIVERIES[delivery] if bench.contestant == ROOKERY else {}
    with topic(bench.broker, _PARTITIONS) as name:
        asked = {"topic": name, "records": records, "record_bytes": _SIZES[size], "options": options}
        result = _run(bench, "write", asked)
        held = count_records(bench.broker, name, _PARTITIONS)
        # The log also has the markers of transactions.
        if held < result["written"]:
            raise RuntimeError(f"the topic holds {held} records instead of {result['written']:.0f}")
    return _rates(key, result, _SIZES[size])


def decode_avro(key: str, bench: Bench) -> Mapping[str, float]:
    options = {"records": bench.scaled(_DECODED_RECORDS, minimum=_RECORDS_MIN), "passes": 1}
    result = run_loads([Load("bench.spark", "decode_avro", options)]).result
    return {f"{key}: rows/s": result["records"] / result["cpu_s"]}


def _run(bench: Bench, action: str, options: Mapping[str, Any]) -> Measurements:
    asked = {"connector": _FORMATS[bench.contestant], "bootstrap": bench.broker.bootstrap, **options}
    return run_loads([Load("bench.spark", action, asked)], bench.broker, timeout_s=_TIMEOUT_S).result


def _rates(key: str, result: Measurements, record_bytes: int) -> Mapping[str, float]:
    rows = result["records"] / result["elapsed_s"]
    return {f"{key}: rows/s": rows, f"{key}: MB/s": rows * record_bytes / MEGABYTE}


def _row(name: str, title: str, run: Any, *, has_bytes: bool = True) -> Row:
    key = name.replace("/", ".")
    metrics = [Metric(name=f"{key}: rows/s", unit="rows/s", better="higher", goal=_GOAL)]
    if has_bytes:
        metrics.append(Metric(name=f"{key}: MB/s", unit="MB/s", better="higher"))
    return Row(
        name=name,
        title=title,
        family="Spark",
        metrics=tuple(metrics),
        run=partial(run, key),
        contestants=(ROOKERY, SPARK_KAFKA),
        rounds_max=_ROUNDS_MAX,
        # Each load has its own warm-up.
        warm_up=False,
    )


def _read_row(size: str) -> Row:
    return _row(f"spark/read/{size}", f"read, {size}", lambda key, bench: read(key, size, bench))


def _write_row(size: str, delivery: str) -> Row:
    name = f"spark/write/{size}/{delivery}"
    return _row(name, f"write, {size}, ours {delivery}", lambda key, bench: write(key, size, delivery, bench))


ROWS = (
    *(_read_row(size) for size in _SIZES),
    _row("spark/read-avro", "read and decode Avro, 60B", read_avro, has_bytes=False),
    *(_write_row(size, delivery) for delivery in _DELIVERIES for size in _SIZES),
    Row(
        name="spark/decode-avro",
        title="Avro to Arrow, one core",
        family="Spark",
        metrics=(Metric(name="spark.decode-avro: rows/s", unit="rows/s", better="higher", goal=">= 500_000 rows/s"),),
        run=partial(decode_avro, "spark.decode-avro"),
        shared=False,
        contestants=(ROOKERY,),
        warm_up=False,
    ),
)
