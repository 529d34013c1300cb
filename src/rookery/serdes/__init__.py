"""Serializers and deserializers whose schemas are stored in a schema registry. docs/serdes.md is the guide."""

from rookery.schemas.interface import Reference
from rookery.serdes import errors
from rookery.serdes.entities import Compatibility, Config, RegisteredSchema, Schema, SubjectVersion
from rookery.serdes.exports import __getattr__
from rookery.serdes.subjects import (
    SerializationContext,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "Compatibility",
    "Config",
    "JSONSchemaDeserializer",
    "JSONSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "RegistryClient",
    "Schema",
    "SerializationContext",
    "SubjectVersion",
    "__getattr__",
    "errors",
    "record_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]
