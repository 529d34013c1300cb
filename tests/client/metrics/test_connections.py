import pytest

from rookery.base.types import NodeId
from rookery.client.metrics import ConnectionMetrics, Windows, metric_name, windows_of
from rookery.client.metrics.registry import IDLE_S
from rookery.client.settings import AdminSettings
from tests.client.metrics.clock import Clock

ONE = NodeId(1)
BOOTSTRAP = NodeId(-1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> ConnectionMetrics:
    return ConnectionMetrics(clock, "me", kind="consumer", windows=Windows(2, 30.0))


def _client_value(metrics: ConnectionMetrics, name: str) -> float:
    return metrics.metrics()[metric_name(name, "consumer-metrics", client_id="me")]


def _node_value(metrics: ConnectionMetrics, name: str, node: str = "node-1") -> float:
    return metrics.metrics()[metric_name(name, "consumer-node-metrics", client_id="me", node_id=node)]


def test_opened_and_closed_connections(metrics: ConnectionMetrics) -> None:
    for node in (BOOTSTRAP, ONE, ONE):
        metrics.opened(node)
    metrics.closed(BOOTSTRAP)
    assert _client_value(metrics, "connection-count") == 2
    assert _client_value(metrics, "connection-creation-total") == 3
    assert _client_value(metrics, "connection-creation-rate") == 0.1
    assert _client_value(metrics, "connection-close-total") == 1


def test_requests_and_responses(metrics: ConnectionMetrics) -> None:
    metrics.sent(BOOTSTRAP, 100)
    metrics.sent(ONE, 200)
    metrics.sent(ONE, 600)
    metrics.received(ONE, 3000, 0.010)
    metrics.received(ONE, 6000, 0.030)
    assert _client_value(metrics, "request-total") == 3
    assert _client_value(metrics, "request-rate") == 0.1
    assert _client_value(metrics, "request-size-avg") == 300
    assert _client_value(metrics, "request-size-max") == 600
    assert _client_value(metrics, "outgoing-byte-total") == 900
    assert _client_value(metrics, "outgoing-byte-rate") == 30
    assert _client_value(metrics, "incoming-byte-rate") == 300
    assert _client_value(metrics, "response-total") == 2
    assert _client_value(metrics, "network-io-total") == 5
    assert _client_value(metrics, "network-io-rate") == pytest.approx(5 / 30)
    assert _node_value(metrics, "request-total") == 2
    assert _node_value(metrics, "outgoing-byte-total", "node--1") == 100
    assert _node_value(metrics, "incoming-byte-total") == 9000
    assert _node_value(metrics, "request-latency-avg") == pytest.approx(20)
    assert _node_value(metrics, "request-latency-max") == pytest.approx(30)


def test_a_node_without_traffic_is_removed(metrics: ConnectionMetrics, clock: Clock) -> None:
    metrics.sent(BOOTSTRAP, 1)
    clock.advance(IDLE_S)
    metrics.sent(ONE, 1)
    assert {dict(name.tags).get("node-id") for name in metrics.metrics()} == {None, "node-1"}


def test_the_windows_come_from_the_settings() -> None:
    config = {"bootstrap.servers": "a", "metrics.num.samples": 4, "metrics.sample.window.ms": 500}
    assert windows_of(AdminSettings.parse(config).common) == Windows(4, 0.5)
    assert windows_of(AdminSettings.parse({"bootstrap.servers": "a"}).common) == Windows()
