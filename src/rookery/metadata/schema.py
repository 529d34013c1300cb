"""A small codec for versioned structures with tagged fields (KIP-482), driven by a table of fields.

Metadata records and the quorum's own messages are written with it. It reads our own log back, whose checksums were
verified; so malformed bytes are a CorruptionError, not a client's mistake. Each structure is a frozen dataclass whose
`SCHEMA` lists its fields in wire order.
"""

import struct
from dataclasses import MISSING, fields
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from rookery.base.errors import CorruptionError, ProtocolError
from rookery.base.types import Buffer
from rookery.protocol import wire


class Kind(NamedTuple):
    """How one type of field is read and written."""

    read: wire.Reader
    write: wire.Writer


class Field(NamedTuple):
    """A field: since which version it is there, and its tag if it is written only when it differs from its default."""

    name: str
    kind: Kind
    since: int = 0
    tag: int | None = None


class Schema(NamedTuple):
    """The newest version that is written and its fields; older versions are read too."""

    version: int
    fields: tuple[Field, ...]


class Structure(Protocol):
    SCHEMA: ClassVar[Schema]


StructureT = TypeVar("StructureT", bound=Structure)


def encode(value: Structure) -> bytes:
    """The fields of `value` in its newest version."""
    out = bytearray()
    write_fields(out, value)
    return bytes(out)


def decode(kind: type[StructureT], data: Buffer, position: int = 0, *, version: int | None = None) -> StructureT:
    """A value that must fill `data` from `position` to its end."""
    try:
        value, end = read_fields(kind, data, position, version=kind.SCHEMA.version if version is None else version)
    except (ProtocolError, *wire.MALFORMED) as error:
        raise CorruptionError(f"{kind.__name__} is malformed: {error}") from error
    if end != len(data):
        raise CorruptionError(f"{len(data) - end} bytes are left behind a {kind.__name__}")
    return value


def write_fields(out: bytearray, value: Structure) -> None:
    tagged: list[tuple[int, bytes]] = []
    for field in value.SCHEMA.fields:
        item = getattr(value, field.name)
        if field.tag is None:
            field.kind.write(out, item)
        elif item != _default(type(value), field.name):
            content = bytearray()
            field.kind.write(content, item)
            tagged.append((field.tag, bytes(content)))
    wire.write_varint(out, len(tagged))
    for tag, written in sorted(tagged):
        wire.write_varint(out, tag)
        wire.write_varint(out, len(written))
        out += written


def read_fields(kind: type[StructureT], data: Buffer, position: int, *, version: int) -> tuple[StructureT, int]:
    if not 0 <= version <= kind.SCHEMA.version:
        raise ProtocolError(f"version {version} is not known")
    values: dict[str, Any] = {}
    tags: dict[int, Field] = {}
    for field in kind.SCHEMA.fields:
        if field.tag is not None:
            tags[field.tag] = field
        elif field.since <= version:
            values[field.name], position = field.kind.read(data, position)
    count, position = wire.read_varint(data, position)
    for _ in range(count):
        tag, position = wire.read_varint(data, position)
        size, position = wire.read_varint(data, position)
        end = wire.end_of(data, position, size)
        if tag in tags:
            values[tags[tag].name], position = tags[tag].kind.read(data, position)
        position = end
    return kind(**values), position


def _default(kind: type[Structure], name: str) -> Any:
    for field in fields(kind):  # type: ignore[arg-type]  # every structure is a dataclass
        if field.name == name:
            assert field.default is not MISSING, f"the tagged field {name} needs a default"
            return field.default
    raise AttributeError(name)


def _packed(code: str) -> Kind:
    form = struct.Struct(">" + code)

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return form.unpack_from(data, position)[0], position + form.size

    def write(out: bytearray, value: Any) -> None:
        out += form.pack(value)

    return Kind(read, write)


BOOL = _packed("?")
INT8 = _packed("b")
INT16 = _packed("h")
UINT16 = _packed("H")
INT32 = _packed("i")
INT64 = _packed("q")
STRING = Kind(wire.read_compact_string, wire.write_compact_string)
NULLABLE_STRING = Kind(wire.read_compact_nullable_string, wire.write_compact_nullable_string)
UUID = Kind(wire.read_uuid, wire.write_uuid)


def array(item: Kind) -> Kind:
    """A tuple of items, or None: whether null is allowed is up to the dataclass."""

    def read(data: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = wire.read_compact_array_size(data, position, 1)
        if count < 0:
            return None, position
        items = []
        for _ in range(count):
            value, position = item.read(data, position)
            items.append(value)
        return tuple(items), position

    def write(out: bytearray, value: tuple[Any, ...] | None) -> None:
        wire.write_compact_array_size(out, -1 if value is None else len(value))
        for element in value or ():
            item.write(out, element)

    return Kind(read, write)


def structure(kind: type[Structure]) -> Kind:
    """A structure inside another; it is of its own newest version, whichever version holds it."""

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return read_fields(kind, data, position, version=kind.SCHEMA.version)

    return Kind(read, write_fields)
