"""JSON Web Tokens as far as a client needs them: the expiry of a token, and creating an unsigned one. Pure.

A client does not verify tokens: the broker does.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from rookery.base.errors import ConfigError

_OPTION_PREFIX = "unsecuredLogin"
_RESERVED_CLAIMS = ("exp", "iat")
_DEFAULT_LIFETIME_S = "3600"


def expiry_s(token: str) -> float | None:
    """Return the claim `exp`, in seconds since 1970; None if there is none, or the token is not a JSON Web Token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expiry = claims.get("exp") if isinstance(claims, dict) else None
        return float(expiry) if isinstance(expiry, int | float) and math.isfinite(expiry) else None
    except (binascii.Error, ValueError, RecursionError, OverflowError):
        return None


def unsecured_token(options: Mapping[str, str], now_s: float) -> str:
    """Return the token for OAUTHBEARER with claims and without an endpoint: one with `{"alg": "none"}` (RFC 7515).

    The names of its options begin with `unsecuredLogin`, followed by: `StringClaim_NAME`, `NumberClaim_NAME`,
    `ListClaim_NAME` (the first character of the value separates the items), `LifetimeSeconds` and `PrincipalClaimName`
    (the claim that identifies the user). For development only: a broker that accepts such tokens verifies nothing.
    """
    lifetime_s = _number("LifetimeSeconds", options.get(f"{_OPTION_PREFIX}LifetimeSeconds", _DEFAULT_LIFETIME_S))
    claims: dict[str, Any] = {"exp": now_s + lifetime_s, "iat": now_s}
    for kind, read in _CLAIM_KINDS.items():
        prefix = f"{_OPTION_PREFIX}{kind}_"
        for option, value in options.items():
            if option.startswith(prefix):
                name = option.removeprefix(prefix)
                if name in _RESERVED_CLAIMS:
                    raise ConfigError(f"sasl.jaas.config: remove {option}; the claim {name} is set by the login")
                claims[name] = read(option.removeprefix(_OPTION_PREFIX), value)
    principal = options.get(f"{_OPTION_PREFIX}PrincipalClaimName", "").strip() or "sub"
    if not (isinstance(claims.get(principal), str) and claims[principal]):
        raise ConfigError(
            f'sasl.jaas.config must name the user: add {_OPTION_PREFIX}StringClaim_{principal}="NAME", '
            "or set sasl.oauthbearer.token.endpoint.url"
        )
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _number(option: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"sasl.jaas.config: {_OPTION_PREFIX}{option} must be a number, not {value!r}")
    return number


_CLAIM_KINDS: Mapping[str, Callable[[str, str], Any]] = {
    "StringClaim": lambda option, value: value,
    "NumberClaim": _number,
    "ListClaim": lambda option, value: value[1:].split(value[0]) if len(value) > 1 else [],
}


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()
