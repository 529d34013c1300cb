"""A small codec for versioned structures, driven by a table of fields.

It is used for metadata records, the quorum's messages and the coordinators' records. It reads the node's own logs,
whose checksums were verified, so that malformed bytes are a CorruptionError and not a client's mistake. Each structure
is a frozen dataclass whose `SCHEMA` lists its fields in wire order. Flexible versions (KIP-482) have compact lengths
and tagged fields; a schema has the first flexible version.

At start every record of a node is replayed. So the readers and writers of a structure and version are looked up once
(`_Plan`), and values that repeat in thousands of records, such as ids and replica lists, are created once and shared.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from rookery.base.errors import CorruptionError, ProtocolError
from rookery.base.types import Buffer
from rookery.protocol import wire

# The size of each cache of repeating values.
_SHARED_VALUES_MAX = 1024
_UUID_SIZE = 16


class Kind(NamedTuple):
    """The reader and writer of one type of field, in flexible versions and, if they differ, in plain ones."""

    read: wire.Reader
    write: wire.Writer
    read_plain: wire.Reader | None = None
    write_plain: wire.Writer | None = None
    # The size of a value in bytes, if all values have the same size.
    size: int | None = None

    def reader(self, flexible: bool) -> wire.Reader:
        return self.read if flexible or self.read_plain is None else self.read_plain

    def writer(self, flexible: bool) -> wire.Writer:
        return self.write if flexible or self.write_plain is None else self.write_plain


class Field(NamedTuple):
    """A field, and the versions that have it. A field with a tag is written only if it differs from its default."""

    name: str
    kind: Kind
    since: int = 0
    tag: int | None = None
    until: int | None = None

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class Schema(NamedTuple):
    """The newest known version, and the fields of it and of older versions."""

    version: int
    fields: tuple[Field, ...]
    flexible_from: int = 0


class Structure(Protocol):
    SCHEMA: ClassVar[Schema]


StructureT = TypeVar("StructureT", bound=Structure)


def encode(value: Structure, *, version: int | None = None) -> bytes:
    """Encode the fields of `value` in `version`, or in the newest version if it is None."""
    out = bytearray()
    write_fields(out, value, version=version)
    return bytes(out)


def decode(kind: type[StructureT], data: Buffer, position: int = 0, *, version: int | None = None) -> StructureT:
    """Decode a value. Raises CorruptionError if it is malformed or does not end at the end of `data`."""
    try:
        value, end = read_fields(kind, data, position, version=kind.SCHEMA.version if version is None else version)
    except (ProtocolError, *wire.MALFORMED) as error:
        raise CorruptionError(f"{kind.__name__} is malformed: {error}") from error
    if end != len(data):
        raise CorruptionError(f"{len(data) - end} bytes are left after a {kind.__name__}")
    return value


class _Plan(NamedTuple):
    """The readers and writers of one version of a structure."""

    readers: tuple[tuple[str, wire.Reader], ...]
    writers: tuple[tuple[str, wire.Writer], ...]
    flexible: bool
    tagged_readers: dict[int, tuple[str, wire.Reader]]
    # Tag, name, default and writer, in the order of the tags.
    tagged_writers: tuple[tuple[int, str, Any, wire.Writer], ...]


@cache
def _plan(kind: type[Structure], version: int) -> _Plan:
    schema = kind.SCHEMA
    flexible = version >= schema.flexible_from
    present = [field for field in schema.fields if field.is_in(version)]
    plain = [field for field in present if field.tag is None]
    tagged = sorted((field.tag, field) for field in present if field.tag is not None)
    return _Plan(
        readers=tuple((field.name, field.kind.reader(flexible)) for field in plain),
        writers=tuple((field.name, field.kind.writer(flexible)) for field in plain),
        flexible=flexible,
        # Tagged fields of later versions are read, too.
        tagged_readers={
            field.tag: (field.name, field.kind.read) for field in schema.fields if field.tag is not None and flexible
        },
        tagged_writers=tuple((tag, field.name, _default(kind, field.name), field.kind.write) for tag, field in tagged),
    )


def write_fields(out: bytearray, value: Structure, *, version: int | None = None) -> None:
    plan = _plan(type(value), value.SCHEMA.version if version is None else version)
    for name, write in plan.writers:
        write(out, getattr(value, name))
    if plan.flexible:
        tagged: list[tuple[int, bytearray]] = []
        for tag, name, default, write in plan.tagged_writers:
            item = getattr(value, name)
            if item != default:
                content = bytearray()
                write(content, item)
                tagged.append((tag, content))
        wire.write_tagged_fields(out, tagged)


def read_fields(kind: type[StructureT], data: Buffer, position: int, *, version: int) -> tuple[StructureT, int]:
    if not 0 <= version <= kind.SCHEMA.version:
        raise ProtocolError(f"unknown version {version}")
    plan = _plan(kind, version)
    values: dict[str, Any] = {}
    for name, read in plan.readers:
        values[name], position = read(data, position)
    if plan.flexible:
        tagged, position = wire.read_tagged_fields(data, position)
        for tag, content in tagged.items():
            known = plan.tagged_readers.get(tag)
            if known is not None:
                name, read = known
                values[name], _ = read(content, 0)
    return kind(**values), position


def _default(kind: type[Structure], name: str) -> Any:
    for field in fields(kind):  # type: ignore[arg-type]  # every structure is a dataclass
        if field.name == name:
            assert field.default is not MISSING, f"the tagged field {name} needs a default"
            return field.default
    raise AttributeError(name)


def _packed(code: str) -> Kind:
    form = struct.Struct(">" + code)
    unpack_from, pack, size = form.unpack_from, form.pack, form.size

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return unpack_from(data, position)[0], position + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Kind(read, write, size=size)


@lru_cache(maxsize=_SHARED_VALUES_MAX)
def _uuid_of(raw: bytes) -> uuid.UUID:
    return wire.read_uuid(raw, 0)[0]


def _read_uuid(data: Buffer, position: int) -> tuple[uuid.UUID, int]:
    end = wire.end_of(data, position, _UUID_SIZE)
    return _uuid_of(bytes(data[position:end])), end


_MARKER = struct.Struct(">b")

BOOL = _packed("?")
INT8 = _packed("b")
INT16 = _packed("h")
UINT16 = _packed("H")
INT32 = _packed("i")
INT64 = _packed("q")
FLOAT64 = _packed("d")
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
UUID = Kind(_read_uuid, wire.write_uuid, size=_UUID_SIZE)


def array(item: Kind) -> Kind:
    """Return the kind of an array, as a tuple of items or None; the dataclass says whether None is allowed."""

    def reader(flexible: bool) -> wire.Reader:
        read_size = wire.read_compact_array_size if flexible else wire.read_array_size
        read_item = item.reader(flexible)
        if item.size is not None:
            return _shared_array_reader(read_size, read_item, item.size)

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


def _shared_array_reader(
    read_size: Callable[[Buffer, int, int], tuple[int, int]], read_item: wire.Reader, item_size: int
) -> wire.Reader:
    """Return a reader for arrays of items with a fixed size; equal bytes give the same tuple."""

    @lru_cache(maxsize=_SHARED_VALUES_MAX)
    def items_of(raw: bytes) -> tuple[Any, ...]:
        return tuple(read_item(raw, position)[0] for position in range(0, len(raw), item_size))

    def read(data: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_size(data, position, item_size)
        if count <= 0:
            return (None if count < 0 else ()), position
        end = position + count * item_size
        return items_of(bytes(data[position:end])), end

    return read


def structure(kind: type[Structure]) -> Kind:
    """Return the kind of a nested structure. It always has its newest version, whatever the outer structure has."""

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return read_fields(kind, data, position, version=kind.SCHEMA.version)

    return Kind(read, write_fields)


def nullable(item: Kind) -> Kind:
    """Return the kind of a structure that may be null. As in flexible versions, a byte before it says so."""

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        (marker,) = _MARKER.unpack_from(data, position)
        return (None, position + 1) if marker < 0 else item.read(data, position + 1)

    def write(out: bytearray, value: Any) -> None:
        out += _MARKER.pack(-1 if value is None else 1)
        if value is not None:
            item.write(out, value)

    return Kind(read, write)
