"""Derives an Avro schema from a Spark type, as Spark's `to_avro` does, with two differences.

A nullable field is a union with null first and null as its default, so that columns can be added later. Decimals are
bytes, not fixed, so that their precision does not determine the size of the type.
"""

import json
import re
from typing import Any, Final

from pyspark.sql import types as spark

from rookery.spark.formats.errors import FormatError

# Spark's name of the outermost record.
RECORD_NAME: Final = "topLevelRecord"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS: Final[dict[type[spark.DataType], Any]] = {
    spark.NullType: "null",
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.BinaryType: "bytes",
    spark.DateType: {"type": "int", "logicalType": "date"},
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
    spark.DayTimeIntervalType: "long",
}


def derive_schema(kind: spark.DataType) -> str:
    """Return the schema as JSON. Raises FormatError for types that Avro lacks.

    The outermost type is never nullable: a null row becomes a record with a null value.
    """
    return json.dumps(_derive(kind, RECORD_NAME, "$"))


def _derive(kind: spark.DataType, name: str, path: str) -> Any:
    match kind:
        case spark.StructType():
            for field in kind:
                if _NAME.fullmatch(field.name) is None:
                    raise FormatError(f"{path}.{field.name} is not a valid name in Avro: rename it, or give a schema")
            fields = [_field(each, f"{name}.{each.name}", f"{path}.{each.name}") for each in kind]
            namespace, _, simple = name.rpartition(".")
            return {"type": "record", "name": simple, "namespace": namespace, "fields": fields}
        case spark.ArrayType():
            return {"type": "array", "items": _nullable(kind.elementType, kind.containsNull, name, f"{path}[]")}
        case spark.MapType(keyType=spark.StringType()):
            return {"type": "map", "values": _nullable(kind.valueType, kind.valueContainsNull, name, f"{path}[]")}
        case spark.DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    for each, schema in _SCALARS.items():
        if isinstance(kind, each):
            return schema
    raise FormatError(f"{path} is of type {kind.simpleString()}, which Avro lacks")


def _field(field: spark.StructField, name: str, path: str) -> dict[str, Any]:
    made = {"name": field.name, "type": _nullable(field.dataType, field.nullable, name, path)}
    return made | {"default": None} if field.nullable else made


def _nullable(kind: spark.DataType, is_nullable: bool, name: str, path: str) -> Any:
    schema = _derive(kind, name, path)
    return ["null", schema] if is_nullable and schema != "null" else schema
