"""DescribeAcls (29): the access control entries that match a filter, by resource pattern.

SECURITY_DISABLED if the broker has no authorizer. INVALID_REQUEST for a filter with unknown codes.

Versions: v1 (the first) has the type of the pattern, v2 is flexible, v3 has the resource type USER.
"""

from collections.abc import Sequence

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE
from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ErrorCode
from rookery.broker.acl_codes import filter_of, has_authorizer
from rookery.broker.context import ClusterContext
from rookery.protocol.messages import AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern


async def handle(context: ClusterContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not has_authorizer(context):
        return _error(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    acl_filter = filter_of(request)
    if not _is_known(acl_filter):
        return _error(ErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements.")
    found: dict[ResourcePattern, list[AclBinding]] = {}
    async for some in context.services.slices.of(context.services.image.acls.values(), DESCRIPTIONS_PER_SLICE):
        for acl in some:
            if acl_filter.matches(acl):
                found.setdefault(acl.pattern, []).append(acl)
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[_resource(pattern, acls) for pattern, acls in found.items()],
    )


def _error(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])


def _is_known(acl_filter: AclFilter) -> bool:
    return (
        acl_filter.resource_type is not AclResourceType.UNKNOWN
        and acl_filter.pattern_type is not PatternType.UNKNOWN
        and acl_filter.operation is not AclOperation.UNKNOWN
        and acl_filter.permission is not AclPermission.UNKNOWN
    )


def _resource(pattern: ResourcePattern, acls: Sequence[AclBinding]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=int(pattern.type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        acls=[
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in acls
        ],
    )
