"""`Admin`: everything that can be asked of a cluster and changed in it, with typed results.

Operations on several things answer with one outcome per thing, because some may fail and others not: each has an
`error`, and a `check` that raises it. Failures of the network and absent controllers, leaders and coordinators are
retried inside, up to `default.api.timeout.ms`. An API that the broker lacks is UNSUPPORTED_VERSION, naming the API.
The parts are in the modules beside this one; `cli` and the other programs of Rookery use only this.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rookery.base.clock import SystemClock
from rookery.client.admin.cluster import ClusterAdmin
from rookery.client.admin.configs import ConfigAdmin
from rookery.client.admin.features import FeatureAdmin
from rookery.client.admin.groups import GroupAdmin
from rookery.client.admin.hanging_transactions import HangingAdmin
from rookery.client.cluster import Cluster
from rookery.client.metrics.connections import ConnectionMetrics, windows_of
from rookery.client.metrics.names import MetricName
from rookery.client.settings.admin import AdminSettings


class Admin(GroupAdmin, HangingAdmin, ConfigAdmin, FeatureAdmin, ClusterAdmin):
    """`config` has Kafka's keys: `Admin({"bootstrap.servers": "localhost:9092"})`.

    Connects when it is entered or first used. Safe to use from many tasks of one event loop.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        settings = AdminSettings.parse(config).common
        self._owns_cluster = True
        self._metrics: ConnectionMetrics | None = ConnectionMetrics(
            SystemClock().monotonic, settings.client_id, windows=windows_of(settings)
        )
        super().__init__(Cluster(settings, observer=self._metrics))

    @classmethod
    def over(cls, cluster: Cluster) -> Self:
        """An admin that shares a cluster's connections, and leaves them open when it is closed."""
        admin = cls.__new__(cls)
        admin._owns_cluster = False
        admin._metrics = None
        super(Admin, admin).__init__(cluster)
        return admin

    async def __aenter__(self) -> Self:
        """Connect to one broker: that nobody is there is told at once and not retried."""
        await self._cluster.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def metrics(self) -> dict[MetricName, float]:
        """Kafka's names; see `rookery.client.metrics`. None of an admin over another's cluster."""
        return {} if self._metrics is None else self._metrics.metrics()

    async def close(self) -> None:
        """End all requests. More than once is no error."""
        if self._owns_cluster:
            await self._cluster.close()
