"""What a broker requires of bearer tokens: JSON Web Tokens (RFC 7519) with claims that it accepts. Pure.

The claims `exp` and `iat` are required, and one that names the user. Issuer and audience are checked if the settings
name them. Signatures are verified by `security.token_signatures`.
"""

import base64
import binascii
import json
import math
from typing import Any, Final

from rookery.base.errors import RookeryError
from rookery.base.types import TimestampMs
from rookery.base.values import value_class

# A token is part of each login, and larger ones are not from an identity provider.
TOKEN_BYTES_MAX: Final = 65_536


class InvalidTokenError(RookeryError):
    """A token is not accepted. The text is for the log: the client learns only that it is invalid."""


class UnknownKeyError(InvalidTokenError):
    """A token is signed with a key that is not known; the identity provider may have a new one."""


@value_class(kw_only=True)
class TokenRules:
    """`sasl.oauthbearer.*` for the claims of tokens; without `issuer` and `audiences`, any are accepted."""

    issuer: str | None
    audiences: tuple[str, ...]
    skew_s: int
    scope_claim: str
    subject_claim: str


@value_class(kw_only=True)
class BearerToken:
    """The parts of a valid token that matter."""

    subject: str
    scopes: tuple[str, ...]
    expires_ms: TimestampMs


def read_header(token: str) -> dict[str, Any]:
    """Return the header of a token. Raises InvalidTokenError if it is not a JSON Web Token."""
    return _part(token, 0)


def read_claims(token: str) -> dict[str, Any]:
    """Return the claims of a token without verifying its signature."""
    return _part(token, 1)


def read_unsecured(token: str) -> dict[str, Any]:
    """Return the claims of a token without a signature (`{"alg": "none"}`), for development only."""
    if read_header(token).get("alg") != "none" or token.split(".")[2]:
        raise InvalidTokenError("only tokens without a signature are accepted here")
    return read_claims(token)


def validate(claims: dict[str, Any], rules: TokenRules, now_s: float) -> BearerToken:
    """Check the claims of a token. Raises InvalidTokenError."""
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if now_s >= expires_s + rules.skew_s:
        raise InvalidTokenError("the token has expired")
    if issued_s > expires_s:
        raise InvalidTokenError("the token was issued after its end")
    if "nbf" in claims and _time(claims, "nbf") > now_s + rules.skew_s:
        raise InvalidTokenError("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidTokenError("the token has another issuer than sasl.oauthbearer.expected.issuer")
    if rules.audiences and not set(_texts(claims, "aud")) & set(rules.audiences):
        raise InvalidTokenError("the token is not for one of sasl.oauthbearer.expected.audience")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidTokenError(f"the token has no claim {rules.subject_claim!r} with the name of a user")
    scopes = tuple(scope for text in _texts(claims, rules.scope_claim) for scope in text.split())
    return BearerToken(subject=subject, scopes=scopes, expires_ms=int(expires_s * 1000))


def _part(token: str, index: int) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_BYTES_MAX:
        raise InvalidTokenError("it is not a JSON Web Token")
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[index] + "=" * (-len(parts[index]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidTokenError("it is not a JSON Web Token")
    return found


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InvalidTokenError(f"the token has no claim {name!r} that is a time")
    return float(value)


def _texts(claims: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a claim that is a text or a list of texts."""
    value = claims.get(name)
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(text for text in found if isinstance(text, str))
