"""The names of metrics in the dialects that public dashboards use.

Kafka's metrics reach Prometheus through rules that make names of MBeans, and there are several sets of such rules.
Dashboards are written for one of them:

    strimzi    the rules of Strimzi's examples for the JMX exporter, which most community dashboards follow
    confluent  the rules of Confluent's jmx-monitoring-stacks
    reporter   Strimzi's metrics reporter, which uses no JMX

Bytes that producers wrote are `kafka_server_brokertopicmetrics_bytesin_total`, `..._bytesinpersec` and
`..._bytesinpersec_total` in them. A dialect is a function from a family to lines with the same name; pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from rookery.telemetry.histograms import PERCENTILES, Distribution
from rookery.telemetry.measurements import Definition, Family, Idle, Kind, Tags

DEFAULT_DIALECT: Final = "strimzi"

# The JMX exporter's rule makes them of the attributes' names: 50thPercentile, 999thPercentile.
_QUANTILES: Final = tuple(f"{share:.2f}" if share < 0.999 else f"{share:.3f}" for share in PERCENTILES)
# Types whose hyphens Strimzi's rules drop. In all others they become underscores.
_JOINED_BY_STRIMZI: Final = {"raft-metrics", "raft-channel-metrics", "broker-metadata-metrics"}
_JOINED_BY_CONFLUENT: Final = {"socket-server-metrics"}


class Series(NamedTuple):
    """The samples of one name. `type` is Prometheus' type."""

    name: str
    type: str
    help: str
    samples: list[tuple[Tags, float]]


Dialect: TypeAlias = Callable[[Family], Iterator[Series]]


def _strimzi(family: Family) -> Iterator[Series]:
    definition = family.definition
    base = _base(definition, _JOINED_BY_STRIMZI)
    match definition.kind:
        case Kind.GAUGE:
            yield _gauge(re.sub("percent.*$", "_percent", base), family)
        case Kind.METER if base.endswith("persec"):
            yield _numbers(f"{base.removesuffix('persec')}_total", "counter", family)
        case Kind.METER:
            yield _numbers(f"{base}_count", "counter", family)
        case Kind.IDLE:
            yield _idle(re.sub("percent.*$", "_percent", base), "gauge", family, lambda idle: idle.mean_share)
        case Kind.HISTOGRAM:
            yield from _quantiles(base, family)
        case Kind.ATTRIBUTE:
            # The state's name is the label, and the value is always 1.
            yield from _attributes(base, family, is_counter=base.endswith(("_total", "_max")), text_suffix="")


def _confluent(family: Family) -> Iterator[Series]:
    definition = family.definition
    base = _base(definition, _JOINED_BY_CONFLUENT)
    lower = Family(definition, [(tuple((tag.lower(), text) for tag, text in tags), v) for tags, v in family.points])
    match definition.kind:
        case Kind.GAUGE:
            yield _gauge(base, lower)
        case Kind.METER:
            yield _numbers(base, "counter", lower)
        case Kind.IDLE:
            yield _idle(f"{base}_oneminuterate", "gauge", lower, lambda idle: idle.last_minute_share)
        case Kind.HISTOGRAM:
            yield from _quantiles(base, lower)
        case Kind.ATTRIBUTE:
            yield from _attributes(base, lower, is_counter=base.endswith("_total"), text_suffix="")


def _reporter(family: Family) -> Iterator[Series]:
    definition = family.definition
    base = _base(definition, ())
    match definition.kind:
        case Kind.GAUGE:
            yield _gauge(base, family)
        case Kind.METER:
            yield _numbers(f"{base}_total", "counter", family)
        case Kind.IDLE:
            yield _idle(f"{base}_total", "counter", family, lambda idle: idle.nanoseconds)
        case Kind.HISTOGRAM:
            yield from _quantiles(base, family)
        case Kind.ATTRIBUTE:
            # All of them are gauges there, and its library removes the suffix from a gauge's name.
            yield from _attributes(base.removesuffix("_total"), family, is_counter=False, text_suffix="_info")


DIALECTS: Final[Mapping[str, Dialect]] = {"strimzi": _strimzi, "confluent": _confluent, "reporter": _reporter}


def series(family: Family, dialect: Dialect) -> Iterator[Series]:
    """Return the samples of a family, with their names in a dialect."""
    kind = family.definition.kind
    if kind is Kind.PLAIN:
        yield _gauge(family.definition.name, family)
    elif kind is Kind.PLAIN_COUNTER:
        yield _numbers(family.definition.name, "counter", family)
    else:
        yield from dialect(family)


def _base(definition: Definition, joined: "set[str] | tuple[()]") -> str:
    kind_of_bean = definition.type.replace("-", "") if definition.type in joined else definition.type
    name = f"{definition.domain}_{kind_of_bean}_{definition.name}"
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _gauge(name: str, family: Family) -> Series:
    return _numbers(name, "gauge", family)


def _numbers(name: str, kind: str, family: Family) -> Series:
    samples = [(tags, value) for tags, value in family.points if isinstance(value, (int, float))]
    return Series(name, kind, family.definition.help, samples)


def _idle(name: str, kind: str, family: Family, read: Callable[[Idle], float]) -> Series:
    samples = [(tags, read(value)) for tags, value in family.points if isinstance(value, Idle)]
    return Series(name, kind, family.definition.help, samples)


def _quantiles(name: str, family: Family) -> Iterator[Series]:
    """Return a summary as the JMX exporter's rules make it: without a sum, the quantiles as gauges."""
    quantiles: list[tuple[Tags, float]] = []
    counts: list[tuple[Tags, float]] = []
    for tags, value in family.points:
        if isinstance(value, Distribution):
            counts.append((tags, value.number))
            quantiles += [
                ((*tags, ("quantile", text)), found) for text, found in zip(_QUANTILES, value.percentiles, strict=True)
            ]
    yield Series(name, "gauge", family.definition.help, quantiles)
    yield Series(f"{name}_count", "counter", f"{family.definition.help} (number of values)", counts)


def _attributes(name: str, family: Family, *, is_counter: bool, text_suffix: str) -> Iterator[Series]:
    label = family.definition.name.replace("-", "_")
    texts = [((*tags, (label, value)), 1.0) for tags, value in family.points if isinstance(value, str)]
    if texts:
        yield Series(name + text_suffix, "gauge", family.definition.help, texts)
    else:
        yield _numbers(name, "counter" if is_counter else "gauge", family)
