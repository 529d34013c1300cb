from math import isnan

import pytest

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.client.metrics import ConsumerMetrics, Windows, metric_name
from tests.client.metrics.clock import Clock

FIRST = TopicPartition(TopicName("a.b"), 0)
SECOND = TopicPartition(TopicName("a.b"), 1)
OTHER = TopicPartition(TopicName("other"), 0)
FETCH = "consumer-fetch-manager-metrics"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> ConsumerMetrics:
    return ConsumerMetrics(clock, "me", windows=Windows(2, 30.0))


def _value(metrics: ConsumerMetrics, name: str, group: str = FETCH, **tags: str) -> float:
    return metrics.metrics()[metric_name(name, group, client_id="me", **tags)]


def test_polls(metrics: ConsumerMetrics, clock: Clock) -> None:
    assert _value(metrics, "last-poll-seconds-ago", "consumer-metrics") == -1
    metrics.poll_started()
    clock.advance(1)
    metrics.poll_ended()
    clock.advance(2)
    metrics.poll_started()
    clock.advance(1)
    metrics.poll_ended()
    clock.advance(1.5)
    assert _value(metrics, "time-between-poll-avg", "consumer-metrics") == 1500
    assert _value(metrics, "time-between-poll-max", "consumer-metrics") == 3000
    # The whole time of the first poll, and one second of four of the second.
    assert _value(metrics, "poll-idle-ratio-avg", "consumer-metrics") == (1 + 0.25) / 2
    assert _value(metrics, "last-poll-seconds-ago", "consumer-metrics") == 2


def test_polls_that_take_no_time_do_not_divide_by_zero(metrics: ConsumerMetrics) -> None:
    metrics.poll_ended()
    metrics.poll_started()
    metrics.poll_ended()
    assert isnan(_value(metrics, "poll-idle-ratio-avg", "consumer-metrics"))


def test_fetches(metrics: ConsumerMetrics) -> None:
    metrics.fetch(0.010, 0)
    metrics.fetch(0.030, 200)
    assert _value(metrics, "fetch-latency-avg") == pytest.approx(20)
    assert _value(metrics, "fetch-latency-max") == pytest.approx(30)
    assert _value(metrics, "fetch-total") == 2
    assert _value(metrics, "fetch-rate") == 2 / 30
    assert _value(metrics, "fetch-throttle-time-avg") == 100
    assert _value(metrics, "fetch-throttle-time-max") == 200
    assert isnan(_value(metrics, "fetch-size-avg"))


def test_a_fetch_is_what_is_consumed_before_the_next_one(metrics: ConsumerMetrics) -> None:
    metrics.fetch(0.01, 0)
    metrics.fetched(FIRST, 10, 1000)
    metrics.fetched(SECOND, 20, 2000)
    metrics.fetched(OTHER, 30, 3000)
    metrics.fetch(0.5, 0)
    metrics.fetch(0.5, 0)
    metrics.fetched(FIRST, 30, 9000)
    assert _value(metrics, "fetch-size-avg") == 7500
    assert _value(metrics, "fetch-size-max") == 9000
    assert _value(metrics, "records-per-request-avg") == 45
    assert _value(metrics, "fetch-size-avg", topic="a.b") == 6000
    assert _value(metrics, "records-per-request-avg", topic="other") == 30
    assert _value(metrics, "bytes-consumed-total") == 15_000
    assert _value(metrics, "records-consumed-total", topic="a.b") == 60
    assert _value(metrics, "records-consumed-rate") == 3


def test_lag_and_lead(metrics: ConsumerMetrics, clock: Clock) -> None:
    metrics.lag(FIRST, 10)
    metrics.lag(FIRST, 4)
    metrics.lag(SECOND, 7)
    metrics.lead(FIRST, 5)
    metrics.lead(FIRST, 9)
    first = {"topic": "a.b", "partition": "0"}
    assert _value(metrics, "records-lag", **first) == 4
    assert _value(metrics, "records-lag-avg", **first) == 7
    assert _value(metrics, "records-lag-max", **first) == 10
    assert _value(metrics, "records-lag-max") == 10
    assert _value(metrics, "records-lead", **first) == 9
    assert _value(metrics, "records-lead-avg", **first) == 7
    assert _value(metrics, "records-lead-min", **first) == 5
    assert _value(metrics, "records-lead-min") == 5
    clock.advance(1000)
    assert _value(metrics, "records-lag", **first) == 4
    assert isnan(_value(metrics, "records-lag-max", **first))


def test_the_metrics_of_a_removed_partition_are_removed(metrics: ConsumerMetrics, clock: Clock) -> None:
    metrics.lag(FIRST, 10)
    clock.advance(100_000)
    metrics.lag(SECOND, 10)
    metrics.forget(SECOND)
    metrics.forget(OTHER)
    assert {dict(name.tags).get("partition") for name in metrics.metrics()} == {None, "0"}


def test_the_replica_that_is_read(metrics: ConsumerMetrics) -> None:
    metrics.read_replica(FIRST, NodeId(3))
    assert _value(metrics, "preferred-read-replica", topic="a.b", partition="0") == 3
    metrics.read_replica(FIRST, None)
    assert _value(metrics, "preferred-read-replica", topic="a.b", partition="0") == -1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("join", "join-time"),
        ("sync", "sync-time"),
        ("commit", "commit-latency"),
        ("rebalance", "rebalance-latency"),
        ("assigned_callback", "partition-assigned-latency"),
        ("revoked_callback", "partition-revoked-latency"),
        ("lost_callback", "partition-lost-latency"),
    ],
)
def test_times_of_the_group(metrics: ConsumerMetrics, call: str, name: str) -> None:
    getattr(metrics, call)(0.010)
    getattr(metrics, call)(0.030)
    assert _value(metrics, f"{name}-avg", "consumer-coordinator-metrics") == pytest.approx(20)
    assert _value(metrics, f"{name}-max", "consumer-coordinator-metrics") == pytest.approx(30)


@pytest.mark.parametrize("call", ["join", "sync", "commit", "heartbeat"])
def test_rates_of_the_group(metrics: ConsumerMetrics, call: str) -> None:
    getattr(metrics, call)(0.010)
    assert _value(metrics, f"{call}-total", "consumer-coordinator-metrics") == 1
    assert _value(metrics, f"{call}-rate", "consumer-coordinator-metrics") == 1 / 30


def test_heartbeats(metrics: ConsumerMetrics, clock: Clock) -> None:
    assert _value(metrics, "last-heartbeat-seconds-ago", "consumer-coordinator-metrics") == -1
    metrics.heartbeat(0.005)
    clock.advance(3.7)
    assert _value(metrics, "last-heartbeat-seconds-ago", "consumer-coordinator-metrics") == 3
    assert _value(metrics, "heartbeat-response-time-max", "consumer-coordinator-metrics") == 5


def test_rebalances_per_hour(metrics: ConsumerMetrics, clock: Clock) -> None:
    assert _value(metrics, "last-rebalance-seconds-ago", "consumer-coordinator-metrics") == -1
    metrics.rebalance(2.0)
    metrics.failed_rebalance()
    assert _value(metrics, "rebalance-rate-per-hour", "consumer-coordinator-metrics") == 1
    assert _value(metrics, "failed-rebalance-rate-per-hour", "consumer-coordinator-metrics") == 1
    clock.advance(1800)
    assert _value(metrics, "rebalance-rate-per-hour", "consumer-coordinator-metrics") == pytest.approx(2 / 3)
    assert _value(metrics, "rebalance-total", "consumer-coordinator-metrics") == 1
    assert _value(metrics, "failed-rebalance-total", "consumer-coordinator-metrics") == 1
    assert _value(metrics, "rebalance-latency-total", "consumer-coordinator-metrics") == 2000
    assert _value(metrics, "last-rebalance-seconds-ago", "consumer-coordinator-metrics") == 1800


def test_other_metrics(metrics: ConsumerMetrics) -> None:
    metrics.assigned(5)
    metrics.commit_sync_time(0.5)
    metrics.committed_time(0.25)
    assert _value(metrics, "assigned-partitions", "consumer-coordinator-metrics") == 5
    assert _value(metrics, "commit-sync-time-ns-total", "consumer-metrics") == 5e8
    assert _value(metrics, "committed-time-ns-total", "consumer-metrics") == 2.5e8
