"""The mechanism OAUTHBEARER (RFC 7628): the client sends a token of an identity provider. Pure.

A client with an invalid token gets a JSON document, answers it with one byte, and then gets the error.
"""

import re
from collections.abc import Callable
from typing import Final

from rookery.base.values import value_class
from rookery.protocol.principal import Principal
from rookery.security.sasl_server.exchange import Identity, InvalidCredentialsError, LoginError, ServerExchange
from rookery.security.token_validation import TOKEN_BYTES_MAX, BearerToken, InvalidTokenError

_SEPARATOR: Final = b"\x01"
_HEADER: Final = re.compile(rb"n,(?:a=((?:[^=,\x00]|=2C|=3D)+))?,")
_PAIR: Final = re.compile(rb"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_AUTHORIZATION: Final = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_MESSAGE_BYTES_MAX: Final = 2 * TOKEN_BYTES_MAX


@value_class
class OAuthBearerMechanism:
    """`validate` checks a token, with its signature. Raises InvalidTokenError."""

    validate: Callable[[str], BearerToken]

    @property
    def name(self) -> str:
        return "OAUTHBEARER"

    @property
    def is_slow(self) -> bool:
        # Verifying a signature takes up to a millisecond.
        return True

    def begin(self) -> ServerExchange:
        authorization_id, text = _parse((yield b""))
        try:
            token = self.validate(text)
        except InvalidTokenError as error:
            failure = '{"status":"invalid_token"}'
            if (yield failure.encode()) != _SEPARATOR:
                raise InvalidCredentialsError(str(error)) from None
            raise LoginError(failure, str(error)) from None
        if authorization_id not in ("", token.subject):
            raise LoginError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({token.subject})"
            )
        return Identity(principal=Principal("User", token.subject), expires_ms=token.expires_ms)


def _parse(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of the client's first message."""
    fields = message[:_MESSAGE_BYTES_MAX].split(_SEPARATOR)
    header = _HEADER.fullmatch(fields[0])
    pairs = [_PAIR.fullmatch(field) for field in fields[1:-2]]
    # The message ends with two separators.
    if header is None or len(fields) < 3 or fields[-2:] != [b"", b""] or None in pairs:
        raise InvalidCredentialsError("the message has not the form of OAUTHBEARER")
    values = {pair[1]: pair[2] for pair in pairs if pair is not None}
    found = _AUTHORIZATION.fullmatch(values.get(b"auth", b"").decode())
    if found is None:
        raise InvalidCredentialsError("the message has no bearer token")
    authorization_id = (header[1] or b"").decode(errors="replace").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, found[1]
