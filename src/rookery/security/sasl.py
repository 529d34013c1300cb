"""The client's side of the SASL mechanisms. Pure: the caller sends and receives the messages.

An exchange yields the client's messages, and the server's responses are sent into it:

    message = next(exchange)
    while True:
        try:
            message = exchange.send(await request(message))
        except StopIteration:
            break

It ends when the client has authenticated the server as far as the mechanism does. It raises SaslError if a response is
invalid or does not prove knowledge of the password. A server that rejects the client reports that outside of the
exchange, in the protocol that carries it.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError, RookeryError
from rookery.security.gss import GssContext, GssError

PLAIN = "PLAIN"
GSSAPI = "GSSAPI"
OAUTHBEARER = "OAUTHBEARER"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Exchange: TypeAlias = Generator[bytes, bytes, None]

# RFC 7628, section 3.1.
_SEPARATOR = b"\x01"
# RFC 4752: the byte of the security layer "none", and the largest message, which is 0 without a layer.
_NO_LAYER = b"\x01\x00\x00\x00"
# The broker chooses the number, and hashing blocks the event loop: half a second for this many. Kafka allows 16,384.
_ITERATIONS_MAX = 1_000_000
_TOKEN_EXTENSION = ",tokenauth=true"
_EXTENSION_NAME = re.compile("[A-Za-z]+")
_EXTENSION_VALUE = re.compile("[\x21-\x7e \t\r\n]+")
_EXTENSION_OPTIONS = ("extension_", "unsecuredLoginExtension_")


class SaslError(RookeryError):
    """The server violated the mechanism."""


class TransientSaslError(SaslError):
    """A login failed that may succeed a moment later: for example, no KDC answered."""


def plain(username: str, password: str) -> Exchange:
    """RFC 4616: a single message with the password. The server's response is empty."""
    yield b"\x00".join((b"", username.encode(), password.encode()))


def scram(mechanism: str, username: str, password: str, nonce: str, *, is_token: bool = False) -> Exchange:
    """RFC 5802 and 7677: both sides prove that they know the password without sending it.

    `nonce` must be used only once. `is_token`: the user is the id of a delegation token, the password its HMAC in
    base64 (KIP-48).
    """
    try:
        import scramp
    except ImportError as error:
        raise ConfigError(f"sasl.mechanism={mechanism} needs scramp: {install_hint('security')}") from error
    client = scramp.ScramClient([mechanism], "replaced", "replaced", c_nonce=nonce)
    client.username = _Unprepared(username)
    client.password = _Unprepared(password)
    return _scram(client, scramp.ScramException, _TOKEN_EXTENSION if is_token else "")


def oauth_bearer(token: str, extensions: Mapping[str, str] | None = None) -> Exchange:
    """RFC 7628. A server that rejects the token first sends a reason in JSON, and expects a byte before it closes."""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    fields = b"".join(f"{name}={value}".encode() + _SEPARATOR for name, value in pairs.items())
    reason = yield b"n,," + _SEPARATOR + fields + _SEPARATOR
    if reason:
        yield _SEPARATOR
        raise SaslError(f"the broker rejected the token and continued: {reason.decode(errors='replace')}")


def gssapi(context: GssContext) -> Exchange:
    """RFC 4752, without a security layer. The steps block: the context asks the KDC for a ticket.

    The name to act as is left out, which means that of the ticket.
    """
    try:
        response = yield context.step(b"")
        while not context.is_complete:
            response = yield context.step(response)
        offered = context.unwrap(response)
        if len(offered) != len(_NO_LAYER) or not offered[0] & _NO_LAYER[0]:
            raise SaslError("the broker requires a security layer of GSSAPI, which Kafka does not have")
        yield context.wrap(_NO_LAYER)
    except GssError as error:
        raise (TransientSaslError if error.is_transient else SaslError)(str(error)) from None


def oauth_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Return the extensions that the options of a login module add to the token, for example a logical cluster."""
    extensions = {
        name.removeprefix(prefix): value
        for prefix in _EXTENSION_OPTIONS
        for name, value in options.items()
        if name.startswith(prefix)
    }
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise ConfigError(f"sasl.jaas.config: an extension cannot be named {name!r}; use letters, but not auth")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(f"sasl.jaas.config: the value of the extension {name} must be printable ASCII")
    return extensions


def logs_in_with_token(options: Mapping[str, str]) -> bool:
    """Whether the options of a login module are a delegation token's, as for Java's ScramLoginModule."""
    return options.get("tokenauth", "").lower() == "true"


class _Unprepared:
    """A name or password in UTF-8, as Kafka uses it. RFC 5802 requires SASLprep, which would change some of them."""

    def __init__(self, text: str) -> None:
        self._text = text

    def escape(self) -> str:
        return self._text.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self._text.encode()


def _scram(client: Any, failure: type[Exception], extension: str) -> Exchange:
    try:
        first = client.get_client_first() + extension
        # Both sides sign the message, so that the extension belongs to what scramp remembers.
        client.client_first_bare += extension
        server_first = yield first.encode()
        client.set_server_first(server_first.decode())
        if int(client.iterations) > _ITERATIONS_MAX:
            name, count = client.mechanism_name, client.iterations
            raise SaslError(f"the broker requires {count} iterations of {name}: at most {_ITERATIONS_MAX} are allowed")
        server_final = yield client.get_client_final().encode()
        client.set_server_final(server_final.decode())
    except (failure, UnicodeDecodeError) as error:
        raise SaslError(f"the broker's message of {client.mechanism_name} is invalid: {error}") from error
