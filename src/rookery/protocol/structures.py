"""A small codec for versioned structures, driven by a table of fields.

Metadata records, the quorum's own messages and the coordinators' records are written with it. It reads our own logs
back, whose checksums were verified; so malformed bytes are a CorruptionError, not a client's mistake. Each structure is
a frozen dataclass whose `SCHEMA` lists its fields in wire order. Flexible versions (KIP-482) have compact lengths and
tagged fields; a schema says from which version on it is flexible.

A start replays every record that a node has, so what a structure and a version need is worked out once (`_Plan`), and
values that repeat in thousands of records, such as ids and lists of replicas, are made once and shared.
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

# How many repeating values are remembered of each kind.
_SHARED_VALUES_MAX = 1024
_UUID_SIZE = 16


class Kind(NamedTuple):
    """How one type of field is read and written, in flexible versions and, where that differs, in plain ones."""

    read: wire.Reader
    write: wire.Writer
    read_plain: wire.Reader | None = None
    write_plain: wire.Writer | None = None
    # In bytes, where all values have the same.
    size: int | None = None

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


class _Plan(NamedTuple):
    """What reading and writing one version of a structure needs."""

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
        # A tag of a later version is understood, too.
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
        raise ProtocolError(f"version {version} is not known")
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
    """A tuple of items, or None: whether null is allowed is up to the dataclass."""

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
    """For items of one size: equal bytes give the same tuple."""

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
