"""Access control entries and filters between the protocol and plain values, and the refusal without an authorizer."""

from enum import IntEnum
from typing import Final, TypeVar

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.broker.context import ClusterContext
from rookery.protocol.messages import AclCreation, DeleteAclsFilter, DescribeAclsRequest
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern

_CodeT = TypeVar("_CodeT", bound=IntEnum)

# The message of SECURITY_DISABLED.
NO_AUTHORIZER: Final = "No Authorizer is configured."


def has_authorizer(context: ClusterContext) -> bool:
    """Return whether ACLs have an effect. Without an authorizer they would promise a protection that is not there."""
    return bool(context.services.config().text("authorizer.class.name"))


def binding_of(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            _code(AclResourceType, creation.resource_type),
            creation.resource_name,
            _code(PatternType, creation.resource_pattern_type),
        ),
        creation.principal,
        creation.host,
        _code(AclOperation, creation.operation),
        _code(AclPermission, creation.permission_type),
    )


def filter_of(row: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        resource_type=_code(AclResourceType, row.resource_type_filter),
        resource_name=row.resource_name_filter,
        pattern_type=_code(PatternType, row.pattern_type_filter),
        principal=row.principal_filter,
        host=row.host_filter,
        operation=_code(AclOperation, row.operation),
        permission=_code(AclPermission, row.permission_type),
    )


def _code(kind: type[_CodeT], number: int) -> _CodeT:
    """Return the code for a number, UNKNOWN if a later version of Kafka has defined it."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
