"""The names of `rookery.serdes` that are loaded on first access.

Each format needs its own library; a program that writes Avro should not load Protobuf. `__init__.pyi` declares the same
names for type checkers.
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
