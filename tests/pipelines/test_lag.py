"""Lag lookups at a real broker.

The clock of the lookup stands still: a lookup that waits for something that never comes would wait forever.
"""

from collections.abc import Iterator

import pytest

from rookery.base.clock import ManualClock
from rookery.base.types import TopicPartition
from rookery.client.sync import Producer
from rookery.pipelines.lag import LagLookup
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import expect

REPEATS = 4
# The records have old timestamps: retention would delete them when the shared broker has run for five minutes.
NO_RETENTION = {"retention.ms": "-1"}


@pytest.fixture
def lags(broker: EmbeddedBroker) -> Iterator[LagLookup]:
    with LagLookup({"bootstrap.servers": broker.bootstrap_servers}, ManualClock()) as lags:
        yield lags


def produce(broker: EmbeddedBroker, topic: str, times_ms: dict[int, list[int]], **config: str) -> None:
    """Produce a record for each timestamp; `times_ms` has timestamps by partition."""
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers, **config}) as producer:
        if "transactional.id" in config:
            producer.init_transactions()
            producer.begin_transaction()
        for partition, times in times_ms.items():
            for time_ms in times:
                producer.send(topic, b"x", partition=partition, timestamp_ms=time_ms)
        if "transactional.id" in config:
            producer.commit_transaction()


def test_lookups_can_be_repeated(lags: LagLookup, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2, config=NO_RETENTION)
    produce(broker, topic, {0: [1000, 2000, 3000], 1: [1500, 2500]})
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ends = {one: 3, two: 2}
    expect(lambda: lags.end_offsets(ends), ends)
    for _ in range(REPEATS):
        assert lags.oldest_ms({one: 0, two: 0}, ends) == 1000
        assert lags.oldest_ms({one: 1, two: 0}, ends) == 1500
        assert lags.oldest_ms({one: 2}, ends) == 3000


def test_a_lookup_does_not_wait_for_transaction_markers(lags: LagLookup, broker: EmbeddedBroker, topic: str) -> None:
    """Markers have offsets, but are no records."""
    broker.create_topic(topic, config=NO_RETENTION)
    produce(broker, topic, {0: [1000]}, **{"transactional.id": topic})
    tp = TopicPartition(topic, 0)
    ends = {tp: 2}
    expect(lambda: lags.end_offsets(ends), ends)
    for _ in range(REPEATS):
        assert lags.oldest_ms({tp: 1}, ends) is None
