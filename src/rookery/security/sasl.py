"""What a client says to log in, by mechanism. Pure: whoever has the connection carries the bytes.

An exchange yields what the client says and is sent what the server answers:

    said = next(exchange)
    while True:
        try:
            said = exchange.send(await ask(said))
        except StopIteration:
            break

It ends when the client is satisfied, and raises SaslError if the server's answer makes no sense or shows that it does
not know the password. A server that refuses the client says so outside of the exchange, in the protocol around it.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError, RookeryError

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Exchange: TypeAlias = Generator[bytes, bytes, None]

# RFC 7628, section 3.1.
_SEPARATOR = b"\x01"
# The broker says how often to hash, and the event loop waits: half a second for these. Kafka's own go to 16,384.
_ITERATIONS_MAX = 1_000_000
_EXTENSION_NAME = re.compile("[A-Za-z]+")
_EXTENSION_VALUE = re.compile("[\x21-\x7e \t\r\n]+")
_EXTENSION_OPTIONS = ("extension_", "unsecuredLoginExtension_")


class SaslError(RookeryError):
    """The server did not keep to the mechanism."""


def plain(username: str, password: str) -> Exchange:
    """RFC 4616. The server has nothing to say but yes or no."""
    yield b"\x00".join((b"", username.encode(), password.encode()))


def scram(mechanism: str, username: str, password: str, nonce: str) -> Exchange:
    """RFC 5802 and 7677: neither side says the password, and both prove to know it. The nonce must be a new one."""
    try:
        import scramp
    except ImportError as error:
        raise ConfigError(f"sasl.mechanism={mechanism} needs scramp: {install_hint('security')}") from error
    client = scramp.ScramClient([mechanism], "replaced", "replaced", c_nonce=nonce)
    client.username = _AsItIs(username)
    client.password = _AsItIs(password)
    return _scram(client, scramp.ScramException)


def oauth_bearer(token: str, extensions: Mapping[str, str] | None = None) -> Exchange:
    """RFC 7628. A server that refuses the token first says why, in JSON, and wants a byte before it hangs up."""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    said = b"".join(f"{name}={value}".encode() + _SEPARATOR for name, value in pairs.items())
    reason = yield b"n,," + _SEPARATOR + said + _SEPARATOR
    if reason:
        yield _SEPARATOR
        raise SaslError(f"the broker refused the token and went on: {reason.decode(errors='replace')}")


def oauth_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """What a login module of OAUTHBEARER is told to say besides the token, for example to which cluster it wants."""
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
            raise ConfigError(f"sasl.jaas.config: the value of the extension {name} must be of printable ASCII signs")
    return extensions


class _AsItIs:
    """A name or password as Kafka takes it: its UTF-8. RFC 5802 wants SASLprep before, which makes others of some."""

    def __init__(self, text: str) -> None:
        self._text = text

    def escape(self) -> str:
        return self._text.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self._text.encode()


def _scram(client: Any, failure: type[Exception]) -> Exchange:
    try:
        challenge = yield client.get_client_first().encode()
        client.set_server_first(challenge.decode())
        if int(client.iterations) > _ITERATIONS_MAX:
            name, count = client.mechanism_name, client.iterations
            raise SaslError(f"the broker wants {count} iterations of {name}: at most {_ITERATIONS_MAX} are made")
        verdict = yield client.get_client_final().encode()
        client.set_server_final(verdict.decode())
    except (failure, UnicodeDecodeError) as error:
        raise SaslError(f"the broker's side of {client.mechanism_name} is wrong: {error}") from error
