"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding. Pure.

The server never hashes a password: it has the stored keys. A user that does not exist gets a salt that is derived from
its name with a secret of this node, and fails in the same step, with the same text, as one with a wrong password.

A client with the extension `tokenauth=true` logs in with a delegation token: its user is the token's id, its password
the token's HMAC.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, Protocol

from rookery.base.types import TimestampMs
from rookery.base.values import value_class
from rookery.protocol.principal import Principal
from rookery.security.sasl_server.exchange import Identity, InvalidCredentialsError, LoginError, ServerExchange
from rookery.security.scram_credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism

_NAME: Final = r"((?:[^=,]|=2C|=3D)*)"
# Printable ASCII without the comma.
_NONCE: Final = r"([\x21-\x2b\x2d-\x7e]+)"
_EXTENSIONS: Final = r"((?:,[A-Za-z]+=[^,]+)*)"
_FIRST: Final = re.compile(rf"n,(?:a={_NAME})?,(n={_NAME},r={_NONCE}{_EXTENSIONS})", re.DOTALL)
_FINAL: Final = re.compile(rf"(c=([A-Za-z0-9+/=]+),r={_NONCE}{_EXTENSIONS}),p=([A-Za-z0-9+/=]+)", re.DOTALL)
_TOKEN_EXTENSION: Final = "tokenauth"
_MESSAGE_BYTES_MAX: Final = 16_384


@value_class(kw_only=True)
class TokenCredential:
    """A delegation token as a user of SCRAM: `owner` is the principal that logs in."""

    credential: ScramCredential
    owner: Principal
    expires_ms: TimestampMs


class CredentialSource(Protocol):
    """Finds the credentials of users and delegation tokens; None if there are none."""

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None: ...

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None: ...


class NoCredentials:
    """A `CredentialSource` without users."""

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return None

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        return None


@value_class(kw_only=True)
class ScramServer:
    """`new_nonce` returns a random text; `secret` is random and stays the same while the node runs."""

    mechanism: ScramMechanism
    credentials: CredentialSource
    new_nonce: Callable[[], str]
    secret: bytes

    @property
    def name(self) -> str:
        return self.mechanism.mechanism_name

    @property
    def is_slow(self) -> bool:
        return False

    def begin(self) -> ServerExchange:
        first = _match(_FIRST, (yield b""))
        authorization_id, user = _unescape(first[1] or ""), _unescape(first[3])
        identity, credential = self._find(user, is_token=_has_token(first[5]))
        # Also for a known user: without it, a login would take a little less time if the user exists.
        pretended = self._pretend(user)
        found = credential or pretended
        nonce = first[4] + self.new_nonce()
        salt = base64.b64encode(found.salt).decode()
        server_first = f"r={nonce},s={salt},i={found.iterations}"
        final = _match(_FINAL, (yield server_first.encode()))
        message = f"{first[2]},{server_first},{final[1]}".encode()
        is_proven = self._is_proven(found, message, final[5])
        if not (is_proven and credential is not None and identity is not None):
            raise InvalidCredentialsError(f"{user!r} does not exist or has another password")
        if not hmac.compare_digest(final[3], nonce) or _decode(final[2]) not in (b"n,,", f"n,a={first[1]},".encode()):
            raise InvalidCredentialsError("the final message does not belong to the first one")
        if authorization_id not in ("", user):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginError(text)
        signature = hmac.digest(found.server_key, message, self.mechanism.digest)
        return Identity(
            principal=identity.principal,
            response=b"v=" + base64.b64encode(signature),
            expires_ms=identity.expires_ms,
        )

    def _find(self, user: str, *, is_token: bool) -> tuple[Identity | None, ScramCredential | None]:
        if is_token:
            token = self.credentials.token(user, self.mechanism)
            if token is None:
                return None, None
            principal = Principal(token.owner.type, token.owner.name, token_authenticated=True)
            return Identity(principal=principal, expires_ms=token.expires_ms), token.credential
        return Identity(principal=Principal("User", user)), self.credentials.user(user, self.mechanism)

    def _pretend(self, user: str) -> ScramCredential:
        """Return a credential that no password has. Its salt is the same for each login of this user."""
        digest = self.mechanism.digest
        seed = hmac.digest(self.secret, user.encode(errors="surrogatepass"), digest)
        key = hmac.digest(self.secret, seed, digest)
        return ScramCredential(salt=seed[:24], stored_key=key, server_key=key, iterations=MIN_ITERATIONS)

    def _is_proven(self, credential: ScramCredential, message: bytes, proof_text: str) -> bool:
        proof = _decode(proof_text)
        signature = hmac.digest(credential.stored_key, message, self.mechanism.digest)
        if len(proof) != len(signature):
            return False
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self.mechanism.digest, client_key).digest()
        return hmac.compare_digest(stored_key, credential.stored_key)


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    # A pattern with alternatives is matched in linear time, but with a stack of its own: no hostile megabytes.
    if len(message) <= _MESSAGE_BYTES_MAX:
        try:
            found = pattern.fullmatch(message.decode())
        except UnicodeDecodeError:
            found = None
        if found is not None:
            return found
    raise InvalidCredentialsError("a message has not the form of SCRAM")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _has_token(extensions: str) -> bool:
    pairs = dict(pair.split("=", 1) for pair in extensions.split(",") if pair)
    return pairs.get(_TOKEN_EXTENSION, "").lower() == "true"


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidCredentialsError("a message has not the form of SCRAM") from None
