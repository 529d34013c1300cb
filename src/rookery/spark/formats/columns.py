"""The interfaces of decoders and encoders of all formats: from Arrow columns to Arrow columns, with errors by row.

Both are created on the driver, pickled, and used in tasks. A decoder reads every row with the reader's schema, which
its `pin` holds: a decoder that is planned with the same pin, later or in another process, has the same type.
"""

from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from rookery.spark.compat import Feature, has

# pyarrow has no type information.
Array: TypeAlias = Any
ArrowType: TypeAlias = Any
ArrowSchema: TypeAlias = Any

# Versions of Spark without this parameter use UTC.
_IN_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if has(Feature.ARROW_TIME_ZONES) else {}


class RowError(NamedTuple):
    """The error of a row that cannot be decoded. `error_class` is the name of a class of `rookery.serdes.errors`."""

    row: int
    error_class: str
    message: str


class DecodedColumn(NamedTuple):
    """A decoded column. A value with an error is null, and so is the schema id of a record without one."""

    values: Array
    errors: list[RowError]
    schema_ids: Array


class ColumnDecoder(ABC):
    """Decodes a column of bytes to values of `spark_type`."""

    spark_type: DataType

    @property
    def arrow_type(self) -> ArrowType:
        return arrow_type_of(self.spark_type)

    @abstractmethod
    def decode(self, column: Array, topic: str) -> DecodedColumn:
        """Decode a binary column. Raises RegistryDownError."""

    @abstractmethod
    def pin(self) -> str:
        """Return the reader's schema as a text that `plan_decoder` takes."""


class ColumnEncoder(ABC):
    @abstractmethod
    def encode(self, column: Array, topic: str) -> Array:
        """Return the column as binary. Raises FormatError, which names the row, if a value does not fit the schema."""


def arrow_type_of(spark_type: DataType) -> ArrowType:
    return to_arrow_type(spark_type, **_IN_UTC)


def arrow_schema_of(schema: StructType) -> ArrowSchema:
    return to_arrow_schema(schema, **_IN_UTC)


def detailed_type(kind: DataType) -> StructType:
    """Return the type of a column with details: a struct of value, error and schema_id."""
    names = {"value": kind, "error": StringType(), "schema_id": IntegerType()}
    return StructType([StructField(name, each) for name, each in names.items()])


def detailed_array(decoded: DecodedColumn, kind: DataType) -> Array:
    """Return a decoded column as `detailed_type(kind)`; an error is the class and the message in one text."""
    errors: list[str | None] = [None] * len(decoded.values)
    for each in decoded.errors:
        errors[each.row] = f"{each.error_class}: {each.message}"
    parts = [decoded.values, pa.array(errors, pa.string()), decoded.schema_ids]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type_of(detailed_type(kind))))


def without_schema_ids(length: int) -> Array:
    """Return the schema ids of a format without a registry: all null."""
    return pa.nulls(length, pa.int32())
