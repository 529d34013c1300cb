"""DeleteAcls (31): delete the access control entries that match filters; the response lists them.

SECURITY_DISABLED if the broker has no authorizer. INVALID_REQUEST for a filter with unknown codes.

Versions: v1 (the first) has the type of the pattern, v2 is flexible, v3 has the resource type USER.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.acl_codes import NO_AUTHORIZER, filter_of, has_authorizer
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import Outcome
from rookery.metadata.security_requests import DeletedAcls
from rookery.protocol.messages import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from rookery.security.acls import AclBinding


async def handle(context: ClusterContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if has_authorizer(context):
        filters = [filter_of(row) for row in request.filters]
        results = await context.services.controller.security.delete_acls(filters)
    else:
        results = [DeletedAcls(Outcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)) for _ in request.filters]
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=result.outcome.code,
                error_message=result.outcome.message,
                matching_acls=[_matching(acl) for acl in result.acls],
            )
            for result in results
        ]
    )


def _matching(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=int(acl.pattern.type),
        resource_name=acl.pattern.name,
        pattern_type=int(acl.pattern.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
