"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken (KIP-48), and the removal of expired tokens."""

import hmac as hmacs
from collections.abc import Generator, Mapping
from dataclasses import field, replace
from typing import Final

from rookery.base.config import BrokerLayers
from rookery.base.config_key import LONG_MAX
from rookery.base.errors import ErrorCode
from rookery.base.types import encode_uuid
from rookery.base.values import value_class
from rookery.controller.decision import Context, ControllerResult, Steps
from rookery.metadata.image import ClusterImage
from rookery.metadata.image.tokens import token_record
from rookery.metadata.outcomes import OK, Outcome
from rookery.metadata.records import MetadataRecord, RemoveDelegationTokenRecord
from rookery.metadata.security_requests import CreatedToken, NewToken, TokenExpiry
from rookery.protocol.principal import Principal
from rookery.security.delegation_tokens import DelegationToken, token_hmac

USER_TYPE: Final = "User"
# The most tokens that one decision removes because they have expired.
EXPIRED_PER_PASS: Final = 1000

_DISABLED: Final = Outcome(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


@value_class(kw_only=True)
class TokenRules:
    """The settings `delegation.token.*`. Without a secret key, there are no tokens."""

    secret_key: str | None = field(repr=False)
    max_lifetime_ms: int
    expiry_time_ms: int

    @classmethod
    def of(cls, static: Mapping[str, str]) -> "TokenRules":
        layers = BrokerLayers(static=static)
        return cls(
            secret_key=layers.text("delegation.token.secret.key"),
            max_lifetime_ms=layers.integer("delegation.token.max.lifetime.ms"),
            expiry_time_ms=layers.integer("delegation.token.expiry.time.ms"),
        )


def decide_create_token(
    request: NewToken, rules: TokenRules, context: Context, now_ms: int
) -> ControllerResult[CreatedToken]:
    if rules.secret_key is None:
        return ControllerResult((), CreatedToken(_DISABLED))
    if any(renewer.type != USER_TYPE for renewer in request.renewers):
        return ControllerResult((), CreatedToken(Outcome(ErrorCode.INVALID_PRINCIPAL_TYPE)))
    lifetime_ms = rules.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = _sum(now_ms, lifetime_ms)
    token = DelegationToken(
        token_id=encode_uuid(context.new_id()),
        owner=request.owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_ms=now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, _sum(now_ms, rules.expiry_time_ms)),
    )
    return ControllerResult(
        (token_record(token),), CreatedToken(OK, token, token_hmac(rules.secret_key, token.token_id))
    )


def steps_to_renew_token(
    image: ClusterImage, requester: Principal, hmac: bytes, period_ms: int, rules: TokenRules, now_ms: int
) -> Steps[TokenExpiry]:
    found = yield from _find(image, requester, hmac, rules)
    if isinstance(found, Outcome):
        return ControllerResult((), TokenExpiry(found))
    if found.is_expired(now_ms):
        return ControllerResult((), TokenExpiry(Outcome(ErrorCode.DELEGATION_TOKEN_EXPIRED)))
    period_ms = min(rules.expiry_time_ms, period_ms) if period_ms > 0 else rules.expiry_time_ms
    return _end_at(found, _sum(now_ms, period_ms))


def steps_to_expire_token(
    image: ClusterImage, requester: Principal, hmac: bytes, period_ms: int, rules: TokenRules, now_ms: int
) -> Steps[TokenExpiry]:
    """End a token at once if `period_ms` is negative, even one that has expired; else after that time."""
    found = yield from _find(image, requester, hmac, rules)
    if isinstance(found, Outcome):
        return ControllerResult((), TokenExpiry(found))
    if period_ms < 0:
        return ControllerResult((RemoveDelegationTokenRecord(found.token_id),), TokenExpiry(OK, now_ms))
    if found.is_expired(now_ms):
        return ControllerResult((), TokenExpiry(Outcome(ErrorCode.DELEGATION_TOKEN_EXPIRED)))
    return _end_at(found, _sum(now_ms, period_ms))


def steps_to_remove_expired_tokens(image: ClusterImage, now_ms: int) -> Steps[int]:
    """Remove tokens that have expired, up to `EXPIRED_PER_PASS`; the result is their number."""
    records: list[MetadataRecord] = []
    for token in image.tokens.values():
        if token.is_expired(now_ms):
            records.append(RemoveDelegationTokenRecord(token.token_id))
            if len(records) == EXPIRED_PER_PASS:
                break
        yield
    return ControllerResult(tuple(records), len(records))


def _find(
    image: ClusterImage, requester: Principal, hmac: bytes, rules: TokenRules
) -> Generator[None, None, DelegationToken | Outcome]:
    """Return the token with this HMAC, or the error if there is none that the requester may change; step by step."""
    if rules.secret_key is None:
        return _DISABLED
    for token in image.tokens.values():
        if hmacs.compare_digest(token_hmac(rules.secret_key, token.token_id), hmac):
            if not token.may_be_renewed_by(requester):
                return Outcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return token
        yield
    return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _end_at(token: DelegationToken, end_ms: int) -> ControllerResult[TokenExpiry]:
    expiry_ms = min(token.max_ms, end_ms)
    return ControllerResult((token_record(replace(token, expiry_ms=expiry_ms)),), TokenExpiry(OK, expiry_ms))


def _sum(time_ms: int, duration_ms: int) -> int:
    return min(time_ms + duration_ms, LONG_MAX)
