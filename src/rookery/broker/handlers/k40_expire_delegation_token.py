"""ExpireDelegationToken (40): end a token after a period, or at once if the period is negative (KIP-48).

The errors are those of RenewDelegationToken. A token that has expired can still be ended at once.

Versions: v1 (the first), v2 flexible.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.token_access import may_use_tokens
from rookery.metadata.requests import Outcome
from rookery.metadata.security_requests import TokenExpiry
from rookery.protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle(context: ClusterContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    result = TokenExpiry(Outcome(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    if may_use_tokens(context):
        result = await context.services.controller.security.expire_token(
            context.connection.principal, request.hmac, request.expiry_time_period_ms
        )
    return ExpireDelegationTokenResponse(error_code=result.outcome.code, expiry_timestamp_ms=result.expiry_ms)
