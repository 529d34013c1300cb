"""Guards of requests about the cluster, its nodes and its configuration."""

from typing import Any, Final

from rookery.base.codes import AclOperation, AclResourceType, ResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.access.guards import (
    CODES,
    Guard,
    Unguarded,
    Verdict,
    on_cluster,
    repeated,
    with_items,
    without_items,
)
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.protocol.messages import (
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from rookery.security.acls import CLUSTER_NAME

alter: Final[Guard] = on_cluster(AclOperation.ALTER)
# ElectLeaders and AlterPartitionReassignments.
alter_partitions: Final[Guard] = with_items(alter)
describe: Final[Guard] = on_cluster(AclOperation.DESCRIBE)
describe_configs_of_cluster: Final[Guard] = on_cluster(AclOperation.DESCRIBE_CONFIGS)
alter_configs_of_cluster: Final[Guard] = on_cluster(AclOperation.ALTER_CONFIGS)
# For requests between nodes.
action: Final[Guard] = on_cluster(AclOperation.CLUSTER_ACTION)

before_login: Final = Unguarded("clients send it before they have authenticated themselves")
cluster_nodes: Final = Unguarded("the nodes are no secret: only the authorized operations in the response are decided")

_CONFIGURED: Final = {
    ResourceType.TOPIC: AclResourceType.TOPIC,
    ResourceType.GROUP: AclResourceType.GROUP,
    ResourceType.BROKER: AclResourceType.CLUSTER,
    ResourceType.BROKER_LOGGER: AclResourceType.CLUSTER,
    ResourceType.CLIENT_METRICS: AclResourceType.CLUSTER,
}
# The messages of DescribeConfigs, which is the only one of these APIs that has them in Kafka.
_MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def _acl_type(resource: Any) -> AclResourceType | None:
    """Return the type of resource that a config resource needs a permission for; None if the handler refuses it."""
    return _CONFIGURED.get(resource.resource_type)


def _denies(client: Client, operation: AclOperation, resource: Any) -> bool:
    resource_type = _acl_type(resource)
    if resource_type is None:
        return False
    name = CLUSTER_NAME if resource_type is AclResourceType.CLUSTER else resource.resource_name
    return not client.allows(operation, resource_type, name)


def _code(resource: Any) -> ErrorCode:
    resource_type = _acl_type(resource)
    assert resource_type is not None
    return CODES[resource_type]


def describe_configs(client: Client, context: ClusterContext, request: DescribeConfigsRequest) -> Verdict:
    denied = {
        position
        for position, resource in enumerate(request.resources)
        if _denies(client, AclOperation.DESCRIBE_CONFIGS, resource)
    }
    return without_items(context, request, denied, _code, _MESSAGES.get)


def alter_configs(client: Client, context: ClusterContext, request: Any) -> Verdict:
    """The guard of both APIs that change configs. Loggers cannot be changed: the handler refuses them."""
    identities = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    exempt = repeated(identities)
    denied = {
        position
        for position, resource in enumerate(request.resources)
        if identities[position] not in exempt
        and resource.resource_type != ResourceType.BROKER_LOGGER
        and _denies(client, AclOperation.ALTER_CONFIGS, resource)
    }
    return without_items(context, request, denied, _code)


def describe_log_dirs(client: Client, _: ClusterContext, __: DescribeLogDirsRequest) -> Verdict:
    """Versions without an error for the whole response get an empty one."""
    if client.allows_on_cluster(AclOperation.DESCRIBE):
        return None
    return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
