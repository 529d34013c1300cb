"""Rookery's client and other Python clients: the same broker, the same settings, one process each (bench.clients).

Producing is measured from the first record passed to the client to the last acknowledgement, consuming from the first
poll to the last record of a topic in the page cache. Clients differ by a factor of a hundred, so each one gets a number
of records that takes a second or two.
"""

from collections.abc import Mapping
from functools import partial

from bench.load import Load, Measurements, run_loads
from bench.model import Bench, Broker, Metric, Row
from bench.results import PYTHON_CLIENTS, ROOKERY
from bench.topics import count_records, topic

_SIZES = {"100B": 100, "1KB": 1000}
_PARTITIONS = 6
_RECORDS_MIN = 1200
# The number of records of 100 bytes; half of it for larger ones.
_RECORDS = {
    (ROOKERY, "records"): 600_000,
    (ROOKERY, "columns"): 4_000_000,
    ("confluent-kafka", "records"): 1_200_000,
    ("aiokafka", "records"): 250_000,
    ("kafka-python", "records"): 150_000,
}
_GOALS = {"records": ">= 1.5 x aiokafka, >= 1.5 x kafka-python", "columns": ">= 3.0 x confluent-kafka"}
_TITLES = {"records": "record by record", "columns": "Arrow columns"}


def run(key: str, action: str, size: str, api: str, bench: Bench) -> Mapping[str, float]:
    # The other clients have no columns: they are measured record by record.
    its_api = api if bench.contestant == ROOKERY else "records"
    full = _RECORDS[bench.contestant, its_api] // (1 if size == "100B" else 2)
    records = bench.scaled(full, minimum=_RECORDS_MIN)
    with topic(bench.broker, _PARTITIONS) as name:
        if action == "consume":
            _fill(bench.broker, name, size, records)
        result = _measure(bench.broker, name, f"{action}_{its_api}", size, records, bench.contestant)
        held = count_records(bench.broker, name, _PARTITIONS)
        if held != records:
            raise RuntimeError(f"the topic holds {held} records instead of {records}")
    return {
        f"{key}: records/s": result["records"] / result["elapsed_s"],
        f"{key}: CPU us/record": result["cpu_s"] * 1e6 / result["records"],
    }


def _measure(broker: Broker, name: str, action: str, size: str, records: int, client: str) -> Measurements:
    options = {
        "client": client,
        "bootstrap": broker.bootstrap,
        "topic": name,
        "partitions": _PARTITIONS,
        "record_bytes": _SIZES[size],
        "records": records,
    }
    return run_loads([Load("bench.clients", action, options)], broker).result


def _fill(broker: Broker, name: str, size: str, records: int) -> None:
    options = {
        "bootstrap": broker.bootstrap,
        "topic": name,
        "partitions": _PARTITIONS,
        "record_bytes": _SIZES[size],
        "records": records,
        "settings": {"acks": "all"},
    }
    run_loads([Load("bench.librdkafka", "produce", options)])


def _row(action: str, size: str, api: str) -> Row:
    name = f"clients/{action}/{size}/{api}"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"{action}, {size}, {_TITLES[api]}",
        family="Clients",
        metrics=(
            Metric(name=f"{key}: records/s", unit="records/s", better="higher", goal=_GOALS[api]),
            Metric(name=f"{key}: CPU us/record", unit="us", better="lower"),
        ),
        run=partial(run, key, action, size, api),
        contestants=(ROOKERY, *(PYTHON_CLIENTS if api == "records" else PYTHON_CLIENTS[:1])),
    )


ROWS = tuple(
    _row(action, size, api) for api in ("records", "columns") for action in ("produce", "consume") for size in _SIZES
)
