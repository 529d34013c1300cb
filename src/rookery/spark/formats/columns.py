"""What decoders and encoders of all formats give and take: Arrow columns, with an error for each row that is no value.

Both are made on the driver, pickled, and used in tasks. A decoder reads every row as the reader's schema has it, which
its `pin` holds: a decoder that is planned with the same pin, in another process or later, has the same type.
"""

from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

from rookery.spark.compat import Feature, has

# pyarrow has no type information.
Array: TypeAlias = Any
ArrowType: TypeAlias = Any
ArrowSchema: TypeAlias = Any

# Versions that cannot be told take UTC.
_IN_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if has(Feature.ARROW_TIME_ZONES) else {}


class RowError(NamedTuple):
    """`error_class` is the name of one of the errors of `rookery.serdes.errors`."""

    row: int
    error_class: str
    message: str


class DecodedColumn(NamedTuple):
    """`values` are null where there is an error. `schema_ids` are null where a record has none."""

    values: Array
    errors: list[RowError]
    schema_ids: Array


class ColumnDecoder(ABC):
    """`spark_type` is that of the values."""

    spark_type: DataType

    @property
    def arrow_type(self) -> ArrowType:
        return arrow_type_of(self.spark_type)

    @abstractmethod
    def decode(self, column: Array, topic: str) -> DecodedColumn:
        """`column` is binary. Raises RegistryDownError."""

    @abstractmethod
    def pin(self) -> str:
        """The reader's schema, for `plan_decoder`."""


class ColumnEncoder(ABC):
    @abstractmethod
    def encode(self, column: Array, topic: str) -> Array:
        """Binary. Raises FormatError for a value that does not fit the schema, and names the row."""


def arrow_type_of(spark_type: DataType) -> ArrowType:
    return to_arrow_type(spark_type, **_IN_UTC)


def arrow_schema_of(schema: StructType) -> ArrowSchema:
    return to_arrow_schema(schema, **_IN_UTC)


def without_schema_ids(length: int) -> Array:
    return pa.nulls(length, pa.int32())
