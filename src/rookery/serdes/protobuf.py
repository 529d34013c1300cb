"""The Protobuf serializer and deserializer, for generated classes or classes made from the registered schema.

The schema of a message is the whole file that declares it; the message indexes in the data say which message type of
the file it is. The files that it imports are registered first, under their own names, and become its references. Files
that every registry has built in (google/protobuf, google/type, confluent) are not registered.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from rookery.schemas.interface import Reference
from rookery.schemas.protobuf import ProtobufSchema, parse
from rookery.serdes.base import Deserializer, Serializer
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, InvalidValueError
from rookery.serdes.registration import SchemaWithId, fetch_by_id, look_up
from rookery.serdes.settings import (
    PROTOBUF_DESERIALIZER_KEYS,
    PROTOBUF_SERIALIZER_KEYS,
    DeserializerSettings,
    SerializerSettings,
)
from rookery.serdes.subjects import SerializationContext
from rookery.serdes.wire import encode_indexes, read_indexes

_KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufSerializer(Serializer[bytes]):
    """Serializes messages of one class, as values, or as keys if `is_key`. `config` has Confluent's names."""

    def __init__(
        self,
        registry: RegistryClient,
        message_type: type[Message],
        *,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        self._registry = registry
        self._settings = SerializerSettings.parse(PROTOBUF_SERIALIZER_KEYS, config)
        self._skips_known = self._settings.values.boolean("skip.known.types")
        self._type = message_type
        self._schemas: OnceCache[Schema, ProtobufSchema] = OnceCache(partial(_parse, registry))
        super().__init__(
            registry,
            self._settings,
            schema_type="PROTOBUF",
            has_own=True,
            record_name=message_type.DESCRIPTOR.full_name,
            to_dict=None,
            is_key=is_key,
        )

    def _check(self, value: Any) -> None:
        if not isinstance(value, self._type):
            name = self._type.DESCRIPTOR.full_name
            raise InvalidValueError(f"expected a message {name}, not {type(value).__name__}")

    def _encode(self, schema: bytes, value: Message) -> bytes:
        """Return the message after its indexes, which `_parse` encoded."""
        try:
            encoded: bytes = value.SerializeToString()
        except EncodeError as error:
            raise InvalidValueError(f"{error}; missing: {', '.join(value.FindInitializationErrors())}") from error
        return schema + encoded

    def _parse(self, chosen: SchemaWithId) -> bytes:
        """Return the encoded indexes of the message type in the registered schema.

        They may differ from those in the program's own file, if the registry normalized the schema or if the settings
        choose another file.
        """
        schema_id, schema = chosen
        if self._settings.normalizes:
            schema = fetch_by_id(self._registry, schema_id, "PROTOBUF")
        parsed, name = self._schemas[schema], self._type.DESCRIPTOR.full_name
        try:
            return encode_indexes(parsed.find_message_indexes(name))
        except KeyError:
            raise InvalidValueError(f"the schema with the id {schema_id} has no message {name}") from None

    def _own_schema(self) -> Schema:
        return self._file_schema(self._type.DESCRIPTOR.file)

    def _file_schema(self, file: FileDescriptor) -> Schema:
        """Return the schema of a file, after the files that it imports are registered."""
        text = b64encode(file.serialized_pb).decode()
        return Schema(text, "PROTOBUF", tuple(self._references(file)))

    def _references(self, file: FileDescriptor) -> Iterator[Reference]:
        for imported in file.dependencies:
            if self._skips_known and imported.name.startswith(_KNOWN_FILES):
                continue
            schema, normalize = self._file_schema(imported), self._settings.normalizes
            if self._settings.registers:
                self._registry.register(imported.name, schema, normalize=normalize)
            found = look_up(self._registry, imported.name, schema, normalize=normalize)
            yield Reference(imported.name, imported.name, found.version)


class ProtobufDeserializer(Deserializer):
    """Deserializes messages.

    With `message_type`, messages have that class, and the registry is not asked. Without it, the class is made from the
    registered schema that the message was written with. `is_key` and `config` exist because the other deserializers
    have them.
    """

    def __init__(
        self,
        registry: RegistryClient,
        message_type: type[Message] | None = None,
        *,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        super().__init__(from_dict=None, is_key=is_key)
        DeserializerSettings.parse(PROTOBUF_DESERIALIZER_KEYS, config)
        self._registry = registry
        self._type = message_type
        self._schemas: OnceCache[int, ProtobufSchema] = OnceCache(self._fetch)
        self._types: OnceCache[tuple[int, tuple[int, ...]], type[Message]] = OnceCache(self._make_type)

    def _decode(self, context: SerializationContext, schema_id: int, payload: bytes) -> Message:
        indexes, encoded = read_indexes(payload)
        message = (self._type or self._types[schema_id, indexes])()
        try:
            message.ParseFromString(encoded)
        except DecodeError as error:
            name = message.DESCRIPTOR.full_name
            raise InvalidDataError(f"data of the schema {schema_id} is not a valid message {name}: {error}") from error
        return message

    def _fetch(self, schema_id: int) -> ProtobufSchema:
        schema = fetch_by_id(self._registry, schema_id, "PROTOBUF")
        try:
            return _parse(self._registry, schema)
        except InvalidSchemaError as error:
            raise InvalidDataError(f"the schema with the id {schema_id} cannot be used: {error}") from error

    def _make_type(self, key: tuple[int, tuple[int, ...]]) -> type[Message]:
        schema_id, indexes = key
        schema = self._schemas[schema_id]
        try:
            return schema.message_class(schema.find_message_name(indexes))
        except KeyError:
            raise InvalidDataError(f"the schema with the id {schema_id} has no message at {list(indexes)}") from None


def _parse(registry: RegistryClient, schema: Schema) -> ProtobufSchema:
    return parse(schema.text, registry.resolve(schema), schema.references)
