"""Encrypted and authenticated connections, logins, and what ACLs cost.

Produce and consume are those of bench.rows.throughput, over a listener with TLS. A login is a connection of its own:
TCP, a full TLS handshake, SCRAM, and the end; several processes log in at the same time. The rows of ACLs have two
brokers of the same system, one of which has an authorizer. They are used in turns within each round, several times,
because the difference is smaller than the noise of a shared machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bench.load import Load, Outcome, run_loads
from bench.model import GIGABYTE, MEGABYTE, Bench, Broker, Metric, Row
from bench.rows.throughput import Shape, check_count, values
from bench.secured import (
    ACLS,
    AUTHORIZED,
    PASSWORD,
    SASL_PLAINTEXT,
    SASL_SSL,
    SECURED,
    SSL,
    USER,
    authority_path,
    client_settings,
)
from bench.topics import topic

_SHAPE = Shape(size="1KB", partitions=12)
_PASSES = 2
_CLIENTS = 4
_LOGINS_S = 3.0
_DURATION_S_MIN = 0.1
_TURNS = 4
_TURN_S = 0.8
_CONNECTIONS = 16
_MILLISECOND, _MICROSECOND = 1e-3, 1e-6
_TITLES = {SSL: "TLS", SASL_SSL: "TLS and a login (SASL_SSL)"}


def produce(key: str, protocol: str, bench: Bench) -> Mapping[str, float]:
    records = _SHAPE.records(bench)
    with topic(bench.broker, _SHAPE.partitions) as name:
        outcome = run_loads([_load("produce", bench.broker, protocol, bench, name, records)], bench.broker)
        check_count(bench.broker, name, _SHAPE.partitions, records)
    return values(key, outcome)


def consume(key: str, protocol: str, bench: Bench) -> Mapping[str, float]:
    records = _SHAPE.records(bench)
    with topic(bench.broker, _SHAPE.partitions) as name:
        run_loads([_SHAPE.produce_load(bench.broker, name, records)])
        load = _load("consume", bench.broker, protocol, bench, name, records, passes=_PASSES)
        return values(key, run_loads([load], bench.broker))


def _load(action: str, broker: Broker, protocol: str, bench: Bench, name: str, records: int, **options: object) -> Load:
    settings = client_settings(protocol, bench.files)
    return _SHAPE.load(action, broker, name, records, bootstrap=broker.address(protocol), settings=settings, **options)


def logins(key: str, bench: Bench) -> Mapping[str, float]:
    options = {
        "port": _port(bench.broker, SASL_SSL),
        "authority": str(authority_path(bench.files)),
        "user": f"{USER}:{PASSWORD}",
        "duration_s": max(_DURATION_S_MIN, _LOGINS_S * bench.scale),
    }
    outcome = run_loads([Load("bench.logins", "logins", options)] * _CLIENTS, bench.broker)
    elapsed_s = max(result["elapsed_s"] for result in outcome.results)
    count = outcome.total("logins")
    return {f"{key}: logins/s": count / elapsed_s, f"{key}: CPU": outcome.cpu_s / count / _MILLISECOND}


@dataclass(slots=True)
class Total:
    """The sum of several measurements. `amount` is in requests or bytes."""

    amount: float = 0.0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, outcome: Outcome, name: str) -> None:
        self.amount += outcome.result[name]
        self.elapsed_s += outcome.result["elapsed_s"]
        self.cpu_s += outcome.cpu_s

    @property
    def rate(self) -> float:
        return self.amount / self.elapsed_s

    @property
    def cost_s(self) -> float:
        return self.cpu_s / self.amount


def tiny_with_acls(key: str, bench: Bench) -> Mapping[str, float]:
    """Produce single records of 10 bytes, where the work for each request counts most."""

    def run(broker: Broker, name: str) -> Outcome:
        options = {
            "port": _port(broker, SASL_PLAINTEXT),
            "kind": "produce",
            "connections": _CONNECTIONS,
            "duration_s": max(_DURATION_S_MIN, _TURN_S * bench.scale),
            "topics": [name],
            "partitions": _SHAPE.partitions,
            "user": f"{USER}:{PASSWORD}",
        }
        return run_loads([Load("bench.wire", "requests", options)], broker)

    without, with_acls = _take_turns(bench, "requests", run)
    return {
        f"{key}: requests/s": with_acls.rate,
        f"{key}: CPU": with_acls.cost_s / _MICROSECOND,
        **_cost(key, without, with_acls),
    }


def batches_with_acls(key: str, bench: Bench) -> Mapping[str, float]:
    """Produce large batches with librdkafka."""
    records = _SHAPE.records(bench) // _TURNS

    def run(broker: Broker, name: str) -> Outcome:
        outcome = run_loads([_load("produce", broker, SASL_PLAINTEXT, bench, name, records)], broker)
        check_count(broker, name, _SHAPE.partitions, records)
        return outcome

    without, with_acls = _take_turns(bench, "bytes", run)
    return {
        f"{key}: MB/s": with_acls.rate / MEGABYTE,
        f"{key}: CPU s/GB": with_acls.cost_s * GIGABYTE,
        **_cost(key, without, with_acls),
    }


def _take_turns(bench: Bench, name: str, run: Callable[[Broker, str], Outcome]) -> tuple[Total, Total]:
    """Return what was measured without an authorizer, and with one."""
    totals = {SECURED.name: Total(), AUTHORIZED.name: Total()}
    for turn in range(_TURNS):
        for deployment in totals if turn % 2 else reversed(totals):
            broker = bench.shared_brokers[deployment]
            with topic(broker, _SHAPE.partitions) as topic_name:
                totals[deployment].add(run(broker, topic_name), name)
    return totals[SECURED.name], totals[AUTHORIZED.name]


def _cost(key: str, without: Total, with_acls: Total) -> dict[str, float]:
    return {
        f"{key}: throughput to that without authorizer": with_acls.rate / without.rate,
        f"{key}: CPU to that without authorizer": with_acls.cost_s / without.cost_s,
    }


def _port(broker: Broker, protocol: str) -> int:
    return int(broker.address(protocol).rpartition(":")[2])


def _throughput_metrics(key: str, goal: str) -> tuple[Metric, ...]:
    return (
        Metric(name=f"{key}: MB/s", unit="MB/s", better="higher", goal=goal),
        Metric(name=f"{key}: records/s", unit="records/s", better="higher"),
        Metric(name=f"{key}: CPU s/GB", unit="s/GB", better="lower"),
    )


def _cost_metrics(key: str, goal: str | None = None) -> tuple[Metric, ...]:
    return (
        Metric(name=f"{key}: throughput to that without authorizer", unit="times", better="higher"),
        Metric(name=f"{key}: CPU to that without authorizer", unit="times", better="lower", goal=goal),
    )


def _produce_row(protocol: str) -> Row:
    name = f"security/produce/{protocol.lower()}"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"produce over {_TITLES[protocol]}, 1KB, 12 partitions, none, acks=1",
        family="Security",
        metrics=_throughput_metrics(key, ">= 1.0"),
        run=partial(produce, key, protocol),
        deployments=(SECURED,),
    )


def _consume_row(protocol: str) -> Row:
    name = f"security/consume/{protocol.lower()}"
    key = name.replace("/", ".")
    return Row(
        name=name,
        title=f"consume over {_TITLES[protocol]}, 1KB, 12 partitions, none",
        family="Security",
        metrics=_throughput_metrics(key, ">= 0.8"),
        run=partial(consume, key, protocol),
        deployments=(SECURED,),
    )


_LOGINS, _TINY, _BATCHES = "security.logins", "security.acls.tiny", "security.acls.batches"

ROWS = (
    *map(_produce_row, _TITLES),
    *map(_consume_row, _TITLES),
    Row(
        name="security/logins",
        title=f"logins over SASL_SSL with SCRAM-SHA-512, new connections by {_CLIENTS} clients",
        family="Security",
        metrics=(
            Metric(name=f"{_LOGINS}: logins/s", unit="logins/s", better="higher"),
            Metric(name=f"{_LOGINS}: CPU", unit="ms/login", better="lower"),
        ),
        run=partial(logins, _LOGINS),
        deployments=(SECURED,),
    ),
    Row(
        name="security/acls/tiny",
        title=f"tiny produces over {_CONNECTIONS} connections, with {ACLS:,} ACLs",
        family="Security",
        metrics=(
            Metric(name=f"{_TINY}: requests/s", unit="requests/s", better="higher"),
            Metric(name=f"{_TINY}: CPU", unit="us/request", better="lower"),
            *_cost_metrics(_TINY, "<= 1.03 times"),
        ),
        run=partial(tiny_with_acls, _TINY),
        deployments=(SECURED, AUTHORIZED),
    ),
    Row(
        name="security/acls/batches",
        title=f"produce 1KB, 12 partitions, none, acks=1, with {ACLS:,} ACLs",
        family="Security",
        metrics=(
            Metric(name=f"{_BATCHES}: MB/s", unit="MB/s", better="higher"),
            Metric(name=f"{_BATCHES}: CPU s/GB", unit="s/GB", better="lower"),
            *_cost_metrics(_BATCHES),
        ),
        run=partial(batches_with_acls, _BATCHES),
        deployments=(SECURED, AUTHORIZED),
    ),
)
