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


def _of_all(metrics: ConnectionMetrics, name: str) -> float:
    return metrics.metrics()[metric_name(name, "consumer-metrics", client_id="me")]


def _of_node(metrics: ConnectionMetrics, name: str, node: str = "node-1") -> float:
    return metrics.metrics()[metric_name(name, "consumer-node-metrics", client_id="me", node_id=node)]


def test_connections_come_and_go(metrics: ConnectionMetrics) -> None:
    for node in (BOOTSTRAP, ONE, ONE):
        metrics.opened(node)
    metrics.closed(BOOTSTRAP)
    assert _of_all(metrics, "connection-count") == 2
    assert _of_all(metrics, "connection-creation-total") == 3
    assert _of_all(metrics, "connection-creation-rate") == 0.1
    assert _of_all(metrics, "connection-close-total") == 1


def test_requests_and_responses(metrics: ConnectionMetrics) -> None:
    metrics.sent(BOOTSTRAP, 100)
    metrics.sent(ONE, 200)
    metrics.sent(ONE, 600)
    metrics.received(ONE, 3000, 0.010)
    metrics.received(ONE, 6000, 0.030)
    assert _of_all(metrics, "request-total") == 3
    assert _of_all(metrics, "request-rate") == 0.1
    assert _of_all(metrics, "request-size-avg") == 300
    assert _of_all(metrics, "request-size-max") == 600
    assert _of_all(metrics, "outgoing-byte-total") == 900
    assert _of_all(metrics, "outgoing-byte-rate") == 30
    assert _of_all(metrics, "incoming-byte-rate") == 300
    assert _of_all(metrics, "response-total") == 2
    assert _of_all(metrics, "network-io-total") == 5
    assert _of_all(metrics, "network-io-rate") == pytest.approx(5 / 30)
    assert _of_node(metrics, "request-total") == 2
    assert _of_node(metrics, "outgoing-byte-total", "node--1") == 100
    assert _of_node(metrics, "incoming-byte-total") == 9000
    assert _of_node(metrics, "request-latency-avg") == pytest.approx(20)
    assert _of_node(metrics, "request-latency-max") == pytest.approx(30)


def test_a_node_without_traffic_is_forgotten(metrics: ConnectionMetrics, clock: Clock) -> None:
    metrics.sent(BOOTSTRAP, 1)
    clock.pass_(IDLE_S)
    metrics.sent(ONE, 1)
    assert {dict(name.tags).get("node-id") for name in metrics.metrics()} == {None, "node-1"}


def test_the_windows_come_from_the_settings() -> None:
    config = {"bootstrap.servers": "a", "metrics.num.samples": 4, "metrics.sample.window.ms": 500}
    assert windows_of(AdminSettings.parse(config).common) == Windows(4, 0.5)
    assert windows_of(AdminSettings.parse({"bootstrap.servers": "a"}).common) == Windows()
