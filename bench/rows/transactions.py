"""Transactions with librdkafka: as many as possible, a commit every 100 ms, and how long one takes.

Client settings: bench.librdkafka and bench.transactional. Each run has a new topic and new transactional ids. The
content of the topic is checked afterwards: all records, and one marker for each transaction and partition. If several
producers run together, each is a separate process with its own transactional id.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.load import Load, run_loads
from bench.model import GIGABYTE, MEGABYTE, Bench, Broker, Metric, Row
from bench.topics import await_count, partitions_text, topic

_SIZES = {"100B": 100, "1KB": 1000}
_PARTITIONS = (1, 12)
_RECORDS = 100
_TRANSACTIONS = 300
_PRODUCERS = 4
_INTERVAL_S = 0.1
_INTERVALS_S = 4.0
_INTERVALS_S_MIN = 0.3
_RATE = 50
_PACED_S = 10
_PACED_WARM_UP_S = 2
_PACED_MIN = 10
_SHARES = ("p50", "p99")


def produce(key: str, size: str, partitions: int, producers: int, commit: bool, bench: Bench) -> Mapping[str, float]:
    broker = bench.broker
    more = {"records": _RECORDS, "transactions": bench.scaled(_TRANSACTIONS, minimum=2), "commit": commit}
    with topic(broker, partitions) as name:
        loads = [_load("produce", broker, name, size, partitions, number, **more) for number in range(producers)]
        outcome = run_loads(loads, broker)
        await_count(broker, name, partitions, int(outcome.total("offsets")))
    elapsed_s = max(result["elapsed_s"] for result in outcome.results)
    transactions = outcome.total("transactions")
    return {
        f"{key}: transactions/s": transactions / elapsed_s,
        f"{key}: records/s": transactions * _RECORDS / elapsed_s,
        f"{key}: CPU ms/transaction": outcome.cpu_s * 1000 / transactions,
    }


def commit_every(key: str, size: str, partitions: int, bench: Bench) -> Mapping[str, float]:
    broker = bench.broker
    more = {"interval_s": _INTERVAL_S, "duration_s": max(_INTERVALS_S_MIN, _INTERVALS_S * bench.scale)}
    with topic(broker, partitions) as name:
        outcome = run_loads([_load("commit_every", broker, name, size, partitions, 0, **more)], broker)
        await_count(broker, name, partitions, int(outcome.result["offsets"]))
    return {
        f"{key}: MB/s": outcome.result["bytes"] / MEGABYTE / outcome.result["elapsed_s"],
        f"{key}: CPU s/GB": outcome.cpu_s / (outcome.result["bytes"] / GIGABYTE),
    }


def commit_paced(key: str, size: str, partitions: int, bench: Bench) -> Mapping[str, float]:
    broker = bench.broker
    skipped = bench.scaled(_PACED_WARM_UP_S * _RATE, minimum=_PACED_MIN)
    measured = bench.scaled(_PACED_S * _RATE, minimum=_PACED_MIN)
    more = {"records": _RECORDS, "transactions": skipped + measured, "skipped": skipped, "rate": _RATE}
    with topic(broker, partitions) as name:
        result = run_loads([_load("commit_paced", broker, name, size, partitions, 0, **more)], broker).result
        await_count(broker, name, partitions, int(result["offsets"]))
    return {f"{key}: {share}": result[f"{share}_ms"] for share in _SHARES}


def _load(action: str, broker: Broker, name: str, size: str, partitions: int, number: int, **more: Any) -> Load:
    options = {
        "bootstrap": broker.bootstrap,
        "topic": name,
        "partitions": partitions,
        "record_bytes": _SIZES[size],
        # The topic's name is unique in every run, so this id is, too.
        "settings": {"transactional.id": f"{name}-{number}"},
        **more,
    }
    return Load("bench.transactional", action, options)


def _produce_row(name: str, title: str, size: str, partitions: int, *, producers: int = 1, commit: bool = True) -> Row:
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"{title}, {size}, {partitions_text(partitions)}",
        family="Transactions",
        metrics=(
            Metric(name=f"{key}: transactions/s", unit="transactions/s", better="higher", goal=">= 1.0"),
            Metric(name=f"{key}: records/s", unit="records/s", better="higher"),
            Metric(name=f"{key}: CPU ms/transaction", unit="ms", better="lower"),
        ),
        run=partial(produce, key, size, partitions, producers, commit),
    )


def _interval_row(size: str, partitions: int) -> Row:
    name = f"transactions/100ms/{size}/{partitions}p"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"a commit every 100 ms, {size}, {partitions_text(partitions)}",
        family="Transactions",
        metrics=(
            Metric(name=f"{key}: MB/s", unit="MB/s", better="higher", goal=">= 1.0"),
            Metric(name=f"{key}: CPU s/GB", unit="s/GB", better="lower"),
        ),
        run=partial(commit_every, key, size, partitions),
    )


def _paced_row(size: str, partitions: int) -> Row:
    name = f"transactions/latency/{size}/{partitions}p"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"{_RECORDS} records, {_RATE} times a second, until committed, {size}, {partitions_text(partitions)}",
        family="Transactions",
        metrics=tuple(Metric(name=f"{key}: {share}", unit="ms", better="lower", goal="<= 1.0") for share in _SHARES),
        run=partial(commit_paced, key, size, partitions),
    )


_TITLE = f"{_RECORDS} records per transaction"
_SHAPES = tuple((size, partitions) for size in _SIZES for partitions in _PARTITIONS)

ROWS = (
    *(
        _produce_row(f"transactions/{_RECORDS}-records/{size}/{partitions}p", _TITLE, size, partitions)
        for size, partitions in _SHAPES
    ),
    _produce_row(
        f"transactions/{_PRODUCERS}-producers/1KB/12p",
        f"{_TITLE}, {_PRODUCERS} producers, summed",
        "1KB",
        12,
        producers=_PRODUCERS,
    ),
    _produce_row("transactions/aborted/1KB/12p", f"{_TITLE}, each aborted", "1KB", 12, commit=False),
    *(_interval_row(size, partitions) for size, partitions in _SHAPES),
    *(_paced_row("100B", partitions) for partitions in _PARTITIONS),
)
