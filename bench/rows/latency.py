"""End-to-end latency at a steady rate: from the time at which a record is due to be sent until a consumer has it.

One partition, values of 100 bytes, acks=1; bench.paced has the settings and describes how coordinated omission is
avoided. A run whose producer is more than 1 % late fails.
"""

from collections.abc import Mapping
from functools import partial

from bench.load import Load, run_loads
from bench.model import Bench, Metric, Row
from bench.topics import topic

_RATES = (1_000, 10_000)
_RECORD_BYTES = 100
_MEASURED_S = 10.0
_WARM_UP_S = 2.0
_RECORDS_MIN = 200
_GOALS = {"p50": "<= 1.0", "p99": "<= 1.0", "p99.9": None}


def measure(key: str, rate: int, bench: Bench) -> Mapping[str, float]:
    broker = bench.broker
    measured = bench.scaled(int(_MEASURED_S * rate), minimum=_RECORDS_MIN)
    skipped = bench.scaled(int(_WARM_UP_S * rate), minimum=_RECORDS_MIN)
    with topic(broker, 1) as name:
        common = {"bootstrap": broker.bootstrap, "topic": name, "records": skipped + measured}
        consumer = Load("bench.paced", "consume", {**common, "skipped": skipped})
        producer = Load("bench.paced", "produce", {**common, "record_bytes": _RECORD_BYTES, "rate": rate})
        late = run_loads([consumer, producer], broker).results[0]
    return {f"{key}: {share}": late[f"{share}_ms"] for share in _GOALS}


def _row(rate: int) -> Row:
    key = f"latency.{rate}"
    metrics = (Metric(name=f"{key}: {share}", unit="ms", better="lower", goal=goal) for share, goal in _GOALS.items())
    return Row(
        name=f"latency/{rate}",
        title=f"{rate:,} records/s",
        family="Latency",
        metrics=tuple(metrics),
        run=partial(measure, key, rate),
    )


ROWS = tuple(_row(rate) for rate in _RATES)
