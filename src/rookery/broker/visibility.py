"""What handlers show to a client: the operations that it may perform (KIP-430), and topics in lists of all topics.

Everything else that a client may not see is taken out of requests and responses by the guards in `broker.access`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rookery.base.codes import AclOperation, AclResourceType
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.coordinators.group.consumer.environment import VisibleTopics
from rookery.security.acls import CLUSTER_NAME, OPERATIONS

# What a response has where the client did not request operations.
NO_OPERATIONS: Final = -(2**31)

# All of them, as bits.
ALL_OPERATIONS: Final[Mapping[AclResourceType, int]] = {
    resource_type: sum(1 << operation for operation in operations) for resource_type, operations in OPERATIONS.items()
}


def authorized_operations(
    context: ClusterContext, resource_type: AclResourceType, name: str = CLUSTER_NAME, *, requested: bool = True
) -> int:
    """Return the operations that are allowed on a resource, as bits; `NO_OPERATIONS` if they were not `requested`."""
    if not requested:
        return NO_OPERATIONS
    access = context.services.access
    return (
        ALL_OPERATIONS[resource_type] if access is None else allowed_bits(access.client(context), resource_type, name)
    )


def allowed_bits(client: Client, resource_type: AclResourceType, name: str) -> int:
    """Return the operations that a client may perform on a resource, as bits."""
    operations = OPERATIONS[resource_type]
    return sum(1 << each for each in operations if client.sees(each, resource_type)[name].allowed)


def cluster_operations(context: ClusterContext, *, requested: bool) -> int:
    """Return the operations that are allowed on the cluster: none for a client that may not describe it."""
    access = context.services.access
    if requested and access is not None and not access.client(context).allows_on_cluster(AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context, AclResourceType.CLUSTER, requested=requested)


def describable_topics(context: ClusterContext, names: Iterable[str]) -> list[str]:
    """Return the topics that a client may describe, for a handler that pages through all of them."""
    visible = visible_topics(context)
    return list(names) if visible is None else [name for name in names if visible.includes(name)]


def visible_topics(context: ClusterContext) -> VisibleTopics | None:
    """Return the topics that a client may describe, which a pattern of it may match; None if it may describe all."""
    access = context.services.access
    if access is None:
        return None
    visible = access.client(context).sees(AclOperation.DESCRIBE, AclResourceType.TOPIC)
    return VisibleTopics(access.authorizer.version, lambda name: visible[name].allowed)
