"""The names of metrics, exactly Kafka's (a name, a group, and tags that identify the subject), and their descriptions.

`MetricName`s are the keys of every client's `metrics()`. The descriptions are used in docs/client-metrics.md and by
Prometheus.
"""

from typing import NamedTuple


class MetricName(NamedTuple):
    """The key of a metric. `tags` are sorted by name."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def description(self) -> str:
        return DESCRIPTIONS[self.name]


def metric_name(name: str, group: str, **tags: str) -> MetricName:
    """Build a name, e.g. `metric_name("byte-rate", "producer-topic-metrics", client_id="me", topic="orders")`."""
    return MetricName(name, group, tuple(sorted((key.replace("_", "-"), value) for key, value in tags.items())))


_CONNECTIONS = {
    "connection-count": "Open connections.",
    "connection-creation-rate": "Connections opened per second.",
    "connection-creation-total": "Connections opened.",
    "connection-close-rate": "Connections closed per second.",
    "connection-close-total": "Connections closed.",
    "network-io-rate": "Requests and responses per second.",
    "network-io-total": "Requests and responses.",
    "outgoing-byte-rate": "Bytes sent per second.",
    "outgoing-byte-total": "Bytes sent.",
    "incoming-byte-rate": "Bytes received per second.",
    "incoming-byte-total": "Bytes received.",
    "request-rate": "Requests per second.",
    "request-total": "Requests.",
    "request-size-avg": "Average bytes of a request.",
    "request-size-max": "Bytes of the largest request.",
    "response-rate": "Responses per second.",
    "response-total": "Responses.",
    "request-latency-avg": "Average milliseconds from request to response: of produce requests for a whole producer, "
    "of all requests for a node.",
    "request-latency-max": "Maximum milliseconds from request to response.",
}
_PRODUCER = {
    "batch-size-avg": "Average bytes of a batch as sent.",
    "batch-size-max": "Bytes of the largest batch.",
    "batch-split-rate": "Batches split per second because they were too large for the broker.",
    "batch-split-total": "Batches split.",
    "buffer-available-bytes": "Free bytes of buffer.memory.",
    "buffer-total-bytes": "Bytes of buffer.memory.",
    "buffer-exhausted-rate": "Records per second that got no memory within max.block.ms.",
    "buffer-exhausted-total": "Records that got no memory within max.block.ms.",
    "bufferpool-wait-ratio": "Fraction of the time that senders waited for memory.",
    "bufferpool-wait-time-ns-total": "Nanoseconds that senders waited for memory.",
    "byte-rate": "Bytes of batches sent per second.",
    "byte-total": "Bytes of batches sent.",
    "compression-rate": "Average ratio of a batch's compressed size to its uncompressed size.",
    "compression-rate-avg": "Average ratio of a batch's compressed size to its uncompressed size.",
    "flush-time-ns-total": "Nanoseconds spent in flush.",
    "metadata-age": "Seconds since the last metadata refresh.",
    "metadata-wait-time-ns-total": "Nanoseconds that senders waited for metadata of topics.",
    "produce-throttle-time-avg": "Average milliseconds that a broker throttled a request.",
    "produce-throttle-time-max": "Maximum milliseconds that a broker throttled a request.",
    "record-error-rate": "Records per second whose delivery failed.",
    "record-error-total": "Records whose delivery failed.",
    "record-queue-time-avg": "Average milliseconds that a batch waited before it was sent.",
    "record-queue-time-max": "Maximum milliseconds that a batch waited before it was sent.",
    "record-retry-rate": "Records retried per second.",
    "record-retry-total": "Records retried.",
    "record-send-rate": "Records sent per second.",
    "record-send-total": "Records sent.",
    "record-size-avg": "Average bytes of the largest record of a batch.",
    "record-size-max": "Bytes of the largest record.",
    "records-per-request-avg": "Average number of records in a request.",
    "requests-in-flight": "Requests that wait for a response.",
    "txn-init-time-ns-total": "Nanoseconds spent in init_transactions.",
    "txn-begin-time-ns-total": "Nanoseconds spent in begin_transaction.",
    "txn-send-offsets-time-ns-total": "Nanoseconds spent in send_offsets_to_transaction.",
    "txn-commit-time-ns-total": "Nanoseconds spent in commit_transaction.",
    "txn-abort-time-ns-total": "Nanoseconds spent in abort_transaction.",
    "waiting-threads": "Senders that wait for memory.",
}
_CONSUMER = {
    "commit-sync-time-ns-total": "Nanoseconds spent in commit.",
    "committed-time-ns-total": "Nanoseconds spent in committed.",
    "last-poll-seconds-ago": "Seconds since the last poll began; -1 before the first.",
    "poll-idle-ratio-avg": "Average fraction of time in poll: its duration, divided by that plus the time since the "
    "last poll began.",
    "time-between-poll-avg": "Average milliseconds from the start of a poll to the start of the next.",
    "time-between-poll-max": "Maximum milliseconds from the start of a poll to the start of the next.",
    "bytes-consumed-rate": "Bytes consumed per second.",
    "bytes-consumed-total": "Bytes consumed.",
    "fetch-latency-avg": "Average milliseconds of a fetch.",
    "fetch-latency-max": "Maximum milliseconds of a fetch.",
    "fetch-rate": "Fetches per second.",
    "fetch-total": "Fetches.",
    "fetch-size-avg": "Average bytes of a fetch with data.",
    "fetch-size-max": "Bytes of the largest fetch.",
    "fetch-throttle-time-avg": "Average milliseconds that a broker throttled a fetch.",
    "fetch-throttle-time-max": "Maximum milliseconds that a broker throttled a fetch.",
    "preferred-read-replica": "The replica that is read; -1: the leader.",
    "records-consumed-rate": "Records consumed per second.",
    "records-consumed-total": "Records consumed.",
    "records-lag": "Records between the position and the end of the log.",
    "records-lag-avg": "Average number of records between the position and the end of the log.",
    "records-lag-max": "Maximum number of records between the position and the end of the log; for the consumer, of "
    "all partitions.",
    "records-lead": "Records between the start of the log and the position.",
    "records-lead-avg": "Average number of records between the start of the log and the position.",
    "records-lead-min": "Minimum number of records between the start of the log and the position; for the consumer, "
    "of all partitions.",
}
_COORDINATOR = {
    "assigned-partitions": "Partitions assigned to this consumer.",
    "commit-latency-avg": "Average milliseconds of a commit.",
    "commit-latency-max": "Maximum milliseconds of a commit.",
    "commit-rate": "Commits per second.",
    "commit-total": "Commits.",
    "failed-rebalance-rate-per-hour": "Failed rebalances per hour.",
    "failed-rebalance-total": "Failed rebalances.",
    "heartbeat-rate": "Heartbeats per second.",
    "heartbeat-total": "Heartbeats.",
    "heartbeat-response-time-max": "Maximum milliseconds until the response to a heartbeat.",
    "join-rate": "Joins of the group per second.",
    "join-total": "Joins of the group.",
    "join-time-avg": "Average milliseconds of a join.",
    "join-time-max": "Maximum milliseconds of a join.",
    "last-heartbeat-seconds-ago": "Seconds since the last response to a heartbeat; -1 before the first.",
    "last-rebalance-seconds-ago": "Seconds since the last rebalance; -1 before the first.",
    "partition-assigned-latency-avg": "Average milliseconds in on_partitions_assigned.",
    "partition-assigned-latency-max": "Maximum milliseconds in on_partitions_assigned.",
    "partition-lost-latency-avg": "Average milliseconds in on_partitions_lost.",
    "partition-lost-latency-max": "Maximum milliseconds in on_partitions_lost.",
    "partition-revoked-latency-avg": "Average milliseconds in on_partitions_revoked.",
    "partition-revoked-latency-max": "Maximum milliseconds in on_partitions_revoked.",
    "rebalance-latency-avg": "Average milliseconds of a rebalance.",
    "rebalance-latency-max": "Maximum milliseconds of a rebalance.",
    "rebalance-latency-total": "Total milliseconds of rebalances.",
    "rebalance-rate-per-hour": "Rebalances per hour.",
    "rebalance-total": "Rebalances.",
    "sync-rate": "Syncs of the group per second.",
    "sync-total": "Syncs of the group.",
    "sync-time-avg": "Average milliseconds of a sync.",
    "sync-time-max": "Maximum milliseconds of a sync.",
}
DESCRIPTIONS: dict[str, str] = _CONNECTIONS | _PRODUCER | _CONSUMER | _COORDINATOR
