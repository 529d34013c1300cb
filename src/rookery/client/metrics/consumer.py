"""A consumer's metrics. The fetcher, the membership and the consumer call it per fetch, partition of a fetch and poll,
never per record."""

from collections.abc import Callable
from math import floor

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.metrics.connections import ConnectionMetrics
from rookery.client.metrics.names import MetricName
from rookery.client.metrics.registry import Family, Registry
from rookery.telemetry.sensors import DEFAULT_WINDOWS, SECONDS_PER_HOUR, Sensor, Windows

_NANOSECONDS = 1_000_000_000
_LEADER = -1
_FETCH_GROUP = "consumer-fetch-manager-metrics"


class _Consumption:
    """The consumed records of all topics, or of one topic.

    Rates and totals count immediately. The size of a fetch is known only when its data is consumed: everything that is
    consumed between two fetch responses counts as one fetch.
    """

    __slots__ = (
        "_pending_bytes",
        "_pending_records",
        "byte",
        "created_s",
        "fetch_records",
        "fetch_size",
        "record",
        "registry",
    )

    def __init__(self, registry: Registry, windows: Windows, now_s: float) -> None:
        self.created_s = now_s
        self.registry = registry
        self.byte, self.record = Sensor(windows), Sensor(windows)
        self.fetch_size, self.fetch_records = Sensor(windows), Sensor(windows)
        self._pending_bytes = self._pending_records = 0
        registry.add_meter("bytes-consumed", self.byte)
        registry.add_meter("records-consumed", self.record)
        registry.add_average_and_maximum("fetch-size", self.fetch_size)
        registry.add("records-per-request-avg", self.fetch_records.average)

    def add(self, records: int, size_bytes: int, now_s: float) -> None:
        self.byte.record(size_bytes, now_s)
        self.record.record(records, now_s)
        self._pending_bytes += size_bytes
        self._pending_records += records

    def end_fetch(self, now_s: float) -> None:
        self.fetch_size.record(self._pending_bytes, now_s)
        self.fetch_records.record(self._pending_records, now_s)
        self._pending_bytes = self._pending_records = 0

    def last_s(self) -> float:
        return self.created_s if self.byte.last_s is None else self.byte.last_s


class _Partition:
    """The metrics of an assigned partition; only `forget` removes them, not the idle time."""

    __slots__ = ("_last_lag", "_last_lead", "lag", "lead", "read_replica", "registry")

    def __init__(self, registry: Registry, windows: Windows) -> None:
        self.registry = registry
        self.lag, self.lead = Sensor(windows), Sensor(windows)
        self._last_lag = self._last_lead = 0
        self.read_replica = _LEADER
        registry.add("preferred-read-replica", lambda _: float(self.read_replica))

    def note_lag(self, lag: int, now_s: float) -> None:
        if not self.lag.count:
            self.registry.add("records-lag", lambda _: float(self._last_lag))
            self.registry.add_average_and_maximum("records-lag", self.lag)
        self._last_lag = lag
        self.lag.record(lag, now_s)

    def note_lead(self, lead: int, now_s: float) -> None:
        if not self.lead.count:
            self.registry.add("records-lead", lambda _: float(self._last_lead))
            self.registry.add("records-lead-avg", self.lead.average)
            self.registry.add("records-lead-min", self.lead.minimum)
        self._last_lead = lead
        self.lead.record(lead, now_s)

    def last_s(self) -> float:
        return float("inf")


class _Group:
    """The metrics of the group membership: joins, heartbeats, commits, calls of the listener."""

    def __init__(self, registry: Registry, windows: Windows) -> None:
        self.registry = registry
        self.join, self.sync, self.commit, self.heartbeat = (Sensor(windows) for _ in range(4))
        # Rebalances are rare: their rates are per hour, over windows of an hour.
        hours = Windows(windows.number, SECONDS_PER_HOUR)
        self.rebalance, self.hourly_rebalance, self.failed = Sensor(windows), Sensor(hours), Sensor(hours)
        self.assigned, self.revoked, self.lost = (Sensor(windows) for _ in range(3))
        self.partitions = 0
        for name, sensor in (("join", self.join), ("sync", self.sync)):
            registry.add_counter(name, sensor)
            registry.add_average_and_maximum(f"{name}-time", sensor)
        registry.add_counter("commit", self.commit)
        registry.add_average_and_maximum("commit-latency", self.commit)
        registry.add_counter("heartbeat", self.heartbeat)
        registry.add("heartbeat-response-time-max", self.heartbeat.maximum)
        registry.add("last-heartbeat-seconds-ago", lambda now_s: _seconds_ago(self.heartbeat.last_s, now_s))
        registry.add("assigned-partitions", lambda _: float(self.partitions))
        for name, sensor in (("assigned", self.assigned), ("revoked", self.revoked), ("lost", self.lost)):
            registry.add_average_and_maximum(f"partition-{name}-latency", sensor)
        self._register_rebalances(registry)

    def _register_rebalances(self, registry: Registry) -> None:
        registry.add_average_and_maximum("rebalance-latency", self.rebalance)
        registry.add("rebalance-latency-total", lambda _: self.rebalance.total)
        registry.add("rebalance-total", lambda _: float(self.rebalance.count))
        registry.add("rebalance-rate-per-hour", lambda now_s: _per_hour(self.hourly_rebalance, now_s))
        registry.add("last-rebalance-seconds-ago", lambda now_s: _seconds_ago(self.rebalance.last_s, now_s))
        registry.add("failed-rebalance-total", lambda _: float(self.failed.count))
        registry.add("failed-rebalance-rate-per-hour", lambda now_s: _per_hour(self.failed, now_s))


class ConsumerMetrics:
    """`connections` is the observer to pass to the cluster; `metrics` includes its values."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        client_id: str,
        *,
        windows: Windows = DEFAULT_WINDOWS,
    ) -> None:
        self.connections = ConnectionMetrics(clock_s, client_id, kind="consumer", windows=windows)
        self._clock_s = clock_s
        tags = {"client_id": client_id}
        self._consumer, self._fetches = Registry("consumer-metrics", tags), Registry(_FETCH_GROUP, tags)
        self._between_polls, self._idle_ratio = Sensor(windows), Sensor(windows)
        self._commit_s = self._committed_s = 0.0
        self._poll_began_s: float | None = None
        self._since_last_poll_s = 0.0
        self._latency, self._throttle, self._lag, self._lead = (Sensor(windows) for _ in range(4))
        self._consumed = _Consumption(self._fetches, windows, 0.0)
        # The topics with consumed records since the last fetch response.
        self._unfinished: set[_Consumption] = set()
        self._topics: Family[TopicName, _Consumption] = Family(
            lambda topic, now_s: _Consumption(Registry(_FETCH_GROUP, tags | {"topic": topic}), windows, now_s)
        )
        self._partitions: Family[TopicPartition, _Partition] = Family(
            lambda tp, _: _Partition(
                Registry(_FETCH_GROUP, tags | {"topic": tp.topic, "partition": str(tp.partition)}), windows
            )
        )
        self._group = _Group(Registry("consumer-coordinator-metrics", tags), windows)
        self._register()

    def poll_started(self) -> None:
        now_s = self._clock_s()
        self._since_last_poll_s = 0.0 if self._poll_began_s is None else now_s - self._poll_began_s
        self._poll_began_s = now_s
        self._between_polls.record(self._since_last_poll_s * 1000, now_s)

    def poll_ended(self) -> None:
        """Record Kafka's idle ratio: the time in this poll, divided by that plus the time since the last poll began."""
        now_s = self._clock_s()
        in_poll_s = 0.0 if self._poll_began_s is None else now_s - self._poll_began_s
        whole_s = in_poll_s + self._since_last_poll_s
        if whole_s > 0:
            self._idle_ratio.record(in_poll_s / whole_s, now_s)

    def fetch(self, latency_s: float, throttle_time_ms: int = 0) -> None:
        """Record a fetch response."""
        now_s = self._clock_s()
        self._latency.record(latency_s * 1000, now_s)
        self._throttle.record(throttle_time_ms, now_s)
        self._end_fetch(now_s)

    def fetched(self, tp: TopicPartition, records: int, size_bytes: int) -> None:
        """Record that the fetched data of one partition has been consumed."""
        now_s = self._clock_s()
        self._consumed.add(records, size_bytes, now_s)
        topic_metrics = self._topics.get(tp.topic, now_s)
        topic_metrics.add(records, size_bytes, now_s)
        self._unfinished.add(topic_metrics)

    def lag(self, tp: TopicPartition, lag: int) -> None:
        now_s = self._clock_s()
        self._lag.record(lag, now_s)
        self._partitions.get(tp, now_s).note_lag(lag, now_s)

    def lead(self, tp: TopicPartition, lead: int) -> None:
        now_s = self._clock_s()
        self._lead.record(lead, now_s)
        self._partitions.get(tp, now_s).note_lead(lead, now_s)

    def read_replica(self, tp: TopicPartition, node: NodeId | None) -> None:
        """Set the replica that is read; None: the leader."""
        self._partitions.get(tp, self._clock_s()).read_replica = _LEADER if node is None else node

    def forget(self, tp: TopicPartition) -> None:
        """Remove the metrics of a partition that is not assigned any more."""
        self._partitions.forget(tp)

    def join(self, seconds: float, /) -> None:
        self._group.join.record(seconds * 1000, self._clock_s())

    def sync(self, seconds: float, /) -> None:
        self._group.sync.record(seconds * 1000, self._clock_s())

    def rebalance(self, seconds: float, /) -> None:
        now_s = self._clock_s()
        self._group.rebalance.record(seconds * 1000, now_s)
        self._group.hourly_rebalance.record(1, now_s)

    def failed_rebalance(self) -> None:
        self._group.failed.record(1, self._clock_s())

    def heartbeat(self, seconds: float, /) -> None:
        self._group.heartbeat.record(seconds * 1000, self._clock_s())

    def commit(self, seconds: float, /) -> None:
        """Record the response to an OffsetCommit."""
        self._group.commit.record(seconds * 1000, self._clock_s())

    def assigned(self, partitions: int, /) -> None:
        self._group.partitions = partitions

    def assigned_callback(self, seconds: float, /) -> None:
        self._group.assigned.record(seconds * 1000, self._clock_s())

    def revoked_callback(self, seconds: float, /) -> None:
        self._group.revoked.record(seconds * 1000, self._clock_s())

    def lost_callback(self, seconds: float, /) -> None:
        self._group.lost.record(seconds * 1000, self._clock_s())

    def commit_sync_time(self, seconds: float) -> None:
        """Add the time of a call of `commit`, successful or not."""
        self._commit_s += seconds

    def committed_time(self, seconds: float) -> None:
        """Add the time of a call of `committed`, successful or not."""
        self._committed_s += seconds

    def metrics(self) -> dict[MetricName, float]:
        now_s = self._clock_s()
        self._end_fetch(now_s)
        result = self._consumer.read(now_s) | self._fetches.read(now_s) | self._group.registry.read(now_s)
        return result | self._topics.read(now_s) | self._partitions.read(now_s) | self.connections.metrics()

    def _end_fetch(self, now_s: float) -> None:
        if self._unfinished:
            finished, self._unfinished = self._unfinished, set()
            self._consumed.end_fetch(now_s)
            for topic_metrics in finished:
                topic_metrics.end_fetch(now_s)

    def _register(self) -> None:
        consumer, fetches = self._consumer, self._fetches
        consumer.add_average_and_maximum("time-between-poll", self._between_polls)
        consumer.add("poll-idle-ratio-avg", self._idle_ratio.average)
        consumer.add("last-poll-seconds-ago", lambda now_s: _seconds_ago(self._poll_began_s, now_s))
        consumer.add("commit-sync-time-ns-total", lambda _: self._commit_s * _NANOSECONDS)
        consumer.add("committed-time-ns-total", lambda _: self._committed_s * _NANOSECONDS)
        fetches.add_average_and_maximum("fetch-latency", self._latency)
        fetches.add_counter("fetch", self._latency)
        fetches.add_average_and_maximum("fetch-throttle-time", self._throttle)
        fetches.add("records-lag-max", self._lag.maximum)
        fetches.add("records-lead-min", self._lead.minimum)


def _seconds_ago(then_s: float | None, now_s: float) -> float:
    return -1.0 if then_s is None else float(floor(now_s - then_s))


def _per_hour(sensor: Sensor, now_s: float) -> float:
    return sensor.count_rate(now_s, SECONDS_PER_HOUR)
