"""Generates docs/client-metrics.md: `python -m rookery.client.metrics.docs > docs/client-metrics.md`."""

import sys
from itertools import groupby

from rookery.base.config_docs import markdown_table, section
from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.metrics.connections import ConnectionMetrics
from rookery.client.metrics.consumer import ConsumerMetrics
from rookery.client.metrics.names import MetricName
from rookery.client.metrics.producer import ProducerMetrics

_INTRODUCTION = """\
# Metrics of the clients

<!-- Generated from src/rookery/client/metrics by `make docs`. Do not edit. -->

`metrics()` of a `Producer`, `Consumer` or `Admin` returns `{MetricName: float}`. Names, groups and tags are those of
Apache Kafka's Java clients, and so are the values: rates, averages, maxima and minima cover `metrics.num.samples`
windows of `metrics.sample.window.ms`. Without events in that time, rates are 0 and all others NaN.

```python
from rookery.client.metrics import metric_name
from rookery.client.sync import Producer

with Producer({"bootstrap.servers": "localhost:9092", "client.id": "me"}) as producer:
    producer.send("orders", b"one pear").result()
    print(producer.metrics()[metric_name("record-send-rate", "producer-metrics", client_id="me")])
```

For Prometheus, register a collector with `prometheus_client`, or serve the text yourself. The metric above is
`kafka_producer_record_send_rate{client_id="me"}` there.

```python
from prometheus_client import CollectorRegistry
from rookery.client.metrics.prometheus import MetricsCollector, prometheus_text
from rookery.client.sync import Producer

with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(producer))
    print(prometheus_text(producer))
```

Differences from the Java clients:

- A topic with dots in its name has no second set of metrics with underscores.
- A consumer counts the bytes of batches as they were fetched, compressed and with their headers, not those of records.
- For a consumer's `fetch-size-*` and `records-per-request-avg`, all records that are consumed between two fetch
  responses count as one fetch.
- `record-size-*` of a producer are sizes as written, not upper estimates.
- `request-latency-*` of a node covers every kind of request.
- `metadata-age` is NaN, not the seconds since 1970, before there is metadata.
- There are no metrics of authentication, of Java's threads and queues (`io-*`, `select-*`, `*-event-queue-*`,
  `unsent-requests-*`, `time-between-network-thread-poll-*`), of the Java build (`app-info`), of the number of metrics
  (`kafka-metrics-count`) and of two-phase commits (`txn-prepare-time-ns-total`).
"""


def render() -> str:
    names = {(name.group, tuple(tag for tag, _ in name.tags), name.name): name for name in _all_names()}
    parts = [_INTRODUCTION]
    for (group, tags), keys in groupby(sorted(names), key=lambda key: key[:2]):
        rows = [(f"`{names[key].name}`", names[key].description) for key in keys]
        title = f"{group} ({', '.join(tags)})"
        parts.append(section(title, markdown_table(("metric", "meaning"), rows)))
    return "\n".join(parts)


def _all_names() -> list[MetricName]:
    """Return the names of all metrics, by recording one event of each kind that creates metrics."""
    producer, consumer, admin = ProducerMetrics(_zero, ""), ConsumerMetrics(_zero, ""), ConnectionMetrics(_zero, "")
    tp = TopicPartition(TopicName("topic"), 0)
    producer.retries(tp.topic, 1)
    consumer.fetched(tp, 1, 1)
    consumer.lag(tp, 0)
    consumer.lead(tp, 0)
    for connections in (producer.connections, consumer.connections, admin):
        connections.opened(NodeId(0))
    return [*producer.metrics(), *consumer.metrics(), *admin.metrics()]


def _zero() -> float:
    return 0.0


if __name__ == "__main__":
    sys.stdout.write(render())
