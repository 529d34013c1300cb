"""Describes the cluster: its brokers, their log directories, and the APIs that they serve."""

from collections.abc import Iterable, Mapping
from functools import partial

from rookery.base.codes import EndpointType
from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TopicPartition, indexes_by_topic
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list, partition_rows
from rookery.client.admin.outcomes import check
from rookery.client.metadata import Broker
from rookery.net.channel import software
from rookery.protocol.api import ApiKey, VersionRange
from rookery.protocol.messages import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    UnregisterBrokerRequest,
)

_FENCED_SINCE = 2


@value_class(kw_only=True)
class ClusterDescription:
    """`fenced` holds the ids of registered brokers that are fenced, if they were requested.

    `brokers` are the controllers if these were requested; then `controller_id` is the active one. A broker does not
    say which controller is active: it returns itself or another broker, which forwards requests.
    """

    cluster_id: str
    controller_id: NodeId
    brokers: tuple[Broker, ...]
    fenced: frozenset[NodeId] = frozenset()
    endpoint_type: EndpointType = EndpointType.BROKER


@value_class(kw_only=True)
class LogDirectory:
    """One log directory of one broker; sizes are -1 if the broker does not report them.

    `is_cordoned`: it gets no new partitions, as far as the broker reports that (Kafka 4.3).
    """

    node_id: NodeId
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    partition_sizes: Mapping[TopicPartition, int]
    is_cordoned: bool = False


class ClusterAdmin(AdminPart):
    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the brokers; the controllers if the admin has `bootstrap.controllers`."""
        uses_controllers = self._cluster.settings.bootstrap_is_controllers
        endpoint_type = EndpointType.CONTROLLER if uses_controllers else EndpointType.BROKER
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
            include_fenced_brokers=include_fenced,
        )

        async def attempt() -> ClusterDescription:
            response = await self._cluster.call(ApiKey.DESCRIBE_CLUSTER, request)
            check(response.error_code, response.error_message or "cluster")
            brokers = (Broker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
            return ClusterDescription(
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                brokers=tuple(sorted(brokers, key=lambda broker: broker.node_id)),
                fenced=frozenset(b.broker_id for b in response.brokers if b.get("is_fenced", False)),
                endpoint_type=endpoint_type,
            )

        if include_fenced:
            await self._retry(partial(self._require, ApiKey.DESCRIBE_CLUSTER, _FENCED_SINCE, "hides fenced brokers"))
        return await self._retry(attempt)

    async def unregister_broker(self, node: NodeId) -> None:
        """Remove the registration of a broker that will not return. Its replicas stay assigned to it."""
        await self._retry(partial(self._unregister_broker, node))

    async def _unregister_broker(self, node: NodeId) -> None:
        request = UnregisterBrokerRequest(broker_id=node)
        response = await self._cluster.call_controller(ApiKey.UNREGISTER_BROKER, request)
        check(response.error_code, response.error_message or f"broker {node}")

    async def describe_log_dirs(
        self, nodes: Iterable[NodeId] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirectory]:
        """Return the log directories of `nodes` (None: all brokers), with the sizes of `partitions` (None: all)."""
        topics = None if partitions is None else _describable(as_list(partitions, "partitions"))
        request = DescribeLogDirsRequest(topics=topics)
        if nodes is None:
            return await self._call_brokers(lambda node: self._describe_log_dirs_of(node, request))
        wanted = as_list(nodes, "nodes")
        return [
            directory
            for node in wanted
            for directory in await self._retry(partial(self._describe_log_dirs_of, node, request))
        ]

    async def _describe_log_dirs_of(self, node: NodeId, request: DescribeLogDirsRequest) -> list[LogDirectory]:
        response = await self._call(ApiKey.DESCRIBE_LOG_DIRS, request, node=node)
        check(response.get("error_code", 0), f"broker {node}")
        return [_log_directory(node, row) for row in response.results]

    async def api_versions(self, node: NodeId | None = None) -> dict[str, VersionRange]:
        """Return the versions of the APIs that a broker serves, by Kafka's names."""
        response = await self._retry(partial(self._call, ApiKey.API_VERSIONS, software(), node=node))
        check(response.error_code, "API versions")
        known = {int(key) for key in ApiKey}
        return {
            ApiKey(row.api_key).name if row.api_key in known else str(row.api_key): VersionRange(
                row.min_version, row.max_version
            )
            for row in response.api_keys
        }


def _describable(partitions: Iterable[TopicPartition]) -> list[DescribableLogDirTopic]:
    return [
        DescribableLogDirTopic(topic=topic, partitions=indexes)
        for topic, indexes in indexes_by_topic(partitions).items()
    ]


def _log_directory(node: NodeId, row: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        node_id=node,
        path=row.log_dir,
        error=ErrorCode(row.error_code),
        total_bytes=row.get("total_bytes", -1),
        usable_bytes=row.get("usable_bytes", -1),
        partition_sizes={tp: partition.partition_size for tp, partition in partition_rows(row.topics)},
        is_cordoned=row.get("is_cordoned", False),
    )
