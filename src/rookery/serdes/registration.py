"""Which schema a record is written with, and under which id: asked of the registry once per subject, then known.

use.schema.id              the schema with that id
use.latest.version         the latest one of the subject, as it is when it is first needed
auto.register.schemas      the serializer's own, which is registered if it is new (the default)
none of these              the serializer's own, which must be registered already
"""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from rookery.base.errors import ConfigError
from rookery.schemas.interface import SchemaType
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import RegisteredSchema, Schema
from rookery.serdes.errors import InvalidDataError, NotRegisteredError, RegistryRequestError
from rookery.serdes.settings import SerializerSettings
from rookery.serdes.subjects import Field, SerializationContext
from rookery.serdes.transport import NO_CODE
from rookery.serdes.wire import encode_prefix

_NOT_FOUND: Final = 404

_Parsed = TypeVar("_Parsed")


class Chosen(NamedTuple):
    schema_id: int
    schema: Schema


def as_schema(given: str | Schema | None, schema_type: SchemaType) -> Schema | None:
    """A text that refers to no other schema may stand for a schema."""
    if isinstance(given, str):
        return Schema(given, schema_type)
    if given is not None and given.schema_type != schema_type:
        raise ConfigError(f"the schema is {given.schema_type}, but this is for {schema_type}")
    return given


def check_type(schema: Schema, schema_type: SchemaType, which: str) -> Schema:
    """One that came from the registry."""
    if schema.schema_type != schema_type:
        raise InvalidDataError(f"the schema {which} is {schema.schema_type}, not {schema_type}")
    return schema


def _is_unknown(error: RegistryRequestError) -> bool:
    """Registries differ in their codes. Something that is no registry has none."""
    return error.status == _NOT_FOUND and error.code != NO_CODE


def fetch_by_id(registry: RegistryClient, schema_id: int, schema_type: SchemaType) -> Schema:
    try:
        return check_type(registry.get_by_id(schema_id), schema_type, f"with the id {schema_id}")
    except RegistryRequestError as error:
        if not _is_unknown(error):
            raise
        raise NotRegisteredError(
            f"there is no schema with the id {schema_id} in the registry at {', '.join(registry.urls)}; was the data "
            "written with another registry?"
        ) from error


def fetch_latest(registry: RegistryClient, subject: str, schema_type: SchemaType) -> Chosen:
    try:
        found = registry.get_version(subject)
    except RegistryRequestError as error:
        if not _is_unknown(error):
            raise
        raise NotRegisteredError(
            f"use.latest.version: the subject {subject} has no schema; register one first, or check "
            "subject.name.strategy"
        ) from error
    return Chosen(found.id, check_type(found.schema, schema_type, f"that is the latest of {subject}"))


class Target(NamedTuple, Generic[_Parsed]):
    """What a record is written with: its first bytes, and the schema as the format's library has it."""

    prefix: bytes
    schema: _Parsed


class Registration(Generic[_Parsed]):
    """Of one serializer. `complete` gives its own schema, with the schemas registered that it refers to; None if it has
    none. `record_name` is the name in that."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: SerializerSettings,
        *,
        schema_type: SchemaType,
        parse: Callable[[Chosen], _Parsed],
        complete: Callable[[], Schema] | None,
        record_name: str | None,
        field: Field,
    ) -> None:
        if complete is None and settings.needs_schema:
            raise ConfigError("give a schema, or set use.latest.version or use.schema.id")
        self._registry = registry
        self._settings = settings
        self._schema_type = schema_type
        self._parse = parse
        self._complete = complete
        self._record_name = record_name
        self._field = field
        self._by_topic: OnceCache[str, Target[_Parsed]] = OnceCache(self._find)
        self._by_subject: OnceCache[str, Target[_Parsed]] = OnceCache(self._make)

    def target(self, topic: str) -> Target[_Parsed]:
        return self._by_topic[topic]

    def _find(self, topic: str) -> Target[_Parsed]:
        context = SerializationContext(topic, self._field)
        return self._by_subject[self._settings.subject_of(context, self._record_name)]

    def _make(self, subject: str) -> Target[_Parsed]:
        chosen = self._choose(subject)
        return Target(encode_prefix(chosen.schema_id), self._parse(chosen))

    def _choose(self, subject: str) -> Chosen:
        if self._settings.schema_id is not None:
            schema_id = self._settings.schema_id
            return Chosen(schema_id, fetch_by_id(self._registry, schema_id, self._schema_type))
        if self._settings.uses_latest:
            return fetch_latest(self._registry, subject, self._schema_type)
        assert self._complete is not None
        schema = self._complete()
        if self._settings.registers:
            return Chosen(self._registry.register(subject, schema, normalize=self._settings.normalizes), schema)
        return Chosen(look_up(self._registry, subject, schema, normalize=self._settings.normalizes).id, schema)


def look_up(registry: RegistryClient, subject: str, schema: Schema, *, normalize: bool) -> RegisteredSchema:
    try:
        return registry.look_up(subject, schema, normalize=normalize)
    except RegistryRequestError as error:
        if not _is_unknown(error):
            raise
        raise NotRegisteredError(
            f"the schema is not registered under the subject {subject}; register it, or set auto.register.schemas"
        ) from error
