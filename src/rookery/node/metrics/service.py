"""The metrics of a node from its start to its stop: the collector, its listeners, and the job that samples.

Without `metrics.listeners` nothing is measured that costs something per request, and most of the modules of metrics are
not even imported: imports take most of the time of a start.
"""

from typing import TYPE_CHECKING

from rookery.base.config_metrics import METRICS_LISTENERS
from rookery.base.slices import Slices
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.node.background import Job
from rookery.node.broker_role import BrokerRole
from rookery.node.controller_role import ControllerRole
from rookery.node.environment import Environment
from rookery.node.metrics.logins import LoginCounts
from rookery.node.settings import Settings
from rookery.quorum.driver import QuorumDriver
from rookery.telemetry.requests import RequestStats

if TYPE_CHECKING:
    from rookery.node.metrics.collector import NodeMetrics
    from rookery.node.metrics.health import Health
    from rookery.node.metrics.listener import MetricsListener
    from rookery.node.metrics.process import LoopTime

_SAMPLE_MS = 5_000
# Percentiles cover the last five minutes: see `telemetry.histograms`.
_SAMPLES_PER_ROTATION = 12


class MetricsService:
    """Created before the roles, which measure requests into `requests`."""

    def __init__(self, settings: Settings, environment: Environment, logins: LoginCounts) -> None:
        self._settings = settings
        self._clock = environment.clock
        self._logins = logins
        self._urls = settings.layers.items(METRICS_LISTENERS) or ()
        self.requests = RequestStats(is_measured=bool(self._urls))
        self._loop_time: LoopTime | None = None
        self._samples = 0
        self._broker: BrokerRole | None = None
        self._metrics: NodeMetrics | None = None
        self._health: Health | None = None
        self._listeners: list[MetricsListener] = []

    async def start(
        self, quorum: QuorumDriver, metadata: MetadataPublisher, controller: ControllerRole, slices: Slices
    ) -> None:
        """Serve, before the broker does: a load balancer sees that the node is not ready yet."""
        if not self._urls:
            return
        from rookery.node.metrics.collector import NodeMetrics
        from rookery.node.metrics.health import Health
        from rookery.node.metrics.listener import MetricsListener
        from rookery.node.metrics.process import LoopTime

        self._loop_time = LoopTime(self._clock)
        metrics = self._metrics = NodeMetrics(
            self._settings.layers,
            requests=self.requests,
            quorum=quorum,
            metadata=metadata,
            is_active=lambda: controller.controller.is_active,
            logins=self._logins,
            loop_time=self._loop_time,
            clock=self._clock,
            slices=slices,
        )
        metrics.add_listeners(controller.bound)
        metadata.add(ImageListener("metrics", metrics.unclean_elections.apply))
        self._health = Health(quorum, self._clock, is_serving=self._is_serving)
        metrics.collections.begin()
        for url in self._urls:
            listener = MetricsListener(url, metrics, self._health)
            self._listeners.append(listener)
            await listener.start()

    def add_broker(self, broker: BrokerRole) -> None:
        self._broker = broker
        if self._metrics is not None:
            self._metrics.add_broker(broker.services)
            self._metrics.add_listeners(broker.bound)

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.close()
        if self._metrics is not None:
            self._metrics.collections.end()
            self._metrics = None

    def job(self) -> Job:
        return Job("metrics", lambda: _SAMPLE_MS, self._sample)

    async def _sample(self) -> None:
        if self._loop_time is not None:
            self._loop_time.sample()
        if self._health is not None:
            self._health.sample()
        self._samples += 1
        if self._samples % _SAMPLES_PER_ROTATION == 0:
            self.requests.rotate()

    def _is_serving(self) -> bool:
        # A controller alone serves as soon as its listeners do, which is before this.
        return not self._settings.is_broker or (self._broker is not None and self._broker.is_serving)
