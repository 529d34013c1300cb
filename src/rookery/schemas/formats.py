"""The formats by name. Each is loaded when it is first asked for, with the libraries that it needs."""

from typing import Final, get_args

from rookery.schemas.interface import Format, SchemaType

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
