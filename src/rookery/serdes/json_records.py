"""Reads and writes records of any schema format as plain JSON, for the command line and for tests.

`JsonReader` decodes data in the wire format; the schema says which format it has. `JsonWriter` encodes JSON values with
a schema of the topic's subject: one that it registers, or the latest.
"""

from collections.abc import Callable
from typing import Any, Final

from rookery.base.errors import ConfigError
from rookery.schemas.interface import SchemaType
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError
from rookery.serdes.registration import SchemaWithId, fetch_latest
from rookery.serdes.subjects import SerializationContext, field_of, topic_subject_name_strategy
from rookery.serdes.wire import read_prefix

Decode = Callable[[str, bytes], Any]
Encode = Callable[[str, Any], "bytes | None"]


class JsonReader:
    """Callable with a topic and data; returns the value in JSON's types.

    With `schema_type`, data of other types is rejected. Without it, the schema whose id is in the data decides.
    """

    def __init__(
        self, registry: RegistryClient, *, is_key: bool = False, schema_type: SchemaType | None = None
    ) -> None:
        self._registry = registry
        self._is_key = is_key
        self._schema_type = schema_type
        self._decoders: OnceCache[SchemaType, Decode] = OnceCache(self._make)

    def __call__(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, _ = read_prefix(data)
        schema_type = self._registry.get_by_id(schema_id).schema_type
        if self._schema_type not in (None, schema_type):
            raise InvalidDataError(f"the schema {schema_id} is {schema_type}, not {self._schema_type}")
        return self._decoders[schema_type](topic, data)

    def _make(self, schema_type: SchemaType) -> Decode:
        return _DECODERS[schema_type](self._registry, self._is_key)


class JsonWriter:
    """Callable with a JSON value; returns the bytes of a record for one topic.

    `schema` is registered under the topic's subject if it is new. Without it, the subject's latest schema is used,
    which must have the type `schema_type` if that is given. `message` is the name of the message type in a Protobuf
    file; the default is the first one.
    """

    def __init__(
        self,
        registry: RegistryClient,
        topic: str,
        *,
        is_key: bool = False,
        schema_type: SchemaType | None = None,
        schema: Schema | None = None,
        message: str | None = None,
    ) -> None:
        self._topic = topic
        subject = topic_subject_name_strategy(SerializationContext(topic, field_of(is_key=is_key)), None)
        chosen = _choose(registry, subject, schema_type, schema)
        if message is not None and chosen.schema.schema_type != "PROTOBUF":
            raise ConfigError(f"{message}: only a Protobuf schema has messages to choose from")
        self._encode = _ENCODERS[chosen.schema.schema_type](registry, chosen, is_key, message)

    def __call__(self, value: Any) -> bytes | None:
        return None if value is None else self._encode(self._topic, value)


def _choose(
    registry: RegistryClient, subject: str, schema_type: SchemaType | None, schema: Schema | None
) -> SchemaWithId:
    if schema is not None:
        if schema_type not in (None, schema.schema_type):
            raise ConfigError(f"the schema is {schema.schema_type}, but {schema_type} is requested")
        return SchemaWithId(registry.register(subject, schema), schema)
    if schema_type is not None:
        return fetch_latest(registry, subject, schema_type)
    found = registry.get_version(subject)
    return SchemaWithId(found.id, found.schema)


def _avro_decoder(registry: RegistryClient, is_key: bool) -> Decode:
    from rookery.serdes.avro import AvroDeserializer
    from rookery.serdes.avro_json import to_json

    return AvroDeserializer(registry, from_dict=lambda value, _: to_json(value), is_key=is_key)


def _json_decoder(registry: RegistryClient, is_key: bool) -> Decode:
    from rookery.serdes.json_schema import JSONSchemaDeserializer

    return JSONSchemaDeserializer(registry, is_key=is_key)


def _protobuf_decoder(registry: RegistryClient, is_key: bool) -> Decode:
    from google.protobuf.json_format import MessageToDict

    from rookery.serdes.protobuf import ProtobufDeserializer

    decode = ProtobufDeserializer(registry, is_key=is_key)
    return lambda topic, data: MessageToDict(decode(topic, data), preserving_proto_field_name=True)


def _avro_encoder(registry: RegistryClient, chosen: SchemaWithId, is_key: bool, message: str | None) -> Encode:
    from rookery.serdes.avro import AvroSerializer
    from rookery.serdes.avro_json import from_json
    from rookery.serdes.avro_schema import parse_avro

    root = parse_avro(registry, chosen.schema).root
    return AvroSerializer(
        registry, to_dict=lambda value, _: from_json(root, value), is_key=is_key, config=_by_id(chosen)
    )


def _json_encoder(registry: RegistryClient, chosen: SchemaWithId, is_key: bool, message: str | None) -> Encode:
    from rookery.serdes.json_schema import JSONSchemaSerializer

    return JSONSchemaSerializer(registry, is_key=is_key, config=_by_id(chosen))


def _protobuf_encoder(registry: RegistryClient, chosen: SchemaWithId, is_key: bool, message: str | None) -> Encode:
    from google.protobuf.json_format import ParseDict, ParseError

    from rookery.schemas.protobuf import parse
    from rookery.serdes.protobuf import ProtobufSerializer

    schema = chosen.schema
    parsed = parse(schema.text, registry.resolve(schema), schema.references)
    try:
        message_type = parsed.message_class(message or parsed.find_message_name((0,)))
    except KeyError:
        raise ConfigError(f"the schema with the id {chosen.schema_id} has no message {message}") from None
    serialize = ProtobufSerializer(registry, message_type, is_key=is_key, config=_by_id(chosen))

    def encode(topic: str, value: Any) -> bytes | None:
        try:
            return serialize(topic, ParseDict(value, message_type()))
        except ParseError as error:
            raise InvalidValueError(str(error)) from None

    return encode


def _by_id(chosen: SchemaWithId) -> dict[str, object]:
    return {"use.schema.id": chosen.schema_id}


_DECODERS: Final = {"AVRO": _avro_decoder, "JSON": _json_decoder, "PROTOBUF": _protobuf_decoder}
_ENCODERS: Final = {"AVRO": _avro_encoder, "JSON": _json_encoder, "PROTOBUF": _protobuf_encoder}
