"""The mechanism PLAIN (RFC 4616): the client sends its password. The users are options of `sasl.jaas.config`. Pure."""

import hmac
from collections.abc import Mapping
from typing import Final

from rookery.base.values import value_class
from rookery.protocol.principal import Principal
from rookery.security.sasl_server.exchange import Identity, LoginError, ServerExchange

USER_PREFIX: Final = "user_"
_SEPARATOR: Final = b"\x00"
_FIELDS: Final = 3


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords by user, from options such as `user_alice="secret"`."""
    return {name.removeprefix(USER_PREFIX): value for name, value in options.items() if name.startswith(USER_PREFIX)}


@value_class
class PlainMechanism:
    passwords: Mapping[str, str]

    @property
    def name(self) -> str:
        return "PLAIN"

    @property
    def is_slow(self) -> bool:
        return False

    def begin(self) -> ServerExchange:
        message = yield b""
        fields = message.split(_SEPARATOR)
        if len(fields) != _FIELDS:
            raise LoginError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(fields), _FIELDS + 1)}")
        try:
            authorization_id, user, password = (field.decode() for field in fields)
        except UnicodeDecodeError:
            raise LoginError("Authentication failed: Invalid username or password") from None
        if not user:
            raise LoginError("Authentication failed: username not specified")
        if not password:
            raise LoginError("Authentication failed: password not specified")
        expected = self.passwords.get(user)
        # Always a comparison of the whole password: the time must not tell whether the user exists.
        is_equal = hmac.compare_digest(password.encode(), (password + "x" if expected is None else expected).encode())
        if not is_equal:
            raise LoginError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginError(text)
        return Identity(principal=Principal("User", user))
