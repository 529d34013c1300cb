"""A producer's metrics. The sender and the accumulator call it per batch and per request, never per record."""

from collections.abc import Callable
from functools import partial
from math import nan

from rookery.base.types import TopicName
from rookery.client.metrics.connections import ConnectionMetrics
from rookery.client.metrics.names import MetricName
from rookery.client.metrics.registry import Family, Registry
from rookery.telemetry.sensors import DEFAULT_WINDOWS, Sensor, Windows

_NANOSECONDS = 1_000_000_000
# The calls whose total time is measured, by the first part of the metric's name.
_TIMED = ("flush", "metadata-wait", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort")


class _Topic:
    __slots__ = ("byte", "compression", "created_s", "error", "record", "registry", "retry")

    def __init__(self, registry: Registry, windows: Windows, now_s: float) -> None:
        self.created_s = now_s
        self.registry = registry
        self.record, self.byte, self.compression = Sensor(windows), Sensor(windows), Sensor(windows)
        self.retry, self.error = Sensor(windows), Sensor(windows)
        registry.add_meter("record-send", self.record)
        registry.add_meter("byte", self.byte)
        registry.add("compression-rate", self.compression.average)
        registry.add_meter("record-retry", self.retry)
        registry.add_meter("record-error", self.error)

    def last_s(self) -> float:
        sensors = (self.record, self.retry, self.error)
        return max(self.created_s if sensor.last_s is None else sensor.last_s for sensor in sensors)


class ProducerMetrics:
    """`connections` is the observer to pass to the cluster; `metrics` includes its values."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        client_id: str,
        *,
        windows: Windows = DEFAULT_WINDOWS,
    ) -> None:
        self.connections = ConnectionMetrics(clock_s, client_id, kind="producer", windows=windows)
        self._clock_s = clock_s
        self._batch_size, self._record_size = Sensor(windows), Sensor(windows)
        self._queue_time, self._compression = Sensor(windows), Sensor(windows)
        self._records, self._request_records = Sensor(windows), Sensor(windows)
        self._latency, self._throttle = Sensor(windows), Sensor(windows)
        self._retries, self._errors, self._splits = Sensor(windows), Sensor(windows), Sensor(windows)
        self._exhausted, self._buffer_wait = Sensor(windows), Sensor(windows)
        self._spent_s = dict.fromkeys(_TIMED, 0.0)
        self._buffer_total = self._buffer_available = 0
        self._waiting = self._in_flight = 0
        self._refreshed_s: float | None = None
        self._registry = Registry("producer-metrics", {"client_id": client_id})
        self._topics: Family[TopicName, _Topic] = Family(
            lambda topic, now_s: _Topic(
                Registry("producer-topic-metrics", {"client_id": client_id, "topic": topic}), windows, now_s
            )
        )
        self._register_sends(self._registry)
        self._register_waits(self._registry)

    def batch_sent(
        self,
        topic: TopicName,
        *,
        records: int,
        size_bytes: int,
        record_size_max: int,
        queue_time_s: float,
        compression_ratio: float,
    ) -> None:
        """Record a batch that is sent or retried; `compression_ratio` is its size divided by the uncompressed size."""
        now_s = self._clock_s()
        self._records.record(records, now_s)
        self._batch_size.record(size_bytes, now_s)
        self._record_size.record(record_size_max, now_s)
        self._queue_time.record(queue_time_s * 1000, now_s)
        self._compression.record(compression_ratio, now_s)
        topic_metrics = self._topics.get(topic, now_s)
        topic_metrics.record.record(records, now_s)
        topic_metrics.byte.record(size_bytes, now_s)
        topic_metrics.compression.record(compression_ratio, now_s)

    def request_sent(self, records: int) -> None:
        """Record a produce request with `records` records in all its batches."""
        self._request_records.record(records, self._clock_s())

    def request_done(self, latency_s: float, throttle_time_ms: int = 0) -> None:
        """Record the response to a produce request."""
        now_s = self._clock_s()
        self._latency.record(latency_s * 1000, now_s)
        self._throttle.record(throttle_time_ms, now_s)

    def requests_in_flight(self, requests: int) -> None:
        self._in_flight = requests

    def errors(self, topic: TopicName, records: int) -> None:
        now_s = self._clock_s()
        self._errors.record(records, now_s)
        self._topics.get(topic, now_s).error.record(records, now_s)

    def retries(self, topic: TopicName, records: int) -> None:
        now_s = self._clock_s()
        self._retries.record(records, now_s)
        self._topics.get(topic, now_s).retry.record(records, now_s)

    def batch_split(self) -> None:
        self._splits.record(1, self._clock_s())

    def buffer(self, total_bytes: int, available_bytes: int) -> None:
        self._buffer_total, self._buffer_available = total_bytes, available_bytes

    def waiting_threads(self, waiting: int) -> None:
        self._waiting = waiting

    def buffer_waited(self, seconds: float) -> None:
        """Record the time that a sender waited for memory, successfully or not."""
        self._buffer_wait.record(seconds, self._clock_s())

    def buffer_exhausted(self, records: int = 1) -> None:
        self._exhausted.record(records, self._clock_s())

    def metadata_refreshed(self) -> None:
        self._refreshed_s = self._clock_s()

    def metadata_waited(self, seconds: float) -> None:
        self._spent_s["metadata-wait"] += seconds

    def flush_time(self, seconds: float) -> None:
        self._spent_s["flush"] += seconds

    def txn_init_time(self, seconds: float) -> None:
        self._spent_s["txn-init"] += seconds

    def txn_begin_time(self, seconds: float) -> None:
        self._spent_s["txn-begin"] += seconds

    def txn_send_offsets_time(self, seconds: float) -> None:
        self._spent_s["txn-send-offsets"] += seconds

    def txn_commit_time(self, seconds: float) -> None:
        self._spent_s["txn-commit"] += seconds

    def txn_abort_time(self, seconds: float) -> None:
        self._spent_s["txn-abort"] += seconds

    def metrics(self) -> dict[MetricName, float]:
        now_s = self._clock_s()
        return self._registry.read(now_s) | self._topics.read(now_s) | self.connections.metrics()

    def _register_sends(self, registry: Registry) -> None:
        registry.add_average_and_maximum("batch-size", self._batch_size)
        registry.add_average_and_maximum("record-size", self._record_size)
        registry.add_average_and_maximum("record-queue-time", self._queue_time)
        registry.add("compression-rate-avg", self._compression.average)
        registry.add_meter("record-send", self._records)
        registry.add_meter("record-retry", self._retries)
        registry.add_meter("record-error", self._errors)
        registry.add_meter("batch-split", self._splits)
        registry.add("records-per-request-avg", self._request_records.average)
        registry.add_average_and_maximum("request-latency", self._latency)
        registry.add_average_and_maximum("produce-throttle-time", self._throttle)
        registry.add("requests-in-flight", lambda _: float(self._in_flight))

    def _register_waits(self, registry: Registry) -> None:
        registry.add("buffer-total-bytes", lambda _: float(self._buffer_total))
        registry.add("buffer-available-bytes", lambda _: float(self._buffer_available))
        registry.add("waiting-threads", lambda _: float(self._waiting))
        registry.add_meter("buffer-exhausted", self._exhausted)
        registry.add("bufferpool-wait-ratio", self._buffer_wait.rate)
        registry.add("bufferpool-wait-time-ns-total", lambda _: self._buffer_wait.total * _NANOSECONDS)
        registry.add("metadata-age", lambda now_s: nan if self._refreshed_s is None else now_s - self._refreshed_s)
        for name in _TIMED:
            registry.add(f"{name}-time-ns-total", partial(self._spent_ns, name))

    def _spent_ns(self, name: str, _: float) -> float:
        return self._spent_s[name] * _NANOSECONDS
