"""The base classes of the serializers and deserializers of all formats.

A subclass says how its format parses a schema, and how it encodes and decodes one value. The base classes choose the
schema, write and read the prefix, and call the program's conversion functions. Each schema is parsed once.

All serializers and deserializers can be pickled. A copy does not contain what was cached from the registry, and fetches
it again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rookery.schemas.interface import SchemaType
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError, SerdesError, describe
from rookery.serdes.reader_schemas import NamedSchema, SchemaSource
from rookery.serdes.registration import Registration, SchemaWithId, as_schema
from rookery.serdes.settings import DeserializerSettings, SerializerSettings
from rookery.serdes.subjects import Convert, SerializationContext, field_of
from rookery.serdes.wire import read_prefix

_Target = TypeVar("_Target")
_Parsed = TypeVar("_Parsed", bound=NamedSchema)


class Serializer(ABC, Generic[_Target]):
    """Callable with a topic and a value; returns the bytes. Thread-safe."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: SerializerSettings,
        *,
        schema_type: SchemaType,
        has_own: bool,
        record_name: str | None,
        to_dict: Convert | None,
        is_key: bool,
    ) -> None:
        self._to_dict = to_dict
        self._field = field_of(is_key=is_key)
        self._registration: Registration[_Target] = Registration(
            registry,
            settings,
            schema_type=schema_type,
            parse=self._parse,
            own_schema=self._own_schema if has_own else None,
            record_name=record_name,
            field=self._field,
        )

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        self._check(value)
        target = self._registration.target(topic)
        if self._to_dict is not None:
            value = self._convert(topic, value, self._to_dict)
        return target.prefix + self._encode(target.schema, value)

    def _check(self, value: Any) -> None:
        """Check the type of `value` before any request to the registry. Raises InvalidValueError."""

    def _convert(self, topic: str, value: Any, to_dict: Convert) -> Any:
        try:
            return to_dict(value, SerializationContext(topic, self._field))
        except SerdesError:
            raise
        except Exception as error:
            raise InvalidValueError(f"to_dict failed: {describe(error)}") from error

    @abstractmethod
    def _own_schema(self) -> Schema:
        """Return the serializer's own schema. The schemas that it refers to are registered before this returns."""

    @abstractmethod
    def _parse(self, chosen: SchemaWithId) -> _Target:
        """Return what `_encode` needs of the schema to write with."""

    @abstractmethod
    def _encode(self, schema: _Target, value: Any) -> bytes:
        """Return the payload after the prefix. Raises InvalidValueError."""


class TextSerializer(Serializer[_Parsed]):
    """The base class for formats in which the program passes the schema as text."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: SerializerSettings,
        schema: str | Schema | None,
        *,
        schema_type: SchemaType,
        parse: Callable[[Schema], _Parsed],
        to_dict: Convert | None,
        is_key: bool,
    ) -> None:
        self._own = as_schema(schema, schema_type)
        self._schemas: OnceCache[Schema, _Parsed] = OnceCache(parse)
        super().__init__(
            registry,
            settings,
            schema_type=schema_type,
            has_own=self._own is not None,
            record_name=None if self._own is None else self._schemas[self._own].name,
            to_dict=to_dict,
            is_key=is_key,
        )

    def _own_schema(self) -> Schema:
        assert self._own is not None
        return self._own

    def _parse(self, chosen: SchemaWithId) -> _Parsed:
        return self._schemas[chosen.schema]


class Deserializer(ABC):
    """Callable with a topic and data; returns the value. Thread-safe."""

    def __init__(self, *, from_dict: Convert | None, is_key: bool) -> None:
        self._from_dict = from_dict
        self._field = field_of(is_key=is_key)

    def __call__(self, topic: str, data: bytes | bytearray | memoryview | None) -> Any:
        if data is None:
            return None
        schema_id, payload = read_prefix(data)
        context = SerializationContext(topic, self._field)
        value = self._decode(context, schema_id, payload)
        if self._from_dict is None:
            return value
        try:
            return self._from_dict(value, context)
        except SerdesError:
            raise
        except Exception as error:
            raise InvalidDataError(f"from_dict failed: {describe(error)}") from error

    @abstractmethod
    def _decode(self, context: SerializationContext, schema_id: int, payload: bytes) -> Any:
        """Return the value in `payload`, the bytes after the schema id. Raises InvalidDataError."""


class TextDeserializer(Deserializer, Generic[_Parsed]):
    """The base class for formats in which the program passes the reader's schema as text."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: DeserializerSettings,
        schema: str | Schema | None,
        *,
        schema_type: SchemaType,
        parse: Callable[[Schema], _Parsed],
        from_dict: Convert | None,
        is_key: bool,
    ) -> None:
        super().__init__(from_dict=from_dict, is_key=is_key)
        own = as_schema(schema, schema_type)
        self._source = SchemaSource(registry, settings, schema_type=schema_type, parse=parse, own=own)
