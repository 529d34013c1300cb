"""The format `string`: UTF-8 without a schema."""

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, StringType

from rookery.spark.formats.columns import (
    Array,
    ColumnDecoder,
    ColumnEncoder,
    DecodedColumn,
    RowError,
    without_schema_ids,
)
from rookery.spark.formats.errors import FormatError


class TextDecoder(ColumnDecoder):
    spark_type = StringType()

    def pin(self) -> str:
        return "{}"

    def decode(self, column: Array, topic: str) -> DecodedColumn:
        no_ids = without_schema_ids(len(column))
        try:
            return DecodedColumn(column.cast(pa.string()), [], no_ids)
        except pa.ArrowInvalid:
            pass
        values: list[str | None] = []
        errors = []
        for row, data in enumerate(column.to_pylist()):
            try:
                values.append(None if data is None else data.decode())
            except UnicodeDecodeError as error:
                values.append(None)
                errors.append(RowError(row, "InvalidDataError", f"it is not UTF-8: {error}"))
        return DecodedColumn(pa.array(values, pa.string()), errors, no_ids)


class TextEncoder(ColumnEncoder):
    def __init__(self, spark_type: DataType) -> None:
        self._spark_type = spark_type
        if not isinstance(spark_type, StringType | BinaryType):
            raise FormatError(f"the column is of type {spark_type.simpleString()}, not a string: cast it")

    def encode(self, column: Array, topic: str) -> Array:
        return column.cast(pa.binary())
