"""Exports the clients' metrics to Prometheus: a collector for `prometheus_client`, and the text format.

    registry.register(MetricsCollector(producer, consumer))

A metric `record-send-rate` of the group `producer-metrics` is `kafka_producer_record_send_rate{client_id="..."}`:
`kafka`, the group without `-metrics`, the name, joined by underscores; the tags are labels. Metrics whose names end in
`-total` are counters, all others gauges. A metric without events is NaN, as in Kafka. As in Kafka, a consumer's fetch
metrics have one name for the consumer, for each topic and for each partition: select by the labels `topic` and
`partition` before you sum.
"""

import re
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rookery.client.metrics.names import MetricName


class HasMetrics(Protocol):
    """A Producer, Consumer or Admin, asynchronous or not."""

    def metrics(self) -> dict[MetricName, float]: ...


class MetricsCollector(Collector):
    """Reads the metrics at each scrape. Several clients may share a collector if their client.ids differ."""

    def __init__(self, *clients: HasMetrics) -> None:
        self._clients = clients

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for client in self._clients:
            for metric, value in client.metrics().items():
                name = prometheus_name(metric)
                family = families.get(name)
                if family is None:
                    family = families[name] = _family(name, metric)
                sample = f"{family.name}_total" if family.type == "counter" else family.name
                family.add_sample(sample, {_label(tag): text for tag, text in metric.tags}, value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are not known before the clients have done something."""
        return []


def prometheus_text(*clients: HasMetrics) -> str:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(*clients))
    return generate_latest(registry).decode()


def prometheus_name(metric: MetricName) -> str:
    return "kafka_" + re.sub(r"[^a-zA-Z0-9]", "_", f"{metric.group.removesuffix('-metrics')}_{metric.name}")


def _family(name: str, metric: MetricName) -> Metric:
    if name.endswith("_total"):
        return CounterMetricFamily(name, metric.description)
    return GaugeMetricFamily(name, metric.description)


def _label(tag: str) -> str:
    return tag.replace("-", "_")
