"""Shapes of JSON values: a Spark type, the type that msgspec parses, and the conversion of parsed values to columns.

msgspec checks types while it parses, names the path of a value of another type, and skips fields that are not in the
type. Objects become msgspec structs with numbered fields, because names in JSON need not be identifiers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, partial
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from rookery.spark.formats.arrays import list_array, map_array, struct_array
from rookery.spark.formats.columns import Array, ArrowType, arrow_type_of
from rookery.spark.formats.errors import FormatError

_BITS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
_SCALARS: Final[dict[type[spark.DataType], Any]] = {
    spark.BooleanType: bool,
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.DecimalType: Decimal,
    spark.StringType: str,
    spark.BinaryType: bytes,
    spark.DateType: date,
    spark.TimestampType: datetime,
    spark.TimestampNTZType: datetime,
    spark.NullType: None,
}
_NULL: Final = b"null"


@dataclass(frozen=True)
class JsonShape:
    """A node of a type. `parts` are the fields of a struct, the items of an array or the values of a map.

    `is_raw`: any JSON, kept as text.
    """

    spark_type: spark.DataType
    parts: tuple["JsonShape", ...] = ()
    is_raw: bool = False

    @cached_property
    def parsed_type(self) -> Any:
        """The type that msgspec parses; null is allowed everywhere."""
        kind = self.spark_type
        if self.is_raw:
            return msgspec.Raw
        if isinstance(kind, spark.StructType):
            return self._struct | None
        if isinstance(kind, spark.ArrayType):
            items: Any = self.parts[0].parsed_type
            return list[items] | None
        if isinstance(kind, spark.MapType):
            values: Any = self.parts[0].parsed_type
            return dict[str, values] | None
        if type(kind) in _BITS:
            limit = 1 << (_BITS[type(kind)] - 1)
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None
        return _SCALARS[type(kind)] | None if _SCALARS[type(kind)] is not None else None

    @cached_property
    def _struct(self) -> Any:
        assert isinstance(self.spark_type, spark.StructType)
        fields = [
            (f"f{index}", part.parsed_type, msgspec.Raw(_NULL) if part.is_raw else None)
            for index, part in enumerate(self.parts)
        ]
        names = {f"f{index}": name for index, name in enumerate(self.spark_type.names)}
        return msgspec.defstruct("Row", fields, rename=names, gc=False)

    @cached_property
    def arrow_type(self) -> ArrowType:
        return arrow_type_of(self.spark_type)

    def build(self, values: list[Any]) -> Array:
        """Return an array of parsed values. Raises the exceptions that `arrays.build_isolated` catches."""
        kind = self.spark_type
        if self.is_raw:
            return pa.array([_raw_text(each) for each in values], pa.string())
        if isinstance(kind, spark.StructType):
            rows = values
            if None in values:
                nothing = self._struct()
                rows = [nothing if each is None else each for each in values]
            parts = [part.build(list(map(attrgetter(f"f{i}"), rows))) for i, part in enumerate(self.parts)]
            return struct_array(parts, self.arrow_type, values)
        if isinstance(kind, spark.ArrayType):
            return list_array(values, self.arrow_type, self.parts[0].build)
        if isinstance(kind, spark.MapType):
            return map_array(values, self.arrow_type, partial(pa.array, type=pa.string()), self.parts[0].build)
        return pa.array(values, self.arrow_type)


def _raw_text(value: msgspec.Raw | None) -> str | None:
    data = _NULL if value is None else bytes(value)
    return None if data == _NULL else data.decode()


def shape_of(kind: spark.DataType, path: str = "$") -> JsonShape:
    """Return the shape of a Spark type, with all fields nullable. Raises FormatError for types that JSON lacks."""
    match kind:
        case spark.StructType():
            parts = tuple(shape_of(each.dataType, f"{path}.{each.name}") for each in kind)
            return struct_shape(kind.names, parts)
        case spark.ArrayType():
            return list_shape(shape_of(kind.elementType, f"{path}[]"))
        case spark.MapType():
            if not isinstance(kind.keyType, spark.StringType):
                raise FormatError(f"{path} has keys of type {kind.keyType.simpleString()}: keys in JSON are strings")
            return map_shape(shape_of(kind.valueType, f"{path}[]"))
        case _ if type(kind) in _BITS or type(kind) in _SCALARS:
            return JsonShape(kind)
    raise FormatError(f"{path} is of type {kind.simpleString()}, which cannot be read from JSON")


def struct_shape(names: list[str], parts: tuple[JsonShape, ...]) -> JsonShape:
    fields = [spark.StructField(name, part.spark_type) for name, part in zip(names, parts, strict=True)]
    return JsonShape(spark.StructType(fields), parts)


def list_shape(items: JsonShape) -> JsonShape:
    return JsonShape(spark.ArrayType(items.spark_type), (items,))


def map_shape(values: JsonShape) -> JsonShape:
    return JsonShape(spark.MapType(spark.StringType(), values.spark_type), (values,))


def raw_shape() -> JsonShape:
    return JsonShape(spark.StringType(), is_raw=True)


Parse = Callable[[bytes], Any]


def parser_of(shape: JsonShape) -> Parse:
    """Return a parser for a shape. It raises msgspec.DecodeError or RecursionError."""
    return msgspec.json.Decoder(shape.parsed_type).decode
