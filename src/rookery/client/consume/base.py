"""Builds the parts of a consumer and holds what `consumer`, `poll`, `lookups` and `columns` share.

The constructor starts nothing: the first call that needs a broker connects.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.assignment_host import GroupHost
from rookery.client.consume.decoder import Deserializers
from rookery.client.consume.fetcher import Fetcher
from rookery.client.consume.positions import OffsetQueries, PositionKeeper
from rookery.client.consume.records import ConsumerInterceptor, Deserializer
from rookery.client.consume.subscription import Stage, Subscription
from rookery.client.errors import ClientStateError
from rookery.client.membership.factory import make_committer
from rookery.client.membership.interfaces import Membership
from rookery.client.metadata import ClusterMetadata, Partition, Topic
from rookery.client.metrics.consumer import ConsumerMetrics
from rookery.client.settings.consumer import ConsumerSettings
from rookery.telemetry.sensors import Windows


class ConsumerBase:
    def __init__(
        self,
        settings: ConsumerSettings,
        *,
        key_deserializer: Deserializer[Any] | None,
        value_deserializer: Deserializer[Any] | None,
        interceptors: Sequence[ConsumerInterceptor],
        clock: Clock | None,
        randomness: Random | None,
    ) -> None:
        self._settings = settings
        self._interceptors: tuple[ConsumerInterceptor, ...] = tuple(interceptors)
        self._randomness = randomness
        self._is_closing = False
        self._is_closed = False
        self._arrived = asyncio.Event()
        self._membership: Membership | None = None
        self._topic_failure: ApiError | None = None
        clock = clock or SystemClock()
        self._metrics = _metrics(settings, clock)
        self._cluster = Cluster(settings.common, observer=self._metrics.connections, randomness=randomness)
        self._cluster.on_refresh.append(self._on_metadata)
        self._cluster.on_authentication_error.append(self._arrived.set)
        self._committer = None
        if settings.group_id is not None:
            self._committer = make_committer(settings, self._cluster, metrics=self._metrics)
        self._subscription = Subscription(has_group=self._committer is not None)
        self._queries = OffsetQueries(self._cluster, read_committed=settings.read_committed)
        self._positions = PositionKeeper(
            self._cluster,
            self._subscription,
            self._queries,
            reset=settings.auto_offset_reset,
            committed=None if self._committer is None else self._committer.committed,
            auto_create=settings.allow_auto_create_topics,
            clock=clock,
            on_change=self._on_change,
        )
        self._fetcher = Fetcher(
            self._cluster,
            settings,
            self._subscription,
            self._positions,
            deserializers=Deserializers(key_deserializer, value_deserializer),
            metrics=self._metrics,
            arrived=self._arrived,
        )
        self._host = GroupHost(
            self._cluster,
            self._subscription,
            exclude_internal_topics=settings.exclude_internal_topics,
            metrics=self._metrics,
            on_assigned=self._on_assigned,
        )

    @property
    def _api_timeout_s(self) -> float:
        return self._settings.common.default_api_timeout_ms / 1000

    def _timeout_or_default(self, timeout_s: float | None) -> float:
        return self._api_timeout_s if timeout_s is None else timeout_s

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientStateError("this consumer is closed")

    def _on_change(self) -> None:
        self._fetcher.on_change()

    def _on_assigned(self) -> None:
        self._host.watch()
        self._fetcher.on_change()

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        """Called after every metadata refresh. `metadata` covers all known topics, not only those of the refresh."""
        reason = self._host.on_metadata(metadata)
        if reason is not None and self._membership is not None:
            self._membership.request_rejoin(reason)
        self._topic_failure = self._host.topic_failure(metadata)
        self._fetcher.on_change()

    async def _known_partitions(self, topic: TopicName, timeout_s: float | None = None) -> tuple[Partition, ...]:
        """Return the partitions of `topic` from fresh metadata. Raises ApiError if the topic does not exist."""

        async def refresh() -> Topic:
            metadata = await self._cluster.refresh([topic])
            found = metadata.topics[topic]
            if found.error is not ErrorCode.NONE:
                raise ApiError(found.error, f"topic {topic}")
            return found

        return (await self._cluster.retry(refresh, timeout_s=timeout_s, retriable=_is_transient)).partitions

    async def _await_position(self, tp: TopicPartition, *, timeout_s: float) -> int:
        """Return the position of a partition; look it up if it is not known yet."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            self._check_open()
            self._arrived.clear()
            self._fetcher.advance()
            state = self._subscription.state(tp)
            if state.position is not None and state.stage in (Stage.READY, Stage.VALIDATION):
                return state.position.offset
            if state.failure is not None:
                failure, state.failure = state.failure, None
                raise failure
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._arrived.wait()
            except TimeoutError:
                message = f"no position of {tp} within {timeout_s:g} s"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message) from None


def _is_transient(code: ErrorCode) -> bool:
    """A missing topic is a final answer here, although Kafka counts its error code as retriable."""
    return code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _metrics(settings: ConsumerSettings, clock: Clock) -> ConsumerMetrics:
    common = settings.common
    windows = Windows(common.metrics_num_samples, common.metrics_sample_window_ms / 1000)
    return ConsumerMetrics(clock.monotonic, common.client_id, windows=windows)
