"""Client metrics with Kafka's names: windowed sensors, the metrics of each client, export to Prometheus."""

from rookery.client.metrics.connections import ConnectionMetrics, windows_of
from rookery.client.metrics.consumer import ConsumerMetrics
from rookery.client.metrics.names import MetricName, metric_name
from rookery.client.metrics.producer import ProducerMetrics
from rookery.telemetry.sensors import DEFAULT_WINDOWS, Sensor, Windows

__all__ = [
    "DEFAULT_WINDOWS",
    "ConnectionMetrics",
    "ConsumerMetrics",
    "MetricName",
    "ProducerMetrics",
    "Sensor",
    "Windows",
    "metric_name",
    "windows_of",
]
