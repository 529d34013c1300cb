from rookery.schemas.interface import Reference as Reference
from rookery.serdes import errors as errors
from rookery.serdes.avro import AvroDeserializer as AvroDeserializer
from rookery.serdes.avro import AvroSerializer as AvroSerializer
from rookery.serdes.client import RegistryClient as RegistryClient
from rookery.serdes.entities import Compatibility as Compatibility
from rookery.serdes.entities import Config as Config
from rookery.serdes.entities import RegisteredSchema as RegisteredSchema
from rookery.serdes.entities import Schema as Schema
from rookery.serdes.entities import SubjectVersion as SubjectVersion
from rookery.serdes.json_schema import JSONSchemaDeserializer as JSONSchemaDeserializer
from rookery.serdes.json_schema import JSONSchemaSerializer as JSONSchemaSerializer
from rookery.serdes.protobuf import ProtobufDeserializer as ProtobufDeserializer
from rookery.serdes.protobuf import ProtobufSerializer as ProtobufSerializer
from rookery.serdes.subjects import SerializationContext as SerializationContext
from rookery.serdes.subjects import record_subject_name_strategy as record_subject_name_strategy
from rookery.serdes.subjects import topic_record_subject_name_strategy as topic_record_subject_name_strategy
from rookery.serdes.subjects import topic_subject_name_strategy as topic_subject_name_strategy

__all__: list[str]
