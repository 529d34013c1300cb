"""RenewDelegationToken (39): move the end of a token, up to the end of its longest life (KIP-48).

DELEGATION_TOKEN_NOT_FOUND for an unknown HMAC, DELEGATION_TOKEN_OWNER_MISMATCH if the client is neither its owner nor a
renewer, DELEGATION_TOKEN_EXPIRED. See CreateDelegationToken for the other errors.

Versions: v1 (the first), v2 flexible.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.token_access import may_use_tokens
from rookery.metadata.requests import Outcome
from rookery.metadata.security_requests import TokenExpiry
from rookery.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(context: ClusterContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    result = TokenExpiry(Outcome(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    if may_use_tokens(context):
        result = await context.services.controller.security.renew_token(
            context.connection.principal, request.hmac, request.renew_period_ms
        )
    return RenewDelegationTokenResponse(error_code=result.outcome.code, expiry_timestamp_ms=result.expiry_ms)
