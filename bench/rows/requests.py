"""Tiny requests: the cost of one request for the broker, apart from its bytes.

One request is in flight on each connection; bench.wire sends prebuilt frames. A produce has one record of 10 bytes,
with acks=1 and without a producer id; the connections use the 12 partitions of a topic in turn.
"""

from collections.abc import Mapping
from functools import partial

from bench.load import Load, run_loads
from bench.model import Bench, Metric, Row
from bench.topics import topic, topics

_CONNECTIONS = (1, 16, 64)
_PARTITIONS = 12
_TOPICS = 1000
_TOPICS_MIN = 10
_FEW_CONNECTIONS = 4
_DURATION_S = 3.0
_DURATION_S_MIN = 0.1
_MICROSECOND = 1e-6


def tiny_produces(key: str, connections: int, bench: Bench) -> Mapping[str, float]:
    with topic(bench.broker, _PARTITIONS) as name:
        return _measure(key, bench, "produce", connections, topics=[name], partitions=_PARTITIONS)


def api_versions(key: str, bench: Bench) -> Mapping[str, float]:
    return _measure(key, bench, "api_versions", _FEW_CONNECTIONS)


def metadata(all_key: str, one_key: str, bench: Bench) -> Mapping[str, float]:
    with topics(bench.broker, bench.scaled(_TOPICS, minimum=_TOPICS_MIN), partitions=1) as names:
        everything = _measure(all_key, bench, "metadata", 1)
        one = _measure(one_key, bench, "metadata", _FEW_CONNECTIONS, topics=[names[len(names) // 2]])
    return {**everything, **one}


def _measure(key: str, bench: Bench, kind: str, connections: int, **options: object) -> dict[str, float]:
    settings = {
        "port": bench.broker.port,
        "kind": kind,
        "connections": connections,
        "duration_s": max(_DURATION_S_MIN, _DURATION_S * bench.scale),
        **options,
    }
    outcome = run_loads([Load("bench.wire", "requests", settings)], bench.broker)
    answered = outcome.result["requests"]
    return {
        f"{key}requests/s": answered / outcome.result["elapsed_s"],
        f"{key}CPU": outcome.cpu_s / answered / _MICROSECOND,
    }


def _metrics(key: str, goal: str = ">= 1.0") -> tuple[Metric, ...]:
    return (
        Metric(name=f"{key}requests/s", unit="requests/s", better="higher", goal=goal),
        Metric(name=f"{key}CPU", unit="us/request", better="lower"),
    )


def _produces_row(connections: int) -> Row:
    key = f"requests.produce.{connections}c: "
    several = connections > 1
    return Row(
        name=f"requests/produce/{connections}c",
        title=f"tiny produces over {connections} connection{'s' if several else ''}",
        family="Requests",
        metrics=_metrics(key, ">= 1.0, >= 20000 requests/s" if several else ">= 1.0"),
        run=partial(tiny_produces, key, connections),
    )


_API_VERSIONS = "requests.api-versions: "
_ALL_TOPICS, _ONE_TOPIC = "requests.metadata: all topics, ", "requests.metadata: one topic, "

ROWS = (
    *(_produces_row(connections) for connections in _CONNECTIONS),
    Row(
        name="requests/api-versions",
        title=f"ApiVersions over {_FEW_CONNECTIONS} connections",
        family="Requests",
        metrics=_metrics(_API_VERSIONS),
        run=partial(api_versions, _API_VERSIONS),
    ),
    Row(
        name="requests/metadata",
        title=f"Metadata among {_TOPICS:,} topics: all over 1 connection, one over {_FEW_CONNECTIONS}",
        family="Requests",
        metrics=(*_metrics(_ALL_TOPICS), *_metrics(_ONE_TOPIC)),
        run=partial(metadata, _ALL_TOPICS, _ONE_TOPIC),
    ),
)
