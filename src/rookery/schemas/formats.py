"""The formats by name. A format and its libraries are loaded on first use."""

from typing import Final, get_args

from rookery.schemas.interface import Format, ParsedSchema, SchemaType

SCHEMA_TYPES: Final[tuple[SchemaType, ...]] = get_args(SchemaType)


def find_format(schema_type: SchemaType) -> Format:
    match schema_type:
        case "AVRO":
            from rookery.schemas import avro

            return avro
        case "JSON":
            from rookery.schemas import json_schema

            return json_schema
        case "PROTOBUF":
            from rookery.schemas import protobuf

            return protobuf


def top_level_fields(schema: ParsedSchema) -> set[str]:
    """Return the names of the outermost fields, as Confluent's registry counts them for reserved names.

    They are the fields of Avro's record, the properties of JSON Schema, and the fields of all outermost messages of
    Protobuf, without those in oneofs.
    """
    raw = schema.raw
    match schema.schema_type:
        case "AVRO":
            is_record = isinstance(raw, dict) and raw.get("type") == "record"
            return {field["name"] for field in raw["fields"]} if is_record else set()
        case "JSON":
            properties = raw.get("properties") if isinstance(raw, dict) else None
            return set(properties) if isinstance(properties, dict) else set()
        case "PROTOBUF":
            return {field.name for message in raw.messages for field in message.fields}
