"""Connects a consumer's `Subscription` with its group membership: implements `membership.interfaces.AssignmentHost`.

It also decides which topics the cluster must keep fresh metadata of, matches a subscribed pattern against the existing
topics, and reports when a change of topics or partitions requires a rebalance. Called by the membership, and by
`consumer`, which passes metadata on.
"""

import asyncio
from collections.abc import Callable, Collection
from inspect import isawaitable

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.records import OffsetAndMetadata, RebalanceListener
from rookery.client.consume.subscription import Subscription
from rookery.client.membership.interfaces import ListenerEvent
from rookery.client.metadata import ClusterMetadata
from rookery.client.metrics.consumer import ConsumerMetrics


class GroupHost:
    """`on_assigned` is called after every change of the assignment."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        exclude_internal_topics: bool,
        metrics: ConsumerMetrics,
        on_assigned: Callable[[], None],
    ) -> None:
        self.listener: RebalanceListener | None = None
        self._cluster = cluster
        self._subscription = subscription
        self._exclude_internal_topics = exclude_internal_topics
        self._metrics = metrics
        self._on_assigned = on_assigned
        self._group_topics: frozenset[TopicName] = frozenset()
        self._counts: dict[TopicName, int] | None = None

    def subscribed_topics(self) -> frozenset[TopicName]:
        return self._subscription.subscribed_topics()

    def assigned(self) -> frozenset[TopicPartition]:
        return self._subscription.assigned()

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        gone = self._subscription.assigned().difference(partitions)
        self._subscription.replace_assignment(partitions)
        for tp in gone:
            self._metrics.forget(tp)
        self._on_assigned()

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        self._subscription.stop_fetching(partitions)

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._subscription.positions_to_commit()

    def watch_group_topics(self, topics: frozenset[TopicName]) -> None:
        if topics != self._group_topics:
            self._group_topics = topics
            self.watch()

    async def call_listener(self, event: ListenerEvent, partitions: Collection[TopicPartition]) -> None:
        if self.listener is None:
            return
        call, measure = {
            "assigned": (self.listener.on_partitions_assigned, self._metrics.assigned_callback),
            "revoked": (self.listener.on_partitions_revoked, self._metrics.revoked_callback),
            "lost": (self.listener.on_partitions_lost, self._metrics.lost_callback),
        }[event]
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        result = call(partitions)
        if isawaitable(result):
            await result
        measure(loop.time() - started_s)

    def forget_group(self) -> None:
        self.listener, self._group_topics, self._counts = None, frozenset(), None

    def watch(self) -> None:
        """Make the cluster refresh the metadata of all topics that are subscribed, assigned, or used by the group."""
        if self._subscription.pattern is not None:
            self._cluster.watch(None)
        else:
            assigned = {tp.topic for tp in self._subscription}
            self._cluster.watch(self._subscription.subscribed_topics() | self._group_topics | assigned)

    def on_metadata(self, metadata: ClusterMetadata) -> str | None:
        """Return why the group needs a rebalance; None if it needs none."""
        subscription = self._subscription
        existing = [
            topic.name
            for topic in metadata.topics.values()
            if topic.error is ErrorCode.NONE and not (topic.is_internal and self._exclude_internal_topics)
        ]
        is_changed = subscription.match(existing)
        before, self._counts = self._counts, self._partition_counts(metadata)
        if is_changed:
            return "the topics that match the subscription changed"
        if before is not None and before != self._counts:
            return "the partitions of the subscribed topics changed"
        return None

    def topic_failure(self, metadata: ClusterMetadata) -> ApiError | None:
        """Return the error of a subscribed topic that no retry makes readable: an invalid name, or no permission."""
        for name in sorted(self._subscription.subscribed_topics()):
            topic = metadata.topics.get(name)
            if topic is not None and topic.error is not ErrorCode.NONE and not topic.error.retriable:
                return ApiError(topic.error, f"topic {name}")
        return None

    def _partition_counts(self, metadata: ClusterMetadata) -> dict[TopicName, int]:
        wanted = self._subscription.subscribed_topics() | self._group_topics
        return {name: len(metadata.topics[name].partitions) for name in wanted if name in metadata.topics}
