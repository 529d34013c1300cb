"""The names of `rookery.serdes` that are loaded when they are first asked for.

Each format needs a library of its own; who writes Avro should not load Protobuf. `__init__.pyi` tells type checkers the
same names.
"""


def __getattr__(name: str) -> object:
    match name:
        case "AvroDeserializer" | "AvroSerializer":
            from rookery.serdes import avro

            return getattr(avro, name)
        case "JSONSchemaDeserializer" | "JSONSchemaSerializer":
            from rookery.serdes import json_schema

            return getattr(json_schema, name)
        case "ProtobufDeserializer" | "ProtobufSerializer":
            from rookery.serdes import protobuf

            return getattr(protobuf, name)
        case "RegistryClient":
            from rookery.serdes.client import RegistryClient

            return RegistryClient
        case _:
            raise AttributeError(f"module 'rookery.serdes' has no attribute {name!r}")
