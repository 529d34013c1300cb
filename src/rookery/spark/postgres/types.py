"""Maps Spark types to PostgreSQL types. Pure.

A column that is written has two types: that of the table, and the staged type, which is the plain PostgreSQL type of
its Spark type. Values that are nested deeper than an array of plain values are staged as JSON text, made by Spark.
"""

from typing import Final, NamedTuple

from pyspark.sql import types as spark

# Names of types in PostgreSQL's catalog that hold the integers and texts of Spark unchanged.
_INTEGERS: Final = ("int2", "int4", "int8")
_TEXTS: Final = ("text", "varchar", "bpchar", "citext", "name")
# Types to which text is converted by an explicit cast only.
_PARSED_FROM_TEXT: Final = ("json", "jsonb", "uuid", "xml", "inet", "cidr")
# Types that compare texts ignoring case or trailing spaces.
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
    """A column's type in the catalog: its name, its modifier (precision, length), and its form in SQL."""

    name: str
    modifier: int = _NO_MODIFIER
    shown: str = ""
    is_enum: bool = False

    def __str__(self) -> str:
        return self.shown or self.name

    @property
    def length_max(self) -> int | None:
        """The maximum length of a text, in characters."""
        is_limited = self.name in ("varchar", "bpchar") and self.modifier != _NO_MODIFIER
        return self.modifier - _MODIFIER_OFFSET if is_limited else None


def staged_type(spark_type: spark.DataType) -> str | None:
    """Return the type as which psycopg copies the values; None if they cannot be written."""
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
    """Return the type of the column in a table that the sink creates; None if the values cannot be written."""
    if is_json(spark_type):
        return JSON
    if isinstance(spark_type, spark.DecimalType):
        return f"numeric({spark_type.precision},{spark_type.scale})"
    return _PLAIN.get(type(spark_type)) or staged_type(spark_type)


def fits(spark_type: spark.DataType, column: TableType) -> bool:
    """Whether the column can hold every value of the Spark type unchanged; for texts, every text of the right form."""
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


def _holds_digits(column: TableType, before_point: int, after_point: int) -> bool:
    if column.modifier == _NO_MODIFIER:
        return True
    precision, scale = divmod(column.modifier - _MODIFIER_OFFSET, 1 << 16)
    return scale >= after_point and precision - scale >= before_point


def needs_cast(spark_type: spark.DataType, column: TableType) -> bool:
    """Whether the value needs an explicit cast, because an assignment cast does not exist.

    Elsewhere there must be no explicit cast: it would silently truncate texts and round numbers.
    """
    return staged_type(spark_type) == "text" and (column.name in _PARSED_FROM_TEXT or column.is_enum)


def compared_as(spark_type: spark.DataType, column: TableType) -> str | None:
    """Return the type by which the column compares values, without its length; None if that is the staged type."""
    if needs_cast(spark_type, column):
        return str(column)
    return column.name if column.name in _COMPARED_LOOSELY else None
