"""DescribeDelegationToken (41): tokens with their HMACs, all or those of some owners and renewers (KIP-48).

Null for `owners` means all tokens, an empty list none. The errors are those of CreateDelegationToken.

Versions: v1 (the first), v2 flexible, v3 the principal that requested the token (KIP-373).
"""

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.token_access import may_use_tokens
from rookery.protocol.messages import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from rookery.protocol.principal import Principal
from rookery.security.delegation_tokens import DelegationToken, token_hmac


async def handle(context: ClusterContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    if not may_use_tokens(context):
        return _error(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = context.services.config().text("delegation.token.secret.key")
    if secret_key is None:
        return _error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
    described: list[DescribedDelegationToken] = []
    async for some in context.services.slices.of(context.services.image.tokens.values(), DESCRIPTIONS_PER_SLICE):
        described += (
            _described(token, secret_key)
            for token in some
            if owners is None or any(map(token.may_be_renewed_by, owners))
        )
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=described)


def _error(code: ErrorCode) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])


def _described(token: DelegationToken, secret_key: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
