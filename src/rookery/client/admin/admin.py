"""`Admin`: queries and changes of a cluster, with typed results.

Operations on several resources return one outcome for each, because some may fail and others succeed: each has an
`error`, and a `check` that raises it. Network failures and missing controllers, leaders and coordinators are retried,
up to `default.api.timeout.ms`. An API that the broker does not serve raises UNSUPPORTED_VERSION, naming the API. The
other modules of this package implement the parts; `cli` and the other programs of Rookery use only this class.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rookery.base.clock import SystemClock
from rookery.client.admin.acls import AclAdmin
from rookery.client.admin.cluster import ClusterAdmin
from rookery.client.admin.configs import ConfigAdmin
from rookery.client.admin.features import FeatureAdmin
from rookery.client.admin.first_records import FirstRecordAdmin
from rookery.client.admin.group_batches import GroupBatchAdmin
from rookery.client.admin.hanging_transactions import HangingAdmin
from rookery.client.admin.quorum import QuorumAdmin
from rookery.client.admin.quotas import QuotaAdmin
from rookery.client.admin.replicas import ReplicaAdmin
from rookery.client.admin.tokens import TokenAdmin
from rookery.client.admin.users import UserAdmin
from rookery.client.cluster import Cluster
from rookery.client.metrics.connections import ConnectionMetrics, windows_of
from rookery.client.metrics.names import MetricName
from rookery.client.settings.admin import AdminSettings


class Admin(
    GroupBatchAdmin,
    FirstRecordAdmin,
    HangingAdmin,
    ConfigAdmin,
    ReplicaAdmin,
    QuorumAdmin,
    FeatureAdmin,
    AclAdmin,
    UserAdmin,
    QuotaAdmin,
    TokenAdmin,
    ClusterAdmin,
):
    """`config` holds settings under Kafka's names: `Admin({"bootstrap.servers": "localhost:9092"})`.

    Connects when it is entered or first used. May be used by several tasks of one event loop.
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
        """Return an admin that shares the connections of `cluster`, and does not close them."""
        admin = cls.__new__(cls)
        admin._owns_cluster = False
        admin._metrics = None
        super(Admin, admin).__init__(cluster)
        return admin

    async def __aenter__(self) -> Self:
        """Connect to one broker. Raises immediately, without retries, if no broker can be reached."""
        await self._cluster.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def metrics(self) -> dict[MetricName, float]:
        """Return all metrics under Kafka's names; see `rookery.client.metrics`. Empty for an admin made by `over`."""
        return {} if self._metrics is None else self._metrics.metrics()

    async def close(self) -> None:
        """Cancel all requests and close the connections. Further calls do nothing."""
        if self._owns_cluster:
            await self._cluster.close()
