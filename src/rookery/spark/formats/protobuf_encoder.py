"""Encodes columns as Protobuf in the registry's wire format, with the schema of the options or a registered one.

The columns are the fields of the message by name, with the types to which `protobuf_shapes` maps them. A null is a
field that is not set.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import EncodeError
from pyspark.sql import types as spark

from rookery.serdes import Schema
from rookery.serdes.settings import PROTOBUF_SERIALIZER_KEYS
from rookery.serdes.wire import encode_indexes
from rookery.spark.formats.columns import Array, ColumnEncoder
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.protobuf_decoder import ParsedReader
from rookery.spark.formats.protobuf_shapes import MessageShape, is_map, shape_of_message
from rookery.spark.formats.schema_registration import WriterSchema, choose_schema

if TYPE_CHECKING:
    from rookery.spark.options import FormatOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNSIGNED: Final = {FieldDescriptor.CPPTYPE_UINT32: 2**32, FieldDescriptor.CPPTYPE_UINT64: 2**64}
Set = Callable[[Any, Any], None]


class ProtobufEncoder(ColumnEncoder):
    def __init__(self, writer: WriterSchema, message: str | None, spark_type: spark.DataType) -> None:
        self._arguments = (writer, message, spark_type)
        self._writer = writer
        self._parsed = ParsedReader(writer.schema, writer.resolved, message)
        _check_type(shape_of_message(self._parsed.message_class.DESCRIPTOR), spark_type, "$")

    @classmethod
    def plan(
        cls, options: "FormatOptions", spark_type: spark.DataType, *, topic: str, is_key: bool
    ) -> "ProtobufEncoder":
        own = None if options.schema is None else Schema(options.schema, "PROTOBUF")
        name = None if own is None else ParsedReader(own, {}, options.message).name
        writer = choose_schema(
            options,
            own,
            schema_type="PROTOBUF",
            keys=PROTOBUF_SERIALIZER_KEYS,
            record_name=name,
            topic=topic,
            is_key=is_key,
        )
        return cls(writer, options.message, spark_type)

    def __reduce__(self) -> tuple[object, ...]:
        return ProtobufEncoder, self._arguments

    def encode(self, column: Array, topic: str) -> Array:
        return pa.array([self._row(row, value) for row, value in enumerate(column.to_pylist())], pa.binary())

    def _row(self, row: int, value: Any) -> bytes | None:
        if value is None:
            return None
        message = self._parsed.message_class()
        try:
            fill(message, value)
            data: bytes = message.SerializeToString()
        except (ValueError, TypeError, KeyError, EncodeError) as error:
            raise FormatError(f"row {row} cannot be encoded as the message {self._parsed.name}: {error}") from error
        return self._prefix + data

    @cached_property
    def _prefix(self) -> bytes:
        return self._writer.prefix + encode_indexes(self._parsed.schema.find_message_indexes(self._parsed.name))


def fill(message: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        if is_map(field):
            _fill_map(getattr(message, name), field, dict(value))
        elif field.is_repeated and field.message_type is not None:
            for each in value:
                fill_message(getattr(message, name).add(), each)
        elif field.is_repeated:
            getattr(message, name).extend(_scalar(field, each) for each in value)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_map(target: Any, field: FieldDescriptor, values: dict[Any, Any]) -> None:
    kinds = field.message_type.fields_by_name
    for key, value in values.items():
        if kinds["value"].message_type is not None:
            fill_message(target[_scalar(kinds["key"], key)], value)
        else:
            target[_scalar(kinds["key"], key)] = _scalar(kinds["value"], value)


def fill_message(message: Any, value: Any) -> None:
    if isinstance(value, datetime):
        _set_time(message, (value - _EPOCH) // _MICROSECOND)
    elif isinstance(value, timedelta):
        _set_time(message, value // _MICROSECOND)
    else:
        fill(message, value)


def _set_time(message: Any, microseconds: int) -> None:
    """Set a Timestamp or a Duration.

    Seconds and nanoseconds of a duration must have the same sign; those of a timestamp need not.
    """
    is_duration = message.DESCRIPTOR.name == "Duration"
    sign = -1 if is_duration and microseconds < 0 else 1
    seconds, rest = divmod(sign * microseconds, 1_000_000)
    message.seconds, message.nanos = sign * seconds, sign * rest * 1000


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"{value!r} is not a value of {field.enum_type.full_name}")
        return found.number
    return value % _UNSIGNED[field.cpp_type] if field.cpp_type in _UNSIGNED else value


def _check_type(shape: MessageShape, kind: spark.DataType, path: str) -> None:
    """Raise FormatError unless the columns are fields of the message with their types. Called before any row."""
    if not isinstance(kind, spark.StructType) or not isinstance(shape.spark_type, spark.StructType):
        if type(kind) is not type(shape.spark_type):
            raise _misfit(shape.descriptor, kind, shape.spark_type, path)
        return
    fields = {each.field.name: each for each in shape.fields}
    for each in kind:
        here = f"{path}.{each.name}"
        if each.name not in fields:
            raise FormatError(f"{here}: the message {shape.descriptor.full_name} has no such field")
        known = fields[each.name]
        found, wanted = _innermost(each.dataType), _innermost(known.spark_type)
        if [type(step) for step in found] != [type(step) for step in wanted]:
            raise _misfit(shape.descriptor, each.dataType, known.spark_type, here)
        if known.message is not None:
            _check_type(known.message, found[-1], here)


def _innermost(kind: spark.DataType) -> list[spark.DataType]:
    """Return an array and its items, a map and its values, or the type alone."""
    if isinstance(kind, spark.ArrayType):
        return [kind, kind.elementType]
    return [kind, kind.valueType] if isinstance(kind, spark.MapType) else [kind]


def _misfit(message: Descriptor, kind: spark.DataType, wanted: spark.DataType, path: str) -> FormatError:
    return FormatError(
        f"{path} is of type {kind.simpleString()}, but {message.full_name} has {wanted.simpleString()}: cast it"
    )
