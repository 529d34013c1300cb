"""The names compared with the Java clients': kafka_metrics.json holds the keys of `metrics()` of a KafkaProducer, of a
KafkaConsumer of each group protocol and of an Admin of Apache Kafka 4.3.1, after some use."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.metrics import ConnectionMetrics, ConsumerMetrics, MetricName, ProducerMetrics, metric_name
from rookery.client.metrics.names import DESCRIPTIONS
from tests.client.metrics.clock import Clock

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "kafka_metrics.json").read_text())
# Kafka's metrics that are omitted, by reason.
OMITTED = {
    "about the Java build": r"app-info .*",
    "the number of metrics, which is len()": r"kafka-metrics-count .*",
    "authentication is not measured": r"\S+ .*authentication-.*",
    "times of Java's IO thread; here the event loop belongs to the program": r"\S+ (io-|select-).*",
    "there is no two-phase commit": r"producer-metrics txn-prepare-.*",
    "queues between Java's two threads": r"consumer-metrics (application-event|background-event|unsent-requests).*",
    "Java's network thread": r"consumer-metrics time-between-network-thread-poll.*",
}


def _kafka(client: str) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (row["group"], row["name"], tuple(row["tags"]))
        for row in ROWS
        if client in row["clients"]
        and not any(re.fullmatch(pattern, f"{row['group']} {row['name']}") for pattern in OMITTED.values())
    }


def _ours(metrics: dict[MetricName, float]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(name.group, name.name, tuple(tag for tag, _ in name.tags)) for name in metrics}


def _used_producer() -> ProducerMetrics:
    metrics = ProducerMetrics(Clock(), "me")
    metrics.retries(TopicName("t"), 1)
    metrics.connections.sent(NodeId(1), 5)
    return metrics


def _used_consumer() -> ConsumerMetrics:
    metrics = ConsumerMetrics(Clock(), "me")
    tp = TopicPartition(TopicName("t"), 0)
    metrics.fetched(tp, 1, 1)
    metrics.lag(tp, 1)
    metrics.lead(tp, 1)
    metrics.connections.opened(NodeId(-1))
    return metrics


def test_the_producers_names_are_kafkas() -> None:
    assert _ours(_used_producer().metrics()) == _kafka("producer")


def test_the_consumers_names_are_kafkas() -> None:
    assert _ours(_used_consumer().metrics()) == _kafka("classic")


def test_the_consumer_protocol_keeps_the_names_of_the_classic_one() -> None:
    extra = {name for _, name, _ in _ours(_used_consumer().metrics()) - _kafka("consumer")}
    assert extra == {
        f"{call}-{what}" for call in ("join", "sync") for what in ("rate", "total", "time-avg", "time-max")
    }
    assert _kafka("consumer") <= _ours(_used_consumer().metrics())


def test_the_admins_names_are_kafkas() -> None:
    metrics = ConnectionMetrics(Clock(), "me")
    metrics.sent(NodeId(1), 5)
    assert _ours(metrics.metrics()) == _kafka("admin")


@pytest.mark.parametrize("pattern", OMITTED.values())
def test_omitted_metrics_exist_in_kafka(pattern: str) -> None:
    assert any(re.fullmatch(pattern, f"{row['group']} {row['name']}") for row in ROWS)


def test_every_metric_has_a_description_and_every_description_a_metric() -> None:
    assert set(DESCRIPTIONS) == {name for client in ("producer", "classic", "admin") for _, name, _ in _kafka(client)}
    assert all(text.endswith(".") for text in DESCRIPTIONS.values())


def test_names_are_built_with_sorted_tags() -> None:
    name = metric_name("records-lag", "consumer-fetch-manager-metrics", topic="t", partition="0", client_id="me")
    assert name.tags == (("client-id", "me"), ("partition", "0"), ("topic", "t"))
    assert name in _used_consumer().metrics()
    assert name.description == DESCRIPTIONS["records-lag"]
