"""Maps Protobuf messages to Spark types and builds columns of messages, as Spark's `from_protobuf` does by default.

Fields that are not set are null. So are proto3 fields without presence that have their default value, because they are
not in the data. docs/spark-formats.md has the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from pyspark.sql import types as spark

from rookery.spark.formats.arrays import list_array, map_array, struct_array
from rookery.spark.formats.columns import Array, ArrowType, arrow_type_of
from rookery.spark.formats.errors import FormatError

_SCALARS: Final[dict[int, spark.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_UINT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_FLOAT: spark.FloatType(),
    FieldDescriptor.CPPTYPE_DOUBLE: spark.DoubleType(),
    FieldDescriptor.CPPTYPE_BOOL: spark.BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: spark.StringType(),
    FieldDescriptor.CPPTYPE_STRING: spark.StringType(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_TIMES: Final[dict[str, spark.DataType]] = {_TIMESTAMP: spark.TimestampType(), _DURATION: spark.DayTimeIntervalType()}
_UNSIGNED_BITS: Final = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}
_SHAPES_MAX: Final = 5000


@dataclass(frozen=True, eq=False)
class MessageShape:
    """The shape of a message, or of the well-known types Timestamp and Duration."""

    descriptor: Descriptor
    spark_type: spark.DataType
    fields: tuple["FieldShape", ...] = ()

    @cached_property
    def arrow_type(self) -> ArrowType:
        return arrow_type_of(self.spark_type)

    def build(self, messages: list[Any]) -> Array:
        """Return an array of the messages; None is null."""
        if self.descriptor.full_name in _TIMES:
            return pa.array([_microseconds(each) for each in messages], pa.int64()).cast(self.arrow_type)
        return struct_array([each.build(messages) for each in self.fields], self.arrow_type, messages)


@dataclass(frozen=True, eq=False)
class FieldShape:
    """The shape of a field. `message` is the shape of the field, list items or map values, if they are messages."""

    field: FieldDescriptor
    spark_type: spark.DataType
    message: MessageShape | None = None

    @cached_property
    def arrow_type(self) -> ArrowType:
        return arrow_type_of(self.spark_type)

    def build(self, messages: list[Any]) -> Array:
        name, field = self.field.name, self.field
        if is_map(field):
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            maps = [None if each is None else dict(getattr(each, name)) for each in messages]
            return map_array(maps, self.arrow_type, _build_scalars(key), self._build_values(value))
        if field.is_repeated:
            lists = [None if each is None else getattr(each, name) for each in messages]
            return list_array(lists, self.arrow_type, self._build_values(field))
        if not field.has_presence:
            # For such a field, the default value and an absent field have the same encoding.
            values = [None if each is None else getattr(each, name) or None for each in messages]
        elif field.has_default_value:
            values = [None if each is None else getattr(each, name) for each in messages]
        else:
            values = [getattr(each, name) if each is not None and each.HasField(name) else None for each in messages]
        return self._build_values(field)(values)

    def _build_values(self, field: FieldDescriptor) -> Callable[[list[Any]], Array]:
        return _build_scalars(field) if self.message is None else self.message.build


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _build_scalars(field: FieldDescriptor) -> Callable[[list[Any]], Array]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return partial(_build_enums, field.enum_type)
    arrow_type = arrow_type_of(scalar_type(field))
    bits = _UNSIGNED_BITS.get(field.cpp_type)
    if bits is not None:
        # As in Java, the upper half of the unsigned range becomes negative.
        return lambda values: pa.array([None if each is None else _signed(each, bits) for each in values], arrow_type)
    return partial(pa.array, type=arrow_type)


def _build_enums(kind: EnumDescriptor, values: list[Any]) -> Array:
    names = {each.number: each.name for each in kind.values}
    found = (None if each is None else names.get(each) or f"UNKNOWN_ENUM_VALUE_{kind.name}_{each}" for each in values)
    return pa.array(list(found), pa.string())


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number


def _microseconds(time: Any) -> int | None:
    return None if time is None else int(time.seconds) * 1_000_000 + int(time.nanos) // 1000


def scalar_type(field: FieldDescriptor) -> spark.DataType:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return spark.BinaryType()
    return _SCALARS[field.cpp_type]


def shape_of_message(descriptor: Descriptor) -> MessageShape:
    return _Shapes().message(descriptor, ())


class _Shapes:
    def __init__(self) -> None:
        self._count = 0

    def message(self, descriptor: Descriptor, inside: tuple[str, ...]) -> MessageShape:
        name = descriptor.full_name
        if name in _TIMES:
            return MessageShape(descriptor, _TIMES[name])
        if name in inside:
            raise FormatError(
                f"the message {name} contains itself ({' > '.join(inside)}): no Spark type can express that"
            )
        fields = tuple(self._field(each, (*inside, name)) for each in descriptor.fields)
        kind = spark.StructType([spark.StructField(each.field.name, each.spark_type) for each in fields])
        return MessageShape(descriptor, kind, fields)

    def _field(self, field: FieldDescriptor, inside: tuple[str, ...]) -> FieldShape:
        self._count += 1
        if self._count > _SHAPES_MAX:
            raise FormatError(f"the message has more than {_SHAPES_MAX} parts, too many for columns")
        if is_map(field):
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            kind, message = self._single(value, inside)
            return FieldShape(field, spark.MapType(scalar_type(key), kind), message)
        kind, message = self._single(field, inside)
        return FieldShape(field, spark.ArrayType(kind) if field.is_repeated else kind, message)

    def _single(self, field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[spark.DataType, MessageShape | None]:
        if field.message_type is None:
            return scalar_type(field), None
        message = self.message(field.message_type, inside)
        return message.spark_type, message
