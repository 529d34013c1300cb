"""Decodes JSON: plain JSON with a Spark schema, and JSON in the registry's wire format with a JSON Schema.

Rows are parsed one by one into the types of the schema. A value of another type is an error of its row; fields that
the schema does not have are ignored, and fields that only the schema has are null.
"""

import json
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import jsonschema_rs
import msgspec
from pyspark.sql.types import DataType

from rookery.schemas.json_schema import parse
from rookery.schemas.json_schema.schema import JSONSchema
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, SerdesError, format_path, shorten
from rookery.serdes.settings import JSON_DESERIALIZER_KEYS, DeserializerSettings
from rookery.spark.formats.arrays import build_isolated
from rookery.spark.formats.columns import Array, ColumnDecoder, DecodedColumn, RowError, without_schema_ids
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.framing import read_frames
from rookery.spark.formats.json_schema_shapes import shape_of_schema
from rookery.spark.formats.json_shapes import JsonShape, parser_of, shape_of
from rookery.spark.formats.registries import WriterSchemas, registry_of, row_error, serdes_settings

_NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeError)


class JsonDecoder(ColumnDecoder):
    def __init__(self, spark_type: DataType) -> None:
        self._shape = shape_of(spark_type)
        self.spark_type = self._shape.spark_type

    def pin(self) -> str:
        return json.dumps({"type": self.spark_type.json()})

    def __reduce__(self) -> tuple[object, ...]:
        return JsonDecoder, (self.spark_type,)

    def decode(self, column: Array, topic: str) -> DecodedColumn:
        parse_row, errors, parsed = parser_of(self._shape), [], []
        for row, data in enumerate(column.to_pylist()):
            value = None
            if data is not None:
                try:
                    value = parse_row(data)
                except _NOT_JSON as error:
                    errors.append(_row_error(row, error))
            parsed.append(value)
        values = build_isolated(parsed, self._shape.build, errors)
        return DecodedColumn(values, sorted(errors), without_schema_ids(len(column)))


def _row_error(row: int, error: Exception) -> RowError:
    return RowError(row, "InvalidDataError", shorten(f"it is not JSON of the schema: {error}"))


class JsonSchemaDecoder(ColumnDecoder):
    """Decodes JSON with the schema `reader`. `resolved` has the texts of the schemas that it refers to."""

    def __init__(
        self, reader: str, resolved: Mapping[str, str], reader_id: int | None, settings: Mapping[str, str]
    ) -> None:
        self._arguments = (reader, dict(resolved), reader_id, dict(settings))
        self._settings = settings
        known = serdes_settings(settings, JSON_DESERIALIZER_KEYS)
        self._validates = DeserializerSettings.parse(JSON_DESERIALIZER_KEYS, known).values.boolean("validate")
        try:
            parsed = parse(reader, resolved)
        except InvalidSchemaError as error:
            raise FormatError(f"not a JSON Schema: {error}") from error
        self._shape: JsonShape = shape_of_schema(parsed.raw, parsed.documents)
        self.spark_type = self._shape.spark_type

    @classmethod
    def of(cls, schema: Schema, schema_id: int | None, settings: Mapping[str, str]) -> "JsonSchemaDecoder":
        resolved = registry_of(settings).resolve(schema) if schema.references else {}
        return cls(schema.text, resolved, schema_id, settings)

    @classmethod
    def of_pin(cls, pin: str, settings: Mapping[str, str]) -> "JsonSchemaDecoder":
        pinned = json.loads(pin)
        return cls(pinned["schema"], pinned["resolved"], pinned["id"], settings)

    def pin(self) -> str:
        reader, resolved, reader_id, _ = self._arguments
        return json.dumps({"schema": reader, "resolved": resolved, "id": reader_id})

    def __reduce__(self) -> tuple[object, ...]:
        return JsonSchemaDecoder, self._arguments

    def decode(self, column: Array, topic: str) -> DecodedColumn:
        frames = read_frames(column)
        parse_row, errors, parsed = parser_of(self._shape), list(frames.errors), [None] * len(column)
        for row, schema_id, data in frames.payloads():
            try:
                if self._validates:
                    self._validate(schema_id, data)
                parsed[row] = parse_row(data)
            except SerdesError as error:
                errors.append(row_error(row, error))
            except _NOT_JSON as error:
                errors.append(_row_error(row, error))
        values = build_isolated(parsed, self._shape.build, errors)
        return DecodedColumn(values, sorted(errors), frames.schema_ids())

    def _validate(self, schema_id: int, data: bytes) -> None:
        """Validate the data against the schema that it was written with. Raises SerdesError."""
        found = self._writers.find(schema_id)
        if isinstance(found, SerdesError):
            raise found
        try:
            found.validate(msgspec.json.decode(data))
        except jsonschema_rs.ValidationError as error:
            text = f"{format_path(error.instance_path)}: {error.message}"
            raise InvalidDataError(f"data of the schema {schema_id} does not fit: {text}") from None

    @cached_property
    def _writers(self) -> WriterSchemas[Any]:
        registry = partial(registry_of, self._settings)
        return WriterSchemas(registry, "JSON", lambda schema: _validator(registry(), schema))


def _validator(registry: RegistryClient, schema: Schema) -> jsonschema_rs.Validator:
    parsed: JSONSchema = parse(schema.text, registry.resolve(schema))
    return parsed.validator()
