"""Encodes and decodes the messages of every API and version. No other module imports kio.

The schema is kio's dataclasses, which are generated from Kafka's definitions. They are imported one version at a time,
at its first use, and compiled into readers and writers of this module: kio's native decoder aborts the process if an
array length is absurd, and its encoder is slow (docs/decisions/0004). The tests use kio's reader and writer as oracle.

Fields of a `Message`:
- names are kio's, except that a duration or a point in time `x` is the plain integer `x_ms`;
- an error code is an integer; a UUID is never None, the zero UUID stands for "none";
- arrays are lists, null arrays and null structs None; bytes and records are `bytes`, copied out of the request.

Decoding raises only ProtocolError. Like Kafka, it ignores bytes after the message. A request may have at most
`items_max` array items, because the smallest item takes two bytes on the wire and hundreds in memory. Encoding takes
the fields of the version from the message, or else their declared defaults. A field that has neither is a bug and
raises AttributeError.
"""

import dataclasses
import datetime
import struct
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from importlib import import_module
from operator import itemgetter
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, cast, get_args, get_origin

from rookery.base.bounds import REQUEST_ITEMS_MAX
from rookery.base.errors import ProtocolError, UnsupportedVersionError
from rookery.base.imports import module_replaced
from rookery.base.types import NO_TIMESTAMP, NO_TOPIC_ID, Buffer
from rookery.protocol import wire
from rookery.protocol.api import ApiKey, is_defined
from rookery.protocol.message import FrozenMessage, Message, Struct
from rookery.protocol.wire import MALFORMED, Reader, Writer

_Fields: TypeAlias = dict[str, Any]
# Reads one or more fields into a message's dict, returns the next position.
_ReadStep: TypeAlias = Callable[[Buffer, int, _Fields], int]
_WriteStep: TypeAlias = Callable[[bytearray, _Fields], None]

_FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_TIME_TYPES = {"timedelta_i32", "timedelta_i64", "datetime_i64"}
_MILLISECOND = datetime.timedelta(milliseconds=1)


def decode_request(
    api_key: int, version: int, data: Buffer, position: int = 0, items_max: int = REQUEST_ITEMS_MAX
) -> Message:
    return _decode(_request_codec(api_key, version), data, position, items_max)


def decode_request_in_worker(api_key: int, version: int, data: Buffer, position: int, items_max: int) -> Message:
    """Decode a request outside of the event loop's thread; at most one thread may call this at a time.

    It uses other codecs than `decode_request`: a codec counts the array items of its message, and two threads that
    share it would count each other's, so that valid requests would be rejected.
    """
    return _decode(_worker_codec(api_key, version), data, position, items_max)


def decode_response(api_key: int, version: int, data: Buffer, position: int = 0) -> Message:
    return _decode(_response_codec(api_key, version), data, position, sys.maxsize)


def encode_request(api_key: int, version: int, message: Struct) -> bytes:
    return _encode(_request_codec(api_key, version), message)


def encode_response(api_key: int, version: int, message: Struct) -> bytes:
    return _encode(_response_codec(api_key, version), message)


class FieldShape(NamedTuple):
    """The schema of one field, for code that builds messages of any API.

    `fields` are the fields of a struct or of an array's structs, else empty. `kind` is Kafka's name of the type, empty
    for structs. `make_default` is None if the field is required. `struct_name` is empty unless the field has structs.
    """

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    make_default: Callable[[], Any] | None
    fields: "tuple[FieldShape, ...]"
    struct_name: str


@cache
def request_shape(api_key: int, version: int) -> tuple[FieldShape, ...]:
    return _shape_of(_load_schema(api_key, version, "request"))


@cache
def response_shape(api_key: int, version: int) -> tuple[FieldShape, ...]:
    return _shape_of(_load_schema(api_key, version, "response"))


def _shape_of(schema: Any) -> tuple[FieldShape, ...]:
    return tuple(_field_shape(field) for field in _fields(schema))


def _field_shape(field: "dataclasses.Field[Any]") -> FieldShape:
    kind = _kafka_type(field)
    annotation, is_nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])
    is_struct = dataclasses.is_dataclass(annotation)
    fields, struct_name = (_shape_of(annotation), annotation.__name__) if is_struct else ((), "")
    default = _default_of(field, kind, tagged="tag" in field.metadata)
    return FieldShape(_name_of(field), kind, is_array, is_nullable, default, fields, struct_name)


class _Type(NamedTuple):
    """A compiled type. `format` is its format in `struct` if it has a fixed width, else empty."""

    read: Reader
    write: Writer
    size_min: int
    format: str = ""


class _Field(NamedTuple):
    name: str
    type: _Type
    tag: int | None
    # Creates a default for each message, because messages are mutable; None if the field is required.
    default: Callable[[], Any] | None


class _Budget:
    """The number of array items that the current message may still have; shared by all readers of a codec."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = 0

    def spend(self, count: int) -> None:
        self.items -= count
        if self.items < 0:
            raise ProtocolError("a message with too many array items")


class _Codec(NamedTuple):
    """A compiled message."""

    type: _Type
    name: str
    budget: _Budget


def _decode(codec: _Codec, data: Buffer, position: int, items_max: int) -> Message:
    codec.budget.items = items_max
    try:
        message, _ = codec.type.read(data, position)
    except MALFORMED as error:
        raise wire.malformed(codec.name, error) from error
    return cast(Message, message)


def _encode(codec: _Codec, message: Struct) -> bytes:
    out = bytearray()
    codec.type.write(out, message)
    return bytes(out)


@cache
def _request_codec(api_key: int, version: int) -> _Codec:
    return _compile(_load_schema(api_key, version, "request"))


@cache
def _worker_codec(api_key: int, version: int) -> _Codec:
    return _compile(_load_schema(api_key, version, "request"))


@cache
def _response_codec(api_key: int, version: int) -> _Codec:
    return _compile(_load_schema(api_key, version, "response"))


def _compile(schema: Any) -> _Codec:
    budget = _Budget()
    return _Codec(_compile_struct(schema, budget), schema.__name__, budget)


def _load_schema(api_key: int, version: int, direction: str) -> Any:
    """Return kio's dataclass of a message."""
    if not is_defined(api_key, version):
        raise UnsupportedVersionError(f"API key {api_key} has no version {version}")
    module = _import_schema(f"kio.schema.{ApiKey(api_key).name.lower()}.v{version}.{direction}")
    schemas: list[Any] = [value for value in vars(module).values() if dataclasses.is_dataclass(value)]
    for schema in schemas:
        if schema.__type__.name == direction:
            return schema
    raise AssertionError(f"{module.__name__} has no {direction}")


def _import_schema(name: str) -> Any:
    """Import a module of kio without hypothesis: if that is installed, kio registers strategies, which takes 0.2 s."""
    with module_replaced("hypothesis", None):
        return import_module(name)


def _compile_struct(schema: Any, budget: _Budget) -> _Type:
    fields = [_compile_field(field, schema.__flexible__, budget) for field in _fields(schema)]
    plain = [field for field in fields if field.tag is None]
    runs = _group_runs(plain)
    read_steps = [_read_step(run) for run in runs]
    write_steps = [_write_step(run, schema.__name__) for run in runs]
    size_min = sum(field.type.size_min for field in plain)
    if schema.__flexible__:
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        read_steps.append(_tagged_read_step(tagged))
        write_steps.append(_tagged_write_step(tagged))
        size_min += 1
    return _Type(_struct_reader(read_steps), _struct_writer(write_steps), size_min)


def _struct_reader(steps: list[_ReadStep]) -> Reader:
    def read(data: Buffer, position: int) -> tuple[Message, int]:
        message = Message()
        fields = message.__dict__
        for step in steps:
            position = step(data, position, fields)
        return message, position

    return read


def _struct_writer(steps: list[_WriteStep]) -> Writer:
    def write(out: bytearray, message: Message) -> None:
        if type(message) is FrozenMessage:
            # `write` identifies the version: the bytes of another version must not be used.
            if message.encoder is not write:
                message.encoded, message.encoder = _encode_fields(steps, message), write
            out += message.encoded
            return
        fields = message.__dict__
        for step in steps:
            step(out, fields)

    return write


def _encode_fields(steps: list[_WriteStep], message: Message) -> bytes:
    out = bytearray()
    for step in steps:
        step(out, message.__dict__)
    return bytes(out)


def _group_runs(fields: list[_Field]) -> list[list[_Field]]:
    """Group neighbouring fixed-width fields, which are packed in one call; every other field is its own group."""
    runs: list[list[_Field]] = []
    for field in fields:
        if field.type.format and runs and runs[-1][-1].type.format:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _read_step(run: list[_Field]) -> _ReadStep:
    if not run[0].type.format:
        return _single_read_step(run[0].name, run[0].type.read)
    packed = struct.Struct(">" + "".join(field.type.format for field in run))
    names = [field.name for field in run]
    unpack, size = packed.unpack_from, packed.size

    def step(data: Buffer, position: int, fields: _Fields) -> int:
        fields.update(zip(names, unpack(data, position), strict=True))
        return position + size

    return step


def _single_read_step(name: str, read: Reader) -> _ReadStep:
    def step(data: Buffer, position: int, fields: _Fields) -> int:
        fields[name], position = read(data, position)
        return position

    return step


def _write_step(run: list[_Field], owner: str) -> _WriteStep:
    if not run[0].type.format or len(run) == 1:
        return _single_write_step(run[0], owner)
    pack = struct.Struct(">" + "".join(field.type.format for field in run)).pack
    take_all = itemgetter(*(field.name for field in run))

    def step(out: bytearray, fields: _Fields) -> None:
        try:
            values = take_all(fields)
        except KeyError:
            values = [_take(field, fields, owner) for field in run]
        out += pack(*values)

    return step


def _single_write_step(field: _Field, owner: str) -> _WriteStep:
    name, write = field.name, field.type.write

    def step(out: bytearray, fields: _Fields) -> None:
        write(out, fields[name] if name in fields else _take(field, fields, owner))

    return step


def _take(field: _Field, fields: _Fields, owner: str) -> Any:
    if field.name in fields:
        return fields[field.name]
    if field.default is None:
        raise AttributeError(f"{owner}.{field.name} is not set")
    return field.default()


def _tagged_read_step(tagged: list[_Field]) -> _ReadStep:
    if not tagged:
        return _skip_tagged_step
    defaults = [(field.name, field.default or _no_default) for field in tagged]
    by_tag = {field.tag: field for field in tagged}

    def step(data: Buffer, position: int, fields: _Fields) -> int:
        for name, make_default in defaults:
            fields[name] = make_default()
        count, position = wire.read_tag_count(data, position)
        for _ in range(count):
            tag, position = wire.read_varint(data, position)
            size, position = wire.read_varint(data, position)
            end = wire.end_of(data, position, size)
            if field := by_tag.get(tag):
                fields[field.name], position = field.type.read(data, position)
                if position != end:
                    raise ProtocolError(f"tagged field {tag} does not have the {size} bytes that it claims")
            position = end
        return position

    return step


def _skip_tagged_step(data: Buffer, position: int, _: _Fields) -> int:
    return position + 1 if data[position] == 0 else wire.skip_tagged_fields(data, position)


def _no_tagged_step(out: bytearray, _: _Fields) -> None:
    out.append(0)


def _no_default() -> Any:
    raise AssertionError("a tagged field has no default")


def _tagged_write_step(tagged: list[_Field]) -> _WriteStep:
    """Return the step that writes tagged fields, without those that have their default value.

    The encoded forms are compared, so that a struct with explicit defaults equals one in which the fields are absent.
    """
    if not tagged:
        return _no_tagged_step
    encoded_defaults = {field.name: _encode_value(field, (field.default or _no_default)()) for field in tagged}

    def step(out: bytearray, fields: _Fields) -> None:
        present = []
        for field in tagged:
            if field.name in fields:
                encoded = _encode_value(field, fields[field.name])
                if encoded != encoded_defaults[field.name]:
                    present.append((field.tag or 0, encoded))
        wire.write_tagged_fields(out, present)

    return step


def _encode_value(field: _Field, value: Any) -> bytearray:
    out = bytearray()
    field.type.write(out, value)
    return out


def _compile_field(field: "dataclasses.Field[Any]", flexible: bool, budget: _Budget) -> _Field:
    kafka_type = _kafka_type(field)
    annotation, nullable = _without_none(field.type)
    if get_origin(annotation) is tuple:
        item_annotation, _ = _without_none(get_args(annotation)[0])
        item = _compile_type(item_annotation, kafka_type, budget, flexible=flexible, nullable=False)
        compiled = _array_type(item, budget, flexible=flexible, nullable=nullable)
    else:
        compiled = _compile_type(annotation, kafka_type, budget, flexible=flexible, nullable=nullable)
    tag = field.metadata.get("tag")
    return _Field(_name_of(field), compiled, tag, _default_of(field, kafka_type, tagged=tag is not None))


def _without_none(annotation: Any) -> tuple[Any, bool]:
    arguments = get_args(annotation)
    if NoneType not in arguments:
        return annotation, False
    return next(argument for argument in arguments if argument is not NoneType), True


def _compile_type(annotation: Any, kafka_type: str, budget: _Budget, *, flexible: bool, nullable: bool) -> _Type:
    if dataclasses.is_dataclass(annotation):
        compiled = _compile_struct(annotation, budget)
        return _nullable_struct_type(compiled) if nullable else compiled
    if kafka_type in _FIXED_FORMATS:
        return _fixed_type(_FIXED_FORMATS[kafka_type])
    if kafka_type == "uuid":
        return _Type(wire.read_uuid, wire.write_uuid, 16)
    kind = (flexible, nullable)
    if kafka_type == "string":
        return _Type(wire.STRING_READERS[kind], wire.STRING_WRITERS[kind], 1 if flexible else 2)
    if kafka_type in ("bytes", "records"):
        return _Type(wire.BYTES_READERS[kind], wire.BYTES_WRITERS[kind], 1 if flexible else 4)
    raise AssertionError(f"the schema has an unknown type {kafka_type!r}")


@cache
def _fixed_type(code: str) -> _Type:
    packed = struct.Struct(">" + code)
    pack, unpack, size = packed.pack, packed.unpack_from, packed.size

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return _Type(read, write, size, code)


def _nullable_struct_type(inner: _Type) -> _Type:
    """A byte precedes the struct: negative for null (KIP-893)."""

    def read(data: Buffer, position: int) -> tuple[Message | None, int]:
        if data[position] > 127:
            return None, position + 1
        return cast("tuple[Message, int]", inner.read(data, position + 1))

    def write(out: bytearray, message: Message | None) -> None:
        if message is None:
            out.append(0xFF)
        else:
            out.append(1)
            inner.write(out, message)

    return _Type(read, write, 1)


def _array_type(item: _Type, budget: _Budget, *, flexible: bool, nullable: bool) -> _Type:
    read_items = _packed_items_reader(item) if item.format else _items_reader(item)
    write_items = _packed_items_writer(item) if item.format else _items_writer(item)
    read_size = wire.read_compact_array_size if flexible else wire.read_array_size
    write_size = wire.write_compact_array_size if flexible else wire.write_array_size
    item_size_min = item.size_min

    def read(data: Buffer, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_size(data, position, item_size_min)
        if count >= 0:
            budget.spend(count)
            return read_items(data, position, count)
        if not nullable:
            raise ProtocolError("null where an array is needed")
        return None, position

    def write(out: bytearray, items: Any) -> None:
        if items is None:
            assert nullable, "None for an array that cannot be null"
            write_size(out, -1)
        else:
            write_size(out, len(items))
            write_items(out, items)

    return _Type(read, write, 1 if flexible else 4)


def _items_reader(item: _Type) -> Callable[[Buffer, int, int], tuple[list[Any], int]]:
    read_item = item.read

    def read(data: Buffer, position: int, count: int) -> tuple[list[Any], int]:
        items = []
        for _ in range(count):
            value, position = read_item(data, position)
            items.append(value)
        return items, position

    return read


def _packed_items_reader(item: _Type) -> Callable[[Buffer, int, int], tuple[list[Any], int]]:
    def read(data: Buffer, position: int, count: int) -> tuple[list[Any], int]:
        items = struct.unpack_from(f">{count}{item.format}", data, position)
        return list(items), position + count * item.size_min

    return read


def _items_writer(item: _Type) -> Writer:
    write_item = item.write

    def write(out: bytearray, items: Any) -> None:
        for value in items:
            write_item(out, value)

    return write


def _packed_items_writer(item: _Type) -> Writer:
    def write(out: bytearray, items: Any) -> None:
        out += struct.pack(f">{len(items)}{item.format}", *items)

    return write


def _default_of(field: "dataclasses.Field[Any]", kafka_type: str, *, tagged: bool) -> Callable[[], Any] | None:
    """Return a function that creates the value of an absent field, None if the field is required.

    A tagged field always has a default, which may be the zero value of its type.
    """
    if field.default is not dataclasses.MISSING:
        return lambda: _to_plain(field.default, _null_of(field))
    if tagged:
        return lambda: _zero_of(field.type, kafka_type)
    return None


def _zero_of(annotation: Any, kafka_type: str) -> Any:
    if dataclasses.is_dataclass(annotation):
        return Message(**{_name_of(field): _zero_of(field.type, _kafka_type(field)) for field in _fields(annotation)})
    return "" if kafka_type == "string" else 0


def _null_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the value in a message where kio has None."""
    annotation, _ = _without_none(field.type)
    if get_origin(annotation) is tuple:
        return None
    return {"uuid": NO_TOPIC_ID, "datetime_i64": NO_TIMESTAMP}.get(_kafka_type(field))


def _to_plain(value: Any, null: Any) -> Any:
    """Convert a default from kio's types to the value in a message. kio's named integers are plain at run time."""
    if value is None:
        return null
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        fields = _fields(value)
        return Message(**{_name_of(field): _to_plain(getattr(value, field.name), _null_of(field)) for field in fields})
    return list(value) if isinstance(value, tuple) else value


def _fields(schema: Any) -> "tuple[dataclasses.Field[Any], ...]":
    return dataclasses.fields(schema)


def _kafka_type(field: "dataclasses.Field[Any]") -> str:
    return str(field.metadata.get("kafka_type", ""))


def _name_of(field: "dataclasses.Field[Any]") -> str:
    is_time = _kafka_type(field) in _TIME_TYPES and not field.name.endswith("_ms")
    return f"{field.name}_ms" if is_time else field.name
