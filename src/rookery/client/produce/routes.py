"""Routes from topics to the queues of their partitions, and the choice of a partition.

A `Route` holds the queues of one topic's partitions, so that a record's queue is found by index instead of by name.
`Routes` creates a route when a topic is first used, keeps the metadata of these topics fresh, adds new partitions, and
removes topics that were not used for `metadata.max.idle.ms`. A topic counts as used when a batch is opened for it or a
send waits for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import PartitionIndex, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import ClientStateError
from rookery.client.metadata import ClusterMetadata, Topic
from rookery.client.produce.accumulator import Accumulator, PartitionQueue
from rookery.client.produce.partitioners import StickyPartition
from rookery.client.produce.receipts import RecordFuture
from rookery.client.settings.producer import ProducerSettings


class Route:
    """The queues of a topic, in the order of its partitions.

    `keyless` is the current queue of records without a key.
    """

    __slots__ = ("_available", "_sticky", "count", "keyless", "queues", "topic", "used_s", "waiting_count")

    def __init__(self, topic: TopicName, sticky: StickyPartition) -> None:
        self.topic = topic
        self.count = 0
        self.queues: list[PartitionQueue[RecordFuture]] = []
        self.used_s = 0.0
        # The number of `send` calls that wait for memory, and of `send_arrow` calls that have not queued all rows.
        self.waiting_count = 0
        self.keyless: PartitionQueue[RecordFuture]
        self._available: Sequence[PartitionIndex] = ()
        self._sticky = sticky

    @property
    def available(self) -> Sequence[PartitionIndex]:
        """The partitions that have a leader."""
        return self._available

    def update(self, queues: list[PartitionQueue[RecordFuture]], available: Sequence[PartitionIndex]) -> None:
        is_first = not self.queues
        self.queues, self.count, self._available = queues, len(queues), available
        if is_first or self._sticky.partition >= self.count:
            self._switch()

    def next_keyless(self) -> PartitionQueue[RecordFuture]:
        """Return the queue for records without a key, after a switch if the current one has got enough bytes."""
        if self._sticky.is_due(self.keyless.total_bytes, self._available):
            self._switch()
        return self.keyless

    def spread(self) -> PartitionIndex:
        """Return a new partition for a batch of records without a key."""
        self._switch()
        return self._sticky.partition

    def _switch(self) -> None:
        self.keyless = self.queues[self._sticky.switch(self._available, self.count)]
        self._sticky.start(self.keyless.total_bytes)


class Routes:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator[RecordFuture],
        settings: ProducerSettings,
        *,
        choose: Callable[[int], int],
    ) -> None:
        self.known: dict[TopicName, Route] = {}
        self._cluster = cluster
        self._accumulator = accumulator
        self._settings = settings
        self._choose = choose
        self._loop = asyncio.get_running_loop()
        # In the order in which they began.
        self._waits: dict[asyncio.Timeout, None] = {}
        self._is_closed = False
        cluster.on_refresh.append(self._on_refresh)

    async def find(self, topic: TopicName, *, deadline_s: float) -> Route:
        """Return the topic's route, after waiting for its metadata. The request creates the topic if brokers do so."""
        route = self.known.get(topic)
        if route is not None:
            route.used_s = self._loop.time()
            return route
        metadata = await self._metadata_of(topic, deadline_s)
        if self._is_closed:
            raise _closed_error()
        route = self._make(topic, metadata)
        self._cluster.watch(self.known)
        return route

    async def require_partition(self, route: Route, partition: PartitionIndex, *, deadline_s: float) -> None:
        """Refresh the metadata once for a partition that the route does not have. Raises if it does not exist."""
        try:
            async with self._limit(deadline_s):
                await self._cluster.refresh([route.topic])
        except TimeoutError:
            raise self._timeout_error(route.topic) from None
        if not 0 <= partition < route.count:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {route.topic} has only {route.count} partitions, there is no {partition}",
            )

    def close(self) -> None:
        """End all waits for metadata with ClientStateError."""
        self._is_closed = True
        self._cluster.on_refresh.remove(self._on_refresh)
        for limit in self._waits:
            limit.reschedule(self._loop.time())

    @asynccontextmanager
    async def _limit(self, deadline_s: float) -> AsyncIterator[None]:
        """Raise TimeoutError at the deadline, or ClientStateError when the producer is closed."""
        try:
            async with asyncio.timeout_at(deadline_s) as limit:
                self._waits[limit] = None
                try:
                    yield
                finally:
                    del self._waits[limit]
        except TimeoutError:
            if self._is_closed:
                raise _closed_error() from None
            raise

    async def _metadata_of(self, topic: TopicName, deadline_s: float) -> Topic:
        known = self._cluster.metadata.topics.get(topic)
        if known is not None and known.partitions:
            return known
        failure: ApiError | None = None
        attempt = 0
        try:
            async with self._limit(deadline_s):
                while True:
                    try:
                        found = (await self._cluster.refresh([topic], auto_create=True)).topics[topic]
                    except ApiError as error:
                        failure = error
                    else:
                        if found.partitions and found.error == ErrorCode.NONE:
                            return found
                        failure = ApiError(found.error, f"topic {topic}")
                    if not failure.code.retriable and failure.code != ErrorCode.NONE:
                        raise failure
                    await asyncio.sleep(self._cluster.backoff_s(attempt))
                    attempt += 1
        except TimeoutError:
            raise self._timeout_error(topic, failure) from None

    def _timeout_error(self, topic: TopicName, reason: ApiError | None = None) -> ApiError:
        cause = "" if reason is None else f": {reason}"
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"topic {topic}: no metadata within max.block.ms ({self._settings.max_block_ms}){cause}",
        )

    def _make(self, topic: TopicName, metadata: Topic) -> Route:
        # A concurrent call may have created the route while this one waited.
        route = self.known.get(topic)
        if route is None:
            route = Route(topic, StickyPartition(self._choose, self._settings.batch_size))
            self._update(route, metadata)
            self.known[topic] = route
        route.used_s = self._loop.time()
        return route

    def _update(self, route: Route, metadata: Topic) -> None:
        brokers = self._cluster.metadata.brokers
        available = tuple(each.index for each in metadata.partitions if each.leader in brokers)
        queues = [
            self._accumulator.queue(TopicPartition(route.topic, index)) for index in range(len(metadata.partitions))
        ]
        route.update(queues, available)

    def _on_refresh(self, metadata: ClusterMetadata) -> None:
        unused_before_s = self._loop.time() - self._settings.metadata_max_idle_ms / 1000
        for route in list(self.known.values()):
            topic = metadata.topics.get(route.topic)
            is_used = route.used_s >= unused_before_s or route.waiting_count
            if not is_used and not any(map(_is_busy, route.queues)):
                del self.known[route.topic]
            elif topic is not None and topic.partitions:
                self._update(route, topic)
        self._cluster.watch(self.known)


def _is_busy(queue: PartitionQueue[RecordFuture]) -> bool:
    return bool(queue.waiting or queue.on_wire_count)


def _closed_error() -> ClientStateError:
    return ClientStateError("the producer was closed while a record waited for metadata")
