import math

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.metrics import ConsumerMetrics, ProducerMetrics, metric_name
from rookery.client.metrics.prometheus import MetricsCollector, prometheus_name, prometheus_text
from tests.client.metrics.clock import Clock


def _producer(client_id: str = "me") -> ProducerMetrics:
    metrics = ProducerMetrics(Clock(), client_id)
    metrics.batch_sent(
        TopicName('my."topic"'), records=30, size_bytes=60, record_size_max=5, queue_time_s=0.1, compression_ratio=1.0
    )
    metrics.connections.sent(NodeId(-1), 7)
    return metrics


def test_names() -> None:
    assert prometheus_name(metric_name("record-send-rate", "producer-metrics")) == "kafka_producer_record_send_rate"
    assert prometheus_name(metric_name("byte-rate", "producer-topic-metrics")) == "kafka_producer_topic_byte_rate"
    lag = metric_name("records-lag", "consumer-fetch-manager-metrics")
    assert prometheus_name(lag) == "kafka_consumer_fetch_manager_records_lag"


def test_a_registry_accepts_the_collector() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(MetricsCollector(_producer("a"), _producer("b")))
    assert registry.get_sample_value("kafka_producer_record_send_rate", {"client_id": "b"}) == 1
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "a"}) == 30
    topic = {"client_id": "a", "topic": 'my."topic"'}
    assert registry.get_sample_value("kafka_producer_topic_byte_total", topic) == 60
    node = {"client_id": "a", "node_id": "node--1"}
    assert registry.get_sample_value("kafka_producer_node_outgoing_byte_total", node) == 7


def test_the_text_has_every_metric_once_and_can_be_read_back() -> None:
    consumer = ConsumerMetrics(Clock(), "me")
    consumer.fetched(TopicPartition(TopicName("t"), 0), 1, 2)
    consumer.lag(TopicPartition(TopicName("t"), 0), 3)
    clients = (_producer(), consumer)
    families = list(text_string_to_metric_families(prometheus_text(*clients)))
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    expected = {
        (prometheus_name(name), tuple(sorted((tag.replace("-", "_"), value) for tag, value in name.tags))): value
        for client in clients
        for name, value in client.metrics().items()
    }
    assert samples.keys() == expected.keys()
    assert all(samples[key] == expected[key] or math.isnan(expected[key]) for key in samples)
    assert all(family.documentation for family in families)
    assert len({family.name for family in families}) == len(families)


def test_totals_are_counters_and_the_rest_gauges() -> None:
    for family in MetricsCollector(_producer()).collect():
        is_total = all(sample.name.endswith("_total") for sample in family.samples)
        assert family.type == ("counter" if is_total else "gauge")


def test_the_text_of_no_client_is_empty() -> None:
    assert prometheus_text() == ""
