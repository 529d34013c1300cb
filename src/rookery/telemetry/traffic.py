"""What producers, consumers and followers do with each topic: Kafka's BrokerTopicMetrics.

A `Replica` refers to the `TopicTraffic` of its topic. The handlers of Produce and Fetch, and the fetchers of followers,
add to its numbers directly: a method call per batch would cost more than the counting. The counts of topics that are
gone stay in the totals of all topics, which must never fall: Prometheus would take it for a restart.
"""

from collections.abc import Iterator


class TopicTraffic:
    """Counts since the broker's start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        # Written by producers; what coordinators write does not count, as in Kafka.
        self.bytes_in = 0
        self.messages_in = 0
        # Read by consumers.
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        # A request counts once for each of its partitions.
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: "TopicTraffic") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """The traffic of a broker, by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        # Requests for topics that do not exist, or not here, and the traffic of topics that are gone.
        self.others = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """Return the traffic of a topic of which this broker has a replica."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def remove(self, topic: str) -> None:
        """Forget a topic of which this broker has no replica any more."""
        found = self._topics.pop(topic, None)
        if found is not None:
            self.others.add(found)

    def __iter__(self) -> Iterator[tuple[str, TopicTraffic]]:
        return iter(self._topics.items())

    def __len__(self) -> int:
        return len(self._topics)

    def total(self) -> TopicTraffic:
        """Return the traffic of all topics, including `others`."""
        total = TopicTraffic()
        total.add(self.others)
        for traffic in self._topics.values():
            total.add(traffic)
        return total
