"""`LagMonitor`: the lag of groups, once or again and again. The API of this package for programs."""

import asyncio
from collections.abc import AsyncIterator, Collection

from rookery.base.clock import Clock
from rookery.client.admin import Admin
from rookery.lag.history import LagHistory
from rookery.lag.lags import LagReport
from rookery.lag.sampler import LagSampler

DEFAULT_WINDOW_S = 60.0
DEFAULT_INTERVAL_S = 5.0
# Samples have the time of another clock, which must not see less than the whole duration.
_MARGIN_S = 0.1


class LagMonitor:
    """Observes groups of the cluster of `admin`: `group_ids`, or all groups, also those that appear later.

    `window_s` is how far back trends and statuses look. It should span several commits of the slowest group: five
    seconds between two in a consumer with automatic commits, one micro-batch in Spark.
    """

    def __init__(
        self,
        admin: Admin,
        *,
        group_ids: Collection[str] | None = None,
        read_committed: bool = False,
        window_s: float = DEFAULT_WINDOW_S,
        clock: Clock | None = None,
    ) -> None:
        self._group_ids = group_ids
        self._sampler = LagSampler(admin, read_committed=read_committed, clock=clock)
        self._history = LagHistory(int(window_s * 1000))

    async def observe(self) -> LagReport:
        """Look at the cluster now. Trends, and statuses other than OK, need several calls over `window_s`."""
        return self._history.add(await self._sampler.sample(self._group_ids))

    async def observe_for(self, duration_s: float, interval_s: float = DEFAULT_INTERVAL_S) -> LagReport:
        """Look at the cluster again and again for `duration_s` seconds; return the last report.

        The last look begins after that time: however long one takes, the samples cover a window of that length.
        """
        loop = asyncio.get_running_loop()
        report = await self.observe()
        begun_s, end_s = loop.time(), loop.time() + duration_s + _MARGIN_S
        while duration_s and begun_s < end_s:
            await asyncio.sleep(max(0.0, min(interval_s, end_s - loop.time())))
            begun_s = loop.time()
            report = await self.observe()
        return report

    async def watch(self, interval_s: float = DEFAULT_INTERVAL_S) -> AsyncIterator[LagReport]:
        """Yield a report every `interval_s` seconds, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            yield await self.observe()
            await asyncio.sleep(max(0.0, started_s + interval_s - loop.time()))
