"""Which PostgreSQL types hold which Spark types, on the way in and on the way out. Pure.

A column that is written has two types: that of the table, and that in which it is staged, which is the plain one of its
Spark type. What is nested beyond an array of plain values is staged as JSON text, made by Spark.
"""

from typing import Final, NamedTuple

from pyspark.sql import types as spark

# How a column of the table is called in PostgreSQL's catalog, for each type that Spark's values fit into unchanged.
_INTEGERS: Final = ("int2", "int4", "int8")
_TEXTS: Final = ("text", "varchar", "bpchar", "citext", "name")
# Text becomes these by an explicit cast only.
_PARSED_FROM_TEXT: Final = ("json", "jsonb", "uuid", "xml", "inet", "cidr")
# Texts that differ may be the same to these: in case, or in spaces at the end.
_COMPARED_LOOSELY: Final = ("citext", "bpchar")
_DIGITS: Final = {"int2": 5, "int4": 10, "int8": 19}
_NO_MODIFIER: Final = -1
_MODIFIER_OFFSET: Final = 4

_PLAIN: Final[dict[type[spark.DataType], str]] = {
    spark.BooleanType: "bool",
    spark.ByteType: "int2",
    spark.ShortType: "int2",
    spark.IntegerType: "int4",
    spark.LongType: "int8",
    spark.FloatType: "float4",
    spark.DoubleType: "float8",
    spark.StringType: "text",
    spark.CharType: "text",
    spark.VarcharType: "text",
    spark.BinaryType: "bytea",
    spark.DateType: "date",
    spark.TimestampType: "timestamptz",
    spark.TimestampNTZType: "timestamp",
    spark.DecimalType: "numeric",
}
_NESTED: Final = (spark.StructType, spark.MapType, spark.ArrayType)
JSON: Final = "jsonb"


class TableType(NamedTuple):
    """A column's type in the catalog: its name, its modifier (precision, length), and how people read it."""

    name: str
    modifier: int = _NO_MODIFIER
    shown: str = ""
    is_enum: bool = False

    def __str__(self) -> str:
        return self.shown or self.name

    @property
    def length_max(self) -> int | None:
        """Of a text, in characters."""
        is_limited = self.name in ("varchar", "bpchar") and self.modifier != _NO_MODIFIER
        return self.modifier - _MODIFIER_OFFSET if is_limited else None


def staged_type(spark_type: spark.DataType) -> str | None:
    """What psycopg copies its values as; None for what cannot be written."""
    if is_json(spark_type):
        return "text"
    if isinstance(spark_type, spark.ArrayType):
        return f"{_PLAIN[type(spark_type.elementType)]}[]"
    return _PLAIN.get(type(spark_type))


def is_json(spark_type: spark.DataType) -> bool:
    if isinstance(spark_type, spark.ArrayType):
        return type(spark_type.elementType) not in _PLAIN
    return isinstance(spark_type, _NESTED)


def new_column_type(spark_type: spark.DataType) -> str | None:
    """The type of the column in a table that is made for the values."""
    if is_json(spark_type):
        return JSON
    if isinstance(spark_type, spark.DecimalType):
        return f"numeric({spark_type.precision},{spark_type.scale})"
    return _PLAIN.get(type(spark_type)) or staged_type(spark_type)


def fits(spark_type: spark.DataType, column: TableType) -> bool:
    """Whether every value of the Spark type can be in the column, unchanged; of text, every value of the right form."""
    staged, name = staged_type(spark_type), column.name
    if is_json(spark_type):
        return name in ("json", "jsonb")
    if staged == "text":
        return name in _TEXTS or name in _PARSED_FROM_TEXT or column.is_enum
    if staged in _INTEGERS:
        if name == "numeric":
            return _holds_digits(column, _DIGITS[staged], 0)
        return name in _INTEGERS[_INTEGERS.index(staged) :]
    if isinstance(spark_type, spark.DecimalType):
        return name == "numeric" and _holds_digits(column, spark_type.precision - spark_type.scale, spark_type.scale)
    if staged == "float4":
        return name in ("float4", "float8")
    if staged is not None and staged.endswith("[]"):
        return name == "_" + staged.removesuffix("[]")
    return name == _PLAIN.get(type(spark_type))


def _holds_digits(column: TableType, before_point: int, behind_point: int) -> bool:
    if column.modifier == _NO_MODIFIER:
        return True
    precision, scale = divmod(column.modifier - _MODIFIER_OFFSET, 1 << 16)
    return scale >= behind_point and precision - scale >= before_point


def needs_cast(spark_type: spark.DataType, column: TableType) -> bool:
    """Where assignment does not do. Elsewhere no cast is written: an explicit one cuts texts and rounds in silence."""
    return staged_type(spark_type) == "text" and (column.name in _PARSED_FROM_TEXT or column.is_enum)


def compared_as(spark_type: spark.DataType, column: TableType) -> str | None:
    """The type by which the column tells values apart, where it differs from the staged one; without its length."""
    if needs_cast(spark_type, column):
        return str(column)
    return column.name if column.name in _COMPARED_LOOSELY else None
