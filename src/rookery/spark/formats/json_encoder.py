"""Encodes columns as JSON: plain, or in the registry's wire format and validated against its schema.

Null fields are omitted, as in Spark's `to_json`: most schemas allow a missing field, few allow null.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from rookery.schemas.json_schema import parse
from rookery.schemas.json_schema.schema import JSONSchema
from rookery.serdes import Schema
from rookery.serdes.errors import InvalidSchemaError, format_path, shorten
from rookery.serdes.settings import JSON_SERIALIZER_KEYS, SerializerSettings
from rookery.spark.formats.columns import Array, ColumnEncoder
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.json_schema_shapes import shape_of_schema
from rookery.spark.formats.json_shapes import JsonShape, shape_of
from rookery.spark.formats.registries import serdes_settings
from rookery.spark.formats.schema_registration import WriterSchema, choose_schema

if TYPE_CHECKING:
    from rookery.spark.options import FormatOptions

Convert = Callable[[Any], Any]


class JsonEncoder(ColumnEncoder):
    def __init__(self, spark_type: spark.DataType) -> None:
        self._spark_type = spark_type
        shape_of(spark_type)
        self._convert = _converter(spark_type, None)

    def __reduce__(self) -> tuple[object, ...]:
        return JsonEncoder, (self._spark_type,)

    def encode(self, column: Array, topic: str) -> Array:
        return pa.array([_encode(self._convert(each)) for each in column.to_pylist()], pa.binary())


class JsonSchemaEncoder(ColumnEncoder):
    def __init__(self, writer: WriterSchema, spark_type: spark.DataType, settings: Mapping[str, str]) -> None:
        self._arguments = (writer, spark_type, settings)
        self._writer = writer
        known = serdes_settings(settings, JSON_SERIALIZER_KEYS)
        self._validates = SerializerSettings.parse(JSON_SERIALIZER_KEYS, known).values.boolean("validate")
        try:
            self._schema: JSONSchema = parse(writer.schema.text, writer.resolved)
        except InvalidSchemaError as error:
            raise FormatError(f"not a JSON Schema: {error}") from error
        shape_of(spark_type)
        self._convert = _converter(spark_type, shape_of_schema(self._schema.raw, self._schema.documents))

    @classmethod
    def plan(
        cls, options: "FormatOptions", spark_type: spark.DataType, *, topic: str, is_key: bool
    ) -> "JsonSchemaEncoder":
        own = None if options.schema is None else Schema(options.schema, "JSON")
        try:
            name = None if own is None else parse(own.text).name
        except InvalidSchemaError as error:
            raise FormatError(f"not a JSON Schema: {error}") from error
        keys = JSON_SERIALIZER_KEYS
        writer = choose_schema(
            options, own, schema_type="JSON", keys=keys, record_name=name, topic=topic, is_key=is_key
        )
        return cls(writer, spark_type, options.registry)

    def __reduce__(self) -> tuple[object, ...]:
        return JsonSchemaEncoder, self._arguments

    def encode(self, column: Array, topic: str) -> Array:
        prefix, rows = self._writer.prefix, []
        for row, value in enumerate(column.to_pylist()):
            data = _encode(self._convert(value))
            if data is not None and self._validates:
                self._check(row, data)
            rows.append(None if data is None else prefix + data)
        return pa.array(rows, pa.binary())

    def _check(self, row: int, data: bytes) -> None:
        try:
            self._validator.validate(msgspec.json.decode(data))
        except jsonschema_rs.ValidationError as error:
            text = f"{format_path(error.instance_path)}: {error.message}"
            raise FormatError(shorten(f"row {row} does not fit the schema: {text}")) from None

    @cached_property
    def _validator(self) -> jsonschema_rs.Validator:
        return self._schema.validator()


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _encode(value: Any) -> bytes | None:
    return None if value is None else _ENCODER.encode(value)


def _same(value: Any) -> Any:
    return value


def _converter(kind: spark.DataType, shape: JsonShape | None) -> Convert:
    """Return a function that converts pyarrow's values for encoding.

    A text is parsed as JSON where the schema allows any JSON.
    """
    match kind:
        case spark.StructType():
            known = {} if shape is None else _fields_of(shape)
            parts = [(each.name, _converter(each.dataType, known.get(each.name))) for each in kind]
            return lambda value: (
                value and {name: convert(value[name]) for name, convert in parts if value[name] is not None}
            )
        case spark.ArrayType():
            item = _converter(kind.elementType, _inner(shape))
            return _same if item is _same else lambda value: value and [item(each) for each in value]
        case spark.MapType():
            item = _converter(kind.valueType, _inner(shape))
            return lambda value: None if value is None else {key: item(each) for key, each in value}
        case spark.StringType() if shape is not None and shape.is_raw:
            return _read_json
    return _same


def _fields_of(shape: JsonShape) -> dict[str, JsonShape]:
    if not isinstance(shape.spark_type, spark.StructType):
        return {}
    return dict(zip(shape.spark_type.names, shape.parts, strict=True))


def _inner(shape: JsonShape | None) -> JsonShape | None:
    return shape.parts[0] if shape is not None and len(shape.parts) == 1 else None


def _read_json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise FormatError(shorten(f"the schema expects JSON here, but {text!r} is not JSON: {error}")) from error
