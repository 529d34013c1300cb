"""Metrics of a client's connections. An admin client has no others."""

from collections.abc import Callable

from rookery.base.types import NodeId
from rookery.client.metrics.names import MetricName
from rookery.client.metrics.registry import Family, Registry
from rookery.client.settings.common import CommonSettings
from rookery.telemetry.sensors import DEFAULT_WINDOWS, Sensor, Windows


def windows_of(settings: CommonSettings) -> Windows:
    return Windows(settings.metrics_num_samples, settings.metrics_sample_window_ms / 1000)


class _Node:
    """The metrics of one broker. A negative node id is a bootstrap server."""

    __slots__ = ("created_s", "incoming", "latency", "outgoing", "registry")

    def __init__(self, registry: Registry, windows: Windows, now_s: float) -> None:
        self.created_s = now_s
        self.registry = registry
        self.incoming, self.outgoing, self.latency = Sensor(windows), Sensor(windows), Sensor(windows)
        registry.add_meter("outgoing-byte", self.outgoing)
        registry.add_meter("incoming-byte", self.incoming)
        registry.add_counter("request", self.outgoing)
        registry.add_average_and_maximum("request-size", self.outgoing)
        registry.add_counter("response", self.incoming)
        registry.add_average_and_maximum("request-latency", self.latency)

    def last_s(self) -> float:
        return max(self.created_s, self.outgoing.last_s or self.created_s, self.incoming.last_s or self.created_s)


class ConnectionMetrics:
    """A `net.channel.ChannelObserver`: connections call it once per request and once per response."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        client_id: str,
        *,
        kind: str = "admin-client",
        windows: Windows = DEFAULT_WINDOWS,
    ) -> None:
        """`kind` is the prefix of the metric groups: producer, consumer or admin-client."""
        self._clock_s = clock_s
        self._open = 0
        self._opened, self._closed = Sensor(windows), Sensor(windows)
        self._incoming, self._outgoing = Sensor(windows), Sensor(windows)
        self._registry = Registry(f"{kind}-metrics", {"client_id": client_id})
        self._nodes: Family[NodeId, _Node] = Family(
            lambda node, now_s: _Node(
                Registry(f"{kind}-node-metrics", {"client_id": client_id, "node_id": f"node-{node}"}), windows, now_s
            )
        )
        self._register(self._registry)

    def opened(self, node: NodeId) -> None:
        now_s = self._clock_s()
        self._open += 1
        self._opened.record(1, now_s)
        self._nodes.get(node, now_s)

    def closed(self, node: NodeId) -> None:
        self._open -= 1
        self._closed.record(1, self._clock_s())

    def sent(self, node: NodeId, size_bytes: int) -> None:
        now_s = self._clock_s()
        self._outgoing.record(size_bytes, now_s)
        self._nodes.get(node, now_s).outgoing.record(size_bytes, now_s)

    def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None:
        now_s = self._clock_s()
        self._incoming.record(size_bytes, now_s)
        sensors = self._nodes.get(node, now_s)
        sensors.incoming.record(size_bytes, now_s)
        sensors.latency.record(latency_s * 1000, now_s)

    def metrics(self) -> dict[MetricName, float]:
        now_s = self._clock_s()
        return self._registry.read(now_s) | self._nodes.read(now_s)

    def _register(self, registry: Registry) -> None:
        incoming, outgoing = self._incoming, self._outgoing
        registry.add("connection-count", lambda _: float(self._open))
        registry.add_counter("connection-creation", self._opened)
        registry.add_counter("connection-close", self._closed)
        registry.add("network-io-rate", lambda now_s: incoming.count_rate(now_s) + outgoing.count_rate(now_s))
        registry.add("network-io-total", lambda _: float(incoming.count + outgoing.count))
        registry.add_meter("outgoing-byte", outgoing)
        registry.add_meter("incoming-byte", incoming)
        registry.add_counter("request", outgoing)
        registry.add_average_and_maximum("request-size", outgoing)
        registry.add_counter("response", incoming)
