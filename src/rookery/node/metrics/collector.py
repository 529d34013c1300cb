"""Collects all metrics of a node when they are asked for, and renders them.

The values are read on the event loop, those of partitions in slices. The text is made in a worker thread: with
thousands of partitions it takes longer than all the rest.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.config_metrics import METRICS_TOPICS_MAX
from rookery.base.slices import Slices
from rookery.broker.context import Services
from rookery.broker.large_requests import in_worker
from rookery.metadata.publisher import MetadataPublisher
from rookery.net.listener import Listener
from rookery.node.metrics.cluster import UncleanElections, controller_families, metadata_families, quorum_families
from rookery.node.metrics.coordinators import group_families, transaction_families
from rookery.node.metrics.logins import LoginCounts
from rookery.node.metrics.network import listener_families
from rookery.node.metrics.process import Collections, LoopTime, loop_families, process_families
from rookery.node.metrics.requests import request_families
from rookery.node.metrics.topics import partition_families, replica_families, traffic_families
from rookery.quorum.driver import QuorumDriver
from rookery.telemetry import names
from rookery.telemetry.dialects import DIALECTS
from rookery.telemetry.exposition import render
from rookery.telemetry.measurements import Family, single
from rookery.telemetry.requests import RequestStats

# Kafka's numbers of a broker's states.
_RUNNING: Final = 3


class NodeMetrics:
    """The metrics of one node. The broker's part is absent until `add_broker`."""

    def __init__(
        self,
        layers: BrokerLayers,
        *,
        requests: RequestStats,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        is_active: Callable[[], bool],
        logins: LoginCounts,
        loop_time: LoopTime,
        clock: Clock,
        slices: Slices,
    ) -> None:
        self._topics_max = layers.integer(METRICS_TOPICS_MAX)
        self._requests = requests
        self._quorum = quorum
        self._metadata = metadata
        self._is_active = is_active
        self._logins = logins
        self._loop_time = loop_time
        self._slices = slices
        self._services: Services | None = None
        self._listeners: Callable[[], Iterable[Listener]] = tuple
        self.collections = Collections(clock)
        self.unclean_elections = UncleanElections()

    def add_broker(self, services: Services) -> None:
        self._services = services

    def add_listeners(self, listeners: Callable[[], Iterable[Listener]]) -> None:
        known = self._listeners
        self._listeners = lambda: chain(known(), listeners())

    async def render(self, dialect: str, *, is_open_metrics: bool) -> bytes:
        """Return the text of a scrape; `dialect` is one of `DIALECTS`."""
        families = [family async for family in self.collect()]
        return await in_worker(lambda: render(families, DIALECTS[dialect], is_open_metrics=is_open_metrics).encode())

    async def collect(self) -> AsyncIterator[Family]:
        for source in self._sources():
            # One at a time, so that no other callback of the loop waits for all of them.
            await self._slices.pause()
            for family in source():
                yield family
        if (services := self._services) is not None:
            shown = self._shown(services)
            replicas = list(services.replicas)
            for family in chain(replica_families(replicas), traffic_families(services.replicas.traffic, shown)):
                yield family
            async for family in partition_families(replicas, self._slices, shown):
                yield family

    def _sources(self) -> Sequence[Callable[[], Iterable[Family]]]:
        shared: list[Callable[[], Iterable[Family]]] = [
            lambda: loop_families(self._loop_time),
            lambda: process_families(self.collections),
            lambda: request_families(self._requests),
            lambda: listener_families(self._listeners(), self._logins),
            lambda: quorum_families(self._quorum),
            lambda: metadata_families(self._metadata, self._quorum),
            lambda: controller_families(
                self._metadata.image, is_active=self._is_active(), unclean_elections=self.unclean_elections.count
            ),
        ]
        if (services := self._services) is None:
            return shared
        return [
            *shared,
            lambda: _broker_families(services),
            lambda: group_families(services.groups),
            lambda: transaction_families(services.transactions),
        ]

    def _shown(self, services: Services) -> Callable[[str], bool]:
        """Return whether a topic has metrics of its own."""
        topics = sorted({replica.state.topic_partition.topic for replica in services.replicas})
        if len(topics) <= self._topics_max:
            return lambda _: True
        return frozenset(topics[: self._topics_max]).__contains__


def _broker_families(services: Services) -> Iterator[Family]:
    replicas, isr = services.replicas, services.replicas.isr_counts
    yield single(names.BROKER_STATE, _RUNNING)
    yield single(names.ISR_EXPANDS, isr.expands)
    yield single(names.ISR_SHRINKS, isr.shrinks)
    yield single(names.FAILED_ISR_UPDATES, isr.failures)
    yield single(names.FETCHER_MAX_LAG, replicas.copy_lag(), ("clientId", "Replica"))
    yield single(names.PURGATORY, len(services.pending), ("delayedOperation", "Fetch"))
    yield single(names.FETCH_SESSIONS, len(services.fetch_sessions))
    yield single(names.FETCH_SESSION_PARTITIONS, services.fetch_sessions.partition_count)
    yield single(names.OFFLINE_DIRECTORIES, sum(not directory.is_online for directory in replicas.directories))
    offline = [((("logDirectory", str(each.path)),), int(not each.is_online)) for each in replicas.directories]
    yield Family(names.DIRECTORY_OFFLINE, offline)
    online = [directory for directory in replicas.directories if directory.is_online]
    volumes = [((("logDirectory", str(each.path)),), replicas.volume_bytes(each)) for each in online]
    yield Family(names.VOLUME_BYTES, [(tags, total) for tags, (total, _) in volumes])
    yield Family(names.VOLUME_FREE, [(tags, free) for tags, (_, free) in volumes])
