"""CreateAcls (30): create access control entries. One that exists is success.

SECURITY_DISABLED if the broker has no authorizer. INVALID_REQUEST for an entry that no authorizer could apply: an
unknown code, an empty name, a principal without a type.

Versions: v1 (the first) has the type of the pattern, v2 is flexible, v3 has the resource type USER.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.acl_codes import NO_AUTHORIZER, binding_of, has_authorizer
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import Outcome
from rookery.protocol.messages import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(context: ClusterContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if has_authorizer(context):
        acls = [binding_of(creation) for creation in request.creations]
        outcomes = await context.services.controller.security.create_acls(acls)
    else:
        outcomes = [Outcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER) for _ in request.creations]
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=outcome.code, error_message=outcome.message) for outcome in outcomes]
    )
