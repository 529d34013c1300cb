"""CreateDelegationToken (38): create a token, with which others log in as its owner (KIP-48).

DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if the client has not logged in, or has done so with a token.
DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`. INVALID_PRINCIPAL_TYPE for a renewer that is no
user.

Versions: v1 (the first), v2 flexible. v3: a client may create a token for another owner (KIP-373).
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.token_access import may_use_tokens
from rookery.metadata.requests import Outcome
from rookery.metadata.security_requests import CreatedToken, NewToken
from rookery.protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from rookery.protocol.principal import Principal


async def handle(context: ClusterContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester = context.connection.principal
    owner = owner_of(context, request)
    if may_use_tokens(context):
        created = await context.services.controller.security.create_token(
            NewToken(
                requester=requester,
                owner=owner,
                renewers=tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers),
                max_lifetime_ms=request.max_lifetime_ms,
            )
        )
    else:
        created = CreatedToken(Outcome(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    return _response(created, owner, requester)


def owner_of(context: ClusterContext, request: CreateDelegationTokenRequest) -> Principal:
    """Return the owner of the token: the one that the request names, else the client itself."""
    name = request.get("owner_principal_name")
    if not name:
        return context.connection.principal
    return Principal(request.get("owner_principal_type") or "", name)


def _response(created: CreatedToken, owner: Principal, requester: Principal) -> CreateDelegationTokenResponse:
    token = created.token
    return CreateDelegationTokenResponse(
        error_code=created.outcome.code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1 if token is None else token.issue_ms,
        expiry_timestamp_ms=-1 if token is None else token.expiry_ms,
        max_timestamp_ms=-1 if token is None else token.max_ms,
        token_id="" if token is None else token.token_id,
        hmac=created.hmac,
    )
