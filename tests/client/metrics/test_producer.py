from math import isnan

import pytest

from rookery.base.types import NodeId, TopicName
from rookery.client.metrics import ProducerMetrics, Windows, metric_name
from rookery.client.metrics.registry import IDLE_S
from tests.client.metrics.clock import Clock

ORDERS = TopicName("orders")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> ProducerMetrics:
    return ProducerMetrics(clock, "me", windows=Windows(2, 30.0))


def _of_producer(metrics: ProducerMetrics, name: str) -> float:
    return metrics.metrics()[metric_name(name, "producer-metrics", client_id="me")]


def _of_topic(metrics: ProducerMetrics, name: str, topic: str = "orders") -> float:
    return metrics.metrics()[metric_name(name, "producer-topic-metrics", client_id="me", topic=topic)]


def _send(metrics: ProducerMetrics, topic: str = "orders", records: int = 30) -> None:
    metrics.batch_sent(
        TopicName(topic), records=records, size_bytes=600, record_size_max=50, queue_time_s=0.004, compression_ratio=0.5
    )


def test_batches(metrics: ProducerMetrics) -> None:
    _send(metrics)
    metrics.batch_sent(
        ORDERS, records=90, size_bytes=1200, record_size_max=70, queue_time_s=0.008, compression_ratio=1.0
    )
    _send(metrics, "others", records=60)
    assert _of_producer(metrics, "record-send-total") == 180
    assert _of_producer(metrics, "record-send-rate") == 6
    assert _of_producer(metrics, "batch-size-avg") == 800
    assert _of_producer(metrics, "batch-size-max") == 1200
    assert _of_producer(metrics, "record-size-max") == 70
    assert _of_producer(metrics, "record-queue-time-avg") == pytest.approx(16 / 3)
    assert _of_producer(metrics, "record-queue-time-max") == 8
    assert _of_producer(metrics, "compression-rate-avg") == pytest.approx(2 / 3)
    assert _of_topic(metrics, "record-send-total") == 120
    assert _of_topic(metrics, "byte-rate") == 60
    assert _of_topic(metrics, "byte-total") == 1800
    assert _of_topic(metrics, "compression-rate") == 0.75
    assert _of_topic(metrics, "record-send-total", "others") == 60


def test_requests(metrics: ProducerMetrics) -> None:
    metrics.request_sent(10)
    metrics.request_sent(20)
    metrics.requests_in_flight(2)
    metrics.request_done(0.010)
    metrics.request_done(0.030, throttle_time_ms=100)
    assert _of_producer(metrics, "records-per-request-avg") == 15
    assert _of_producer(metrics, "requests-in-flight") == 2
    assert _of_producer(metrics, "request-latency-avg") == pytest.approx(20)
    assert _of_producer(metrics, "request-latency-max") == pytest.approx(30)
    assert _of_producer(metrics, "produce-throttle-time-avg") == 50
    assert _of_producer(metrics, "produce-throttle-time-max") == 100


def test_errors_and_retries(metrics: ProducerMetrics) -> None:
    metrics.errors(ORDERS, 3)
    metrics.retries(ORDERS, 30)
    metrics.batch_split()
    assert _of_producer(metrics, "record-error-total") == _of_topic(metrics, "record-error-total") == 3
    assert _of_producer(metrics, "record-retry-rate") == _of_topic(metrics, "record-retry-rate") == 1
    assert _of_producer(metrics, "batch-split-total") == 1


def test_the_buffer(metrics: ProducerMetrics) -> None:
    metrics.buffer(1000, 400)
    metrics.waiting_threads(3)
    metrics.buffer_waited(6.0)
    metrics.buffer_exhausted(2)
    metrics.buffer_exhausted()
    assert _of_producer(metrics, "buffer-total-bytes") == 1000
    assert _of_producer(metrics, "buffer-available-bytes") == 400
    assert _of_producer(metrics, "waiting-threads") == 3
    assert _of_producer(metrics, "bufferpool-wait-ratio") == 0.2
    assert _of_producer(metrics, "bufferpool-wait-time-ns-total") == 6e9
    assert _of_producer(metrics, "buffer-exhausted-total") == 3


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("flush_time", "flush"),
        ("metadata_waited", "metadata-wait"),
        ("txn_init_time", "txn-init"),
        ("txn_begin_time", "txn-begin"),
        ("txn_send_offsets_time", "txn-send-offsets"),
        ("txn_commit_time", "txn-commit"),
        ("txn_abort_time", "txn-abort"),
    ],
)
def test_times_add_up(metrics: ProducerMetrics, call: str, name: str) -> None:
    getattr(metrics, call)(0.5)
    getattr(metrics, call)(1.0)
    totals = {key.name: value for key, value in metrics.metrics().items() if key.name.endswith("-time-ns-total")}
    assert {key for key, value in totals.items() if value} == {f"{name}-time-ns-total"}
    assert totals[f"{name}-time-ns-total"] == 1.5e9


def test_the_age_of_metadata(metrics: ProducerMetrics, clock: Clock) -> None:
    assert isnan(_of_producer(metrics, "metadata-age"))
    metrics.metadata_refreshed()
    clock.advance(7)
    assert _of_producer(metrics, "metadata-age") == 7


def test_all_values_are_floats(metrics: ProducerMetrics) -> None:
    _send(metrics)
    metrics.connections.sent(NodeId(1), 5)
    assert {type(value) for value in metrics.metrics().values()} == {float}


def test_values_before_any_event(metrics: ProducerMetrics) -> None:
    for name, value in metrics.metrics().items():
        if name.name == "metadata-age" or name.name.endswith(("-avg", "-max")):
            assert isnan(value), name
        else:
            assert value == 0, name


def test_connection_metrics_are_included(metrics: ProducerMetrics) -> None:
    metrics.connections.sent(NodeId(1), 100)
    assert _of_producer(metrics, "outgoing-byte-total") == 100


def test_an_idle_topic_is_removed_when_another_is_added(metrics: ProducerMetrics, clock: Clock) -> None:
    _send(metrics, "old")
    clock.advance(IDLE_S - 1)
    _send(metrics, "kept")
    assert _of_topic(metrics, "record-send-total", "old") == 30
    clock.advance(1)
    _send(metrics, "new")
    topics = {dict(name.tags).get("topic") for name in metrics.metrics()}
    assert topics == {None, "kept", "new"}
