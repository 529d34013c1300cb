"""Verifies the signatures of bearer tokens with the keys of an identity provider (RFC 7517). The only door to joserfc.

Only signatures with a private key are accepted. A token that is signed with a shared secret, or not at all, would be
valid for each owner of the public keys.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError
from rookery.security.token_validation import InvalidTokenError, UnknownKeyError, read_header

if TYPE_CHECKING:
    from joserfc.jwk import Key

_ALGORITHMS: Final = (
    *(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)),
    "EdDSA",
    "Ed25519",
)
_PROBLEM: Final = "sasl.oauthbearer.jwks.endpoint.url does not return a set of keys (JWKS)"


def check_library() -> None:
    """Raise ConfigError if the library is not installed."""
    try:
        import joserfc  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"OAUTHBEARER at the broker needs joserfc: {install_hint('security')}") from error


class VerificationKeys:
    """The public keys of an identity provider, by their ids."""

    def __init__(self, text: str) -> None:
        """Parse a JWKS document. Keys of kinds that are not supported are ignored. Raises ValueError."""
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key

        document = json.loads(text)
        keys = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(keys, list):
            raise ValueError(_PROBLEM)
        self._keys: list[tuple[str | None, Key]] = []
        for each in keys:
            if isinstance(each, dict) and each.get("kty") in ("RSA", "EC", "OKP") and each.get("use", "sig") == "sig":
                try:
                    self._keys.append((each.get("kid"), import_key(each)))
                except (JoseError, ValueError, TypeError, KeyError):
                    continue
        if not self._keys:
            raise ValueError(f"{_PROBLEM} for signatures")

    def verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is valid. Raises InvalidTokenError."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        header = read_header(token)
        if header.get("alg") not in _ALGORITHMS:
            raise InvalidTokenError("the token is not signed with a private key")
        try:
            claims = jwt.decode(token, self._find(header.get("kid")), algorithms=list(_ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise InvalidTokenError(f"the signature of the token is not valid ({type(error).__name__})") from None
        return dict(claims)

    def _find(self, key_id: object) -> "Key":
        """Return a key by its id; a token without an id may use the only key."""
        if key_id is None and len(self._keys) == 1:
            return self._keys[0][1]
        found = next((key for name, key in self._keys if name is not None and name == key_id), None)
        if found is None:
            raise UnknownKeyError(f"the token is signed with the unknown key {str(key_id)[:100]!r}")
        return found
