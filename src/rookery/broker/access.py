"""Which operations a client may perform. There is no authorizer yet: every operation is allowed.

`authorized_operations` is the only source of the operations in responses (KIP-430). The permissions that Kafka requires
for each API are in `broker.api_table`; no code checks them yet.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rookery.base.codes import AclOperation, AclResourceType

# What a response has where the client did not request operations.
NO_OPERATIONS: Final = -(2**31)

_ALLOWED: Final[Mapping[AclResourceType, Iterable[AclOperation]]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
_BITS: Final = {
    resource_type: sum(1 << operation for operation in operations) for resource_type, operations in _ALLOWED.items()
}


def authorized_operations(resource_type: AclResourceType, *, requested: bool = True) -> int:
    """Return the operations that are allowed on a resource, as bits; `NO_OPERATIONS` if they were not `requested`."""
    return _BITS[resource_type] if requested else NO_OPERATIONS
