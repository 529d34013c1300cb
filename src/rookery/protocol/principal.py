"""The principal of a forwarded request, in Kafka's default form (DefaultPrincipalData): a version, then the fields."""

import struct
from typing import ClassVar, Final

from rookery.base.errors import CorruptionError, ProtocolError
from rookery.base.types import Buffer
from rookery.base.values import value_class
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema

_VERSION: Final = struct.Struct(">h")


@value_class
class Principal:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("type", structures.STRING),
            Field("name", structures.STRING),
            Field("token_authenticated", structures.BOOL),
        ),
    )
    type: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        """Return the principal as ACLs, `super.users` and the metadata log name it, for example User:alice."""
        return f"{self.type}:{self.name}"


# The principal of all clients that do not authenticate.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def encode_principal(principal: Principal) -> bytes:
    return _VERSION.pack(principal.SCHEMA.version) + structures.encode(principal)


def decode_principal(data: Buffer) -> Principal:
    """Decode what `encode_principal` writes. Raises ProtocolError if the bytes are malformed."""
    try:
        (version,) = _VERSION.unpack_from(data)
        return structures.decode(Principal, data, _VERSION.size, version=version)
    except (struct.error, CorruptionError) as error:
        raise ProtocolError(f"the principal of a forwarded request is malformed: {error}") from error


def parse_principal(text: str) -> Principal:
    """Parse a type and a name, separated by the first colon. Raises ValueError if the text has no colon."""
    kind, colon, name = text.partition(":")
    if not (kind and colon):
        raise ValueError(f"a principal is TYPE:NAME, for example User:alice, but not {text!r}")
    return Principal(kind, name)
