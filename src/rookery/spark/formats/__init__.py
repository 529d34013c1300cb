"""Converts keys and values in Avro, JSON, JSON Schema, Protobuf or text from and to Arrow columns.

docs/spark-formats.md lists the types.
"""

from rookery.spark.formats.codec_plan import plan_decoder, plan_encoder
from rookery.spark.formats.columns import ColumnDecoder, ColumnEncoder, DecodedColumn, RowError
from rookery.spark.formats.errors import FormatError, RegistryDownError

__all__ = [
    "ColumnDecoder",
    "ColumnEncoder",
    "DecodedColumn",
    "FormatError",
    "RegistryDownError",
    "RowError",
    "plan_decoder",
    "plan_encoder",
]
