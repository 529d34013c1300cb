"""A small codec for versioned structures, driven by a table of fields.

Metadata records, the quorum's own messages and the coordinators' records are written with it. It reads our own logs
back, whose checksums were verified; so malformed bytes are a CorruptionError, not a client's mistake. Each structure is
a frozen dataclass whose `SCHEMA` lists its fields in wire order. Flexible versions (KIP-482) have compact lengths and
tagged fields; a schema says from which version on it is flexible.
"""

import struct
from dataclasses import MISSING, fields
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from rookery.base.errors import CorruptionError, ProtocolError
from rookery.base.types import Buffer
from rookery.protocol import wire


class Kind(NamedTuple):
    """How one type of field is read and written, in flexible versions and, where that differs, in plain ones."""

    read: wire.Reader
    write: wire.Writer
    read_plain: wire.Reader | None = None
    write_plain: wire.Writer | None = None

    def reader(self, flexible: bool) -> wire.Reader:
        return self.read if flexible or self.read_plain is None else self.read_plain

    def writer(self, flexible: bool) -> wire.Writer:
        return self.write if flexible or self.write_plain is None else self.write_plain


class Field(NamedTuple):
    """A field: the versions that have it, and its tag if it is written only where it differs from its default."""

    name: str
    kind: Kind
    since: int = 0
    tag: int | None = None
    until: int | None = None

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class Schema(NamedTuple):
    """The newest version that is known and its fields; older versions are read too."""

    version: int
    fields: tuple[Field, ...]
    flexible_from: int = 0


class Structure(Protocol):
    SCHEMA: ClassVar[Schema]


StructureT = TypeVar("StructureT", bound=Structure)


def encode(value: Structure, *, version: int | None = None) -> bytes:
    """The fields of `value` in `version`, or else in its newest."""
    out = bytearray()
    write_fields(out, value, version=version)
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


def write_fields(out: bytearray, value: Structure, *, version: int | None = None) -> None:
    schema = value.SCHEMA
    version = schema.version if version is None else version
    flexible = version >= schema.flexible_from
    tagged: list[tuple[int, bytes]] = []
    for field in schema.fields:
        if not field.is_in(version):
            continue
        item = getattr(value, field.name)
        if field.tag is None:
            field.kind.writer(flexible)(out, item)
        elif item != _default(type(value), field.name):
            content = bytearray()
            field.kind.write(content, item)
            tagged.append((field.tag, bytes(content)))
    if flexible:
        wire.write_tagged_fields(out, sorted(tagged))


def read_fields(kind: type[StructureT], data: Buffer, position: int, *, version: int) -> tuple[StructureT, int]:
    schema = kind.SCHEMA
    if not 0 <= version <= schema.version:
        raise ProtocolError(f"version {version} is not known")
    flexible = version >= schema.flexible_from
    values: dict[str, Any] = {}
    for field in schema.fields:
        if field.tag is None and field.is_in(version):
            values[field.name], position = field.kind.reader(flexible)(data, position)
    if flexible:
        tagged, position = wire.read_tagged_fields(data, position)
        for field in schema.fields:
            if field.tag in tagged:
                values[field.name], _ = field.kind.read(tagged[field.tag], 0)
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


_MARKER = struct.Struct(">b")

BOOL = _packed("?")
INT8 = _packed("b")
INT16 = _packed("h")
UINT16 = _packed("H")
INT32 = _packed("i")
INT64 = _packed("q")
STRING = Kind(wire.read_compact_string, wire.write_compact_string, wire.read_string, wire.write_string)
NULLABLE_STRING = Kind(
    wire.read_compact_nullable_string,
    wire.write_compact_nullable_string,
    wire.read_nullable_string,
    wire.write_nullable_string,
)
BYTES = Kind(
    wire.BYTES_READERS[True, False],
    wire.BYTES_WRITERS[True, False],
    wire.BYTES_READERS[False, False],
    wire.BYTES_WRITERS[False, False],
)
UUID = Kind(wire.read_uuid, wire.write_uuid)


def array(item: Kind) -> Kind:
    """A tuple of items, or None: whether null is allowed is up to the dataclass."""

    def reader(flexible: bool) -> wire.Reader:
        read_size = wire.read_compact_array_size if flexible else wire.read_array_size
        read_item = item.reader(flexible)

        def read(data: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
            count, position = read_size(data, position, 1)
            if count < 0:
                return None, position
            items = []
            for _ in range(count):
                value, position = read_item(data, position)
                items.append(value)
            return tuple(items), position

        return read

    def writer(flexible: bool) -> wire.Writer:
        write_size = wire.write_compact_array_size if flexible else wire.write_array_size
        write_item = item.writer(flexible)

        def write(out: bytearray, value: tuple[Any, ...] | None) -> None:
            write_size(out, -1 if value is None else len(value))
            for element in value or ():
                write_item(out, element)

        return write

    return Kind(reader(True), writer(True), reader(False), writer(False))


def structure(kind: type[Structure]) -> Kind:
    """A structure inside another; it is of its own newest version, whichever version holds it."""

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return read_fields(kind, data, position, version=kind.SCHEMA.version)

    return Kind(read, write_fields)


def nullable(item: Kind) -> Kind:
    """A structure that may be null, marked by a byte as flexible versions do."""

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        (marker,) = _MARKER.unpack_from(data, position)
        return (None, position + 1) if marker < 0 else item.read(data, position + 1)

    def write(out: bytearray, value: Any) -> None:
        out += _MARKER.pack(-1 if value is None else 1)
        if value is not None:
            item.write(out, value)

    return Kind(read, write)
