"""The values of access control: resources, patterns of resources, and the entries that allow or deny operations."""

from collections.abc import Mapping
from typing import Final

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.values import value_class

# The name of the only resource of the type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
# As the name of a LITERAL pattern: all resources of the type. As the host of an entry: all hosts.
WILDCARD: Final = "*"
# As the principal of an entry: all principals.
EVERY_PRINCIPAL: Final = "User:*"
# The operations that have a meaning for each type of resources, as Kafka has them; ALL always has one.
OPERATIONS: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
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
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


@value_class
class ResourcePattern:
    """The resources that an entry is about: one name, all names that begin with `name`, or all of the type."""

    type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@value_class
class AclBinding:
    """One entry: `principal` (as `User:alice`) may, or must not, perform `operation` from `host` on the resources."""

    pattern: ResourcePattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission
