"""Names of metrics, exactly Kafka's: a name, a group, and tags that say of what it is. And what each means.

`MetricName`s are the keys of every client's `metrics()`. The texts go into docs/client-metrics.md and to Prometheus.
"""

from typing import NamedTuple


class MetricName(NamedTuple):
    """Tags are in the order of their names."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def description(self) -> str:
        return DESCRIPTIONS[self.name]


def metric_name(name: str, group: str, **tags: str) -> MetricName:
    """`metric_name("byte-rate", "producer-topic-metrics", client_id="me", topic="orders")`."""
    return MetricName(name, group, tuple(sorted((key.replace("_", "-"), value) for key, value in tags.items())))


_CONNECTIONS = {
    "connection-count": "Connections that are open.",
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
    "request-size-avg": "Bytes of a request, on average.",
    "request-size-max": "Bytes of the largest request.",
    "response-rate": "Responses per second.",
    "response-total": "Responses.",
    "request-latency-avg": "Milliseconds from request to response, on average: of produce requests for a producer as "
    "a whole, of all requests for a node.",
    "request-latency-max": "Milliseconds from request to response, at most.",
}
_PRODUCER = {
    "batch-size-avg": "Bytes of a batch as sent, on average.",
    "batch-size-max": "Bytes of the largest batch.",
    "batch-split-rate": "Batches split per second, since the broker found them too large.",
    "batch-split-total": "Batches split.",
    "buffer-available-bytes": "Bytes of buffer.memory that are free.",
    "buffer-total-bytes": "Bytes of buffer.memory.",
    "buffer-exhausted-rate": "Records per second that found no room within max.block.ms.",
    "buffer-exhausted-total": "Records that found no room within max.block.ms.",
    "bufferpool-wait-ratio": "Part of the time that senders waited for room.",
    "bufferpool-wait-time-ns-total": "Nanoseconds that senders waited for room.",
    "byte-rate": "Bytes of batches sent per second.",
    "byte-total": "Bytes of batches sent.",
    "compression-rate": "Size of batches after compression, as a part of the size before, on average.",
    "compression-rate-avg": "Size of batches after compression, as a part of the size before, on average.",
    "flush-time-ns-total": "Nanoseconds spent in flush.",
    "metadata-age": "Seconds since metadata came last.",
    "metadata-wait-time-ns-total": "Nanoseconds that senders waited for metadata of topics.",
    "produce-throttle-time-avg": "Milliseconds that a broker throttled a request, on average.",
    "produce-throttle-time-max": "Milliseconds that a broker throttled a request, at most.",
    "record-error-rate": "Records per second whose delivery failed for good.",
    "record-error-total": "Records whose delivery failed for good.",
    "record-queue-time-avg": "Milliseconds that a batch waited before it was sent, on average.",
    "record-queue-time-max": "Milliseconds that a batch waited before it was sent, at most.",
    "record-retry-rate": "Records per second that were sent again.",
    "record-retry-total": "Records that were sent again.",
    "record-send-rate": "Records sent per second.",
    "record-send-total": "Records sent.",
    "record-size-avg": "Bytes of the largest record of a batch, on average.",
    "record-size-max": "Bytes of the largest record.",
    "records-per-request-avg": "Records of a request, on average.",
    "requests-in-flight": "Requests without a response so far.",
    "txn-init-time-ns-total": "Nanoseconds spent in init_transactions.",
    "txn-begin-time-ns-total": "Nanoseconds spent in begin_transaction.",
    "txn-send-offsets-time-ns-total": "Nanoseconds spent in send_offsets_to_transaction.",
    "txn-commit-time-ns-total": "Nanoseconds spent in commit_transaction.",
    "txn-abort-time-ns-total": "Nanoseconds spent in abort_transaction.",
    "waiting-threads": "Senders that wait for room.",
}
_CONSUMER = {
    "commit-sync-time-ns-total": "Nanoseconds spent in commit.",
    "committed-time-ns-total": "Nanoseconds spent in committed.",
    "last-poll-seconds-ago": "Seconds since the last poll began; -1 before the first.",
    "poll-idle-ratio-avg": "Time in poll, as a part of that plus the time since the poll before began, on average.",
    "time-between-poll-avg": "Milliseconds from the beginning of a poll to that of the next, on average.",
    "time-between-poll-max": "Milliseconds from the beginning of a poll to that of the next, at most.",
    "bytes-consumed-rate": "Bytes consumed per second.",
    "bytes-consumed-total": "Bytes consumed.",
    "fetch-latency-avg": "Milliseconds that a fetch took, on average.",
    "fetch-latency-max": "Milliseconds that a fetch took, at most.",
    "fetch-rate": "Fetches per second.",
    "fetch-total": "Fetches.",
    "fetch-size-avg": "Bytes of a fetch that returned something, on average.",
    "fetch-size-max": "Bytes of the largest fetch.",
    "fetch-throttle-time-avg": "Milliseconds that a broker throttled a fetch, on average.",
    "fetch-throttle-time-max": "Milliseconds that a broker throttled a fetch, at most.",
    "preferred-read-replica": "The replica that is read; -1: the leader.",
    "records-consumed-rate": "Records consumed per second.",
    "records-consumed-total": "Records consumed.",
    "records-lag": "Records between our position and the end.",
    "records-lag-avg": "Records between our position and the end, on average.",
    "records-lag-max": "Records between our position and the end, at most; of all partitions for the consumer.",
    "records-lead": "Records between the start of the log and our position.",
    "records-lead-avg": "Records between the start of the log and our position, on average.",
    "records-lead-min": "Records between the start of the log and our position, at least; of all partitions for the "
    "consumer.",
}
_COORDINATOR = {
    "assigned-partitions": "Partitions that are ours.",
    "commit-latency-avg": "Milliseconds that a commit took, on average.",
    "commit-latency-max": "Milliseconds that a commit took, at most.",
    "commit-rate": "Commits per second.",
    "commit-total": "Commits.",
    "failed-rebalance-rate-per-hour": "Rebalances per hour that failed.",
    "failed-rebalance-total": "Rebalances that failed.",
    "heartbeat-rate": "Heartbeats per second.",
    "heartbeat-total": "Heartbeats.",
    "heartbeat-response-time-max": "Milliseconds until a heartbeat was answered, at most.",
    "join-rate": "Joins of the group per second.",
    "join-total": "Joins of the group.",
    "join-time-avg": "Milliseconds that a join took, on average.",
    "join-time-max": "Milliseconds that a join took, at most.",
    "last-heartbeat-seconds-ago": "Seconds since the last heartbeat was answered; -1 before the first.",
    "last-rebalance-seconds-ago": "Seconds since the last rebalance; -1 before the first.",
    "partition-assigned-latency-avg": "Milliseconds that on_partitions_assigned took, on average.",
    "partition-assigned-latency-max": "Milliseconds that on_partitions_assigned took, at most.",
    "partition-lost-latency-avg": "Milliseconds that on_partitions_lost took, on average.",
    "partition-lost-latency-max": "Milliseconds that on_partitions_lost took, at most.",
    "partition-revoked-latency-avg": "Milliseconds that on_partitions_revoked took, on average.",
    "partition-revoked-latency-max": "Milliseconds that on_partitions_revoked took, at most.",
    "rebalance-latency-avg": "Milliseconds that a rebalance took, on average.",
    "rebalance-latency-max": "Milliseconds that a rebalance took, at most.",
    "rebalance-latency-total": "Milliseconds that rebalances took.",
    "rebalance-rate-per-hour": "Rebalances per hour.",
    "rebalance-total": "Rebalances.",
    "sync-rate": "Syncs of the group per second.",
    "sync-total": "Syncs of the group.",
    "sync-time-avg": "Milliseconds that a sync took, on average.",
    "sync-time-max": "Milliseconds that a sync took, at most.",
}
DESCRIPTIONS: dict[str, str] = _CONNECTIONS | _PRODUCER | _CONSUMER | _COORDINATOR
