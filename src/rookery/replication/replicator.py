"""The tasks that keep replicas in sync: fetchers, ISR proposals, reports of log directories, and the periodic check for
replicas that lag.

`ReplicaManager` has none of them until the broker is registered: a fetch names the broker's epoch.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.slices import Slices
from rookery.metadata.controller_link import ControllerLink
from rookery.replication.directory_reports import DirectoryReports
from rookery.replication.fetcher import BrokerPeers, Fetchers, FetcherSettings, Follower
from rookery.replication.isr_changes import IsrChanges
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)


class Replicator:
    """The running replication of one node."""

    def __init__(
        self,
        follower: Follower,
        *,
        new_peers: Callable[[], BrokerPeers],
        controller: ControllerLink,
        replicas: Callable[[], Iterable[Replica]],
        settings: BrokerLayers,
        clock: Clock,
        slices: Slices,
    ) -> None:
        self.fetchers = Fetchers(new_peers, follower=follower, settings=fetcher_settings(settings), slices=slices)
        self.changes = IsrChanges(
            controller, node_id=follower.node_id, broker_epoch=follower.broker_epoch, clock=clock, slices=slices
        )
        self.directories = DirectoryReports(controller, node_id=follower.node_id, broker_epoch=follower.broker_epoch)
        self._replicas = replicas
        self._clock = clock
        self._slices = slices
        pause_s = settings.integer("replica.lag.time.max.ms") / 2 / 1000
        self._task = asyncio.get_running_loop().create_task(self._check_lag(pause_s))

    async def _check_lag(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.shrink()
            except Exception:
                logger.exception("the check for lagging replicas failed and continues")

    async def shrink(self) -> None:
        """Propose ISRs without the replicas that have lagged for longer than `replica.lag.time.max.ms`."""
        async for some in self._slices.of(list(self._replicas()), ITEMS_PER_SLICE):
            now_s = self._clock.monotonic()
            for replica in some:
                if replica.state.propose_shrink(now_s):
                    self.changes.propose(replica)
                replica.check_high_watermark()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self.fetchers.close()
        await self.changes.close()
        await self.directories.close()


def fetcher_settings(settings: BrokerLayers) -> FetcherSettings:
    return FetcherSettings(
        fetchers_per_source=settings.integer("num.replica.fetchers"),
        wait_max_ms=settings.integer("replica.fetch.wait.max.ms"),
        min_bytes=settings.integer("replica.fetch.min.bytes"),
        partition_max_bytes=settings.integer("replica.fetch.max.bytes"),
        response_max_bytes=settings.integer("replica.fetch.response.max.bytes"),
        backoff_s=settings.integer("replica.fetch.backoff.ms") / 1000,
        timeout_s=settings.integer("replica.socket.timeout.ms") / 1000,
    )
