"""Creates the decoder and the encoder that the options request. It runs on the driver and queries the registry there.

The reader's schema is the one in the options, or a version of the subject: by default the latest at this time. With a
pin, which holds the schema, the registry is not queried.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rookery.schemas.interface import SchemaType
from rookery.serdes import Schema
from rookery.serdes.subjects import field_of
from rookery.spark.formats.columns import ColumnDecoder, ColumnEncoder
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.registries import fetch_version, registry_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from rookery.spark.options import FormatOptions

SCHEMA_TYPES: Final[dict[str, SchemaType]] = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


def plan_decoder(
    options: "FormatOptions", *, topics: Sequence[str], is_key: bool, pinned: str | None = None
) -> ColumnDecoder:
    """Return a decoder. `pinned` is a result of `ColumnDecoder.pin`. Raises FormatError and RegistryDownError."""
    match options.format:
        case "string":
            from rookery.spark.formats.text import TextDecoder

            return TextDecoder()
        case "json":
            from rookery.spark.formats.ddl import parse_type
            from rookery.spark.formats.json_decoder import JsonDecoder

            if options.schema is None:
                raise FormatError(f"the format json needs a schema: set {field_of(is_key=is_key)}Schema")
            return JsonDecoder(parse_type(options.schema))
        case "avro" | "json-schema" | "protobuf":
            return _plan_registered(options, topics, is_key=is_key, pinned=pinned)
    raise _unknown(options)


def plan_encoder(options: "FormatOptions", spark_type: "DataType", *, topic: str, is_key: bool) -> ColumnEncoder:
    """Return an encoder, after registering its schema if necessary. Raises FormatError and RegistryDownError."""
    match options.format:
        case "string":
            from rookery.spark.formats.text import TextEncoder

            return TextEncoder(spark_type)
        case "json":
            from rookery.spark.formats.json_encoder import JsonEncoder

            return JsonEncoder(spark_type)
        case "avro":
            from rookery.spark.formats.avro.encoder import AvroEncoder

            return AvroEncoder.plan(options, spark_type, topic=topic, is_key=is_key)
        case "json-schema":
            from rookery.spark.formats.json_encoder import JsonSchemaEncoder

            return JsonSchemaEncoder.plan(options, spark_type, topic=topic, is_key=is_key)
        case "protobuf":
            from rookery.spark.formats.protobuf_encoder import ProtobufEncoder

            return ProtobufEncoder.plan(options, spark_type, topic=topic, is_key=is_key)
    raise _unknown(options)


def _unknown(options: "FormatOptions") -> FormatError:
    return FormatError(f"unknown format {options.format}: use avro, json, json-schema, protobuf or string")


def _plan_registered(
    options: "FormatOptions", topics: Sequence[str], *, is_key: bool, pinned: str | None
) -> ColumnDecoder:
    settings = options.registry
    registry_of(settings)
    schema, schema_id = (None, None) if pinned else reader_schema(options, topics, is_key=is_key)
    match options.format:
        case "avro":
            from rookery.spark.formats.avro.decoder import AvroDecoder

            if schema is None:
                return AvroDecoder.of_pin(pinned or "", settings)
            return AvroDecoder.of(schema, schema_id, settings)
        case "json-schema":
            from rookery.spark.formats.json_decoder import JsonSchemaDecoder

            if schema is None:
                return JsonSchemaDecoder.of_pin(pinned or "", settings)
            return JsonSchemaDecoder.of(schema, schema_id, settings)
        case _:
            from rookery.spark.formats.protobuf_decoder import ParsedReader, ProtobufDecoder

            if schema is None:
                return ProtobufDecoder.of_pin(pinned or "", settings)
            return ProtobufDecoder(ParsedReader.of(schema, options.message, settings), schema_id, settings)


def reader_schema(options: "FormatOptions", topics: Sequence[str], *, is_key: bool) -> tuple[Schema, int | None]:
    """Return the reader's schema, and its id if it comes from the registry."""
    schema_type = SCHEMA_TYPES[options.format]
    if options.schema is not None:
        return Schema(options.schema, schema_type), None
    field = field_of(is_key=is_key)
    subjects = [options.subject] if options.subject else [f"{topic}-{field}" for topic in topics]
    if not subjects:
        raise FormatError(f"no topic to derive the subject from: set {field}Subject or {field}Schema")
    registry = registry_of(options.registry)
    found = [fetch_version(registry, subject, options.version, schema_type) for subject in subjects]
    if len({each.schema for each in found}) > 1:
        named = ", ".join(each.subject for each in found)
        raise FormatError(f"{named} have different schemas: set {field}Subject or {field}Schema to use one for all")
    return found[0].schema, found[0].id
