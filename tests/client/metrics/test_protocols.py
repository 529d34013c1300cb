"""The modules that record metrics define Protocols of what they call: mypy checks here that the metrics match them."""

from rookery.base.types import NodeId
from rookery.client.consume.fetch_requests import FetchMetrics
from rookery.client.membership.interfaces import GroupMetrics
from rookery.client.metrics import ConnectionMetrics, ConsumerMetrics
from rookery.net.channel import ChannelObserver
from tests.client.metrics.clock import Clock


def test_the_metrics_implement_the_protocols() -> None:
    consumer = ConsumerMetrics(Clock(), "me")
    observer: ChannelObserver = ConnectionMetrics(Clock(), "me")
    fetches: FetchMetrics = consumer
    group: GroupMetrics = consumer
    observer.opened(NodeId(1))
    fetches.fetch(0.1, 0)
    group.assigned(1)
    assert {"fetch-total", "assigned-partitions"} <= {name.name for name in consumer.metrics()}
