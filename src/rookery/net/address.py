"""Parse bootstrap addresses as users write them: `host`, `host:port`, `[::1]:port`, or a comma-separated list."""

from typing import NamedTuple

from rookery.base.errors import ConfigError

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Return at least one address. Raises ConfigError if `text` holds none, or one that is malformed."""
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("the bootstrap server list is empty: give host:port")
    return addresses


def _parse(text: str) -> Address:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ConfigError(f"'{text}' is not a bootstrap server: give host:port, for example 127.0.0.1:{DEFAULT_PORT}")
    return Address(host, int(port) if port else DEFAULT_PORT)
