"""The values of access control: resources, patterns of resources, and the entries that allow or deny operations."""

from typing import Final

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.values import value_class

# The name of the only resource of the type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
# As the name of a LITERAL pattern: all resources of the type. As the host of an entry: all hosts.
WILDCARD: Final = "*"
# As the principal of an entry: all principals.
EVERY_PRINCIPAL: Final = "User:*"


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
