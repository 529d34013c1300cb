"""What the serializers and deserializers of all formats have in common.

A format says how it parses a schema, and how it encodes and decodes one value. Which schema that is, the first bytes,
and the program's own conversions are done here. Each schema is parsed once.

All of them can be pickled: what they learned from the registry is left behind, and asked for again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rookery.schemas.interface import SchemaType
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError, SerdesError, describe
from rookery.serdes.reader_schemas import NamedSchema, Sources
from rookery.serdes.registration import Chosen, Registration, as_schema
from rookery.serdes.settings import DeserializerSettings, SerializerSettings
from rookery.serdes.subjects import Convert, SerializationContext, field_of
from rookery.serdes.wire import read_prefix

_Target = TypeVar("_Target")
_Parsed = TypeVar("_Parsed", bound=NamedSchema)


class Serializer(ABC, Generic[_Target]):
    """A function of topic and value; any thread may call it."""

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
            complete=self._complete if has_own else None,
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
        """Before the registry is asked."""

    def _convert(self, topic: str, value: Any, to_dict: Convert) -> Any:
        try:
            return to_dict(value, SerializationContext(topic, self._field))
        except SerdesError:
            raise
        except Exception as error:
            raise InvalidValueError(f"to_dict failed: {describe(error)}") from error

    @abstractmethod
    def _complete(self) -> Schema:
        """The serializer's own schema, with the schemas registered that it refers to."""

    @abstractmethod
    def _parse(self, chosen: Chosen) -> _Target:
        """What `_encode` needs to know of the schema that is written with."""

    @abstractmethod
    def _encode(self, schema: _Target, value: Any) -> bytes:
        """Raises InvalidValueError."""


class TextSerializer(Serializer[_Parsed]):
    """Of formats whose schemas are texts that a program gives."""

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

    def _complete(self) -> Schema:
        assert self._own is not None
        return self._own

    def _parse(self, chosen: Chosen) -> _Parsed:
        return self._schemas[chosen.schema]


class Deserializer(ABC):
    """A function of topic and data; any thread may call it."""

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
        """Raises InvalidDataError."""


class TextDeserializer(Deserializer, Generic[_Parsed]):
    """Of formats whose schemas are texts that a program gives."""

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
        self._sources = Sources(registry, settings, schema_type=schema_type, parse=parse, own=own)
