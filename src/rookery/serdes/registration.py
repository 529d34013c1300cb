"""Chooses the schema that a record is written with, and its id. The registry is asked once per subject.

use.schema.id              the schema with that id
use.latest.version         the latest schema of the subject when it is first needed
auto.register.schemas      the serializer's own schema, which is registered if it is new (the default)
none of these              the serializer's own schema, which must be registered already
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


class SchemaWithId(NamedTuple):
    schema_id: int
    schema: Schema


def as_schema(schema: str | Schema | None, schema_type: SchemaType) -> Schema | None:
    """Return the argument of a serializer as a Schema. A text becomes a schema without references."""
    if isinstance(schema, str):
        return Schema(schema, schema_type)
    if schema is not None and schema.schema_type != schema_type:
        raise ConfigError(f"the schema is {schema.schema_type}, but this is for {schema_type}")
    return schema


def check_type(schema: Schema, schema_type: SchemaType, which: str) -> Schema:
    """Check the type of a schema from the registry. `which` describes the schema in the error's text."""
    if schema.schema_type != schema_type:
        raise InvalidDataError(f"the schema {which} is {schema.schema_type}, not {schema_type}")
    return schema


def _is_unknown(error: RegistryRequestError) -> bool:
    """Whether a registry reports that the schema does not exist.

    The error codes of registries differ, so the status decides. A server that is not a registry sends no code.
    """
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


def fetch_latest(registry: RegistryClient, subject: str, schema_type: SchemaType) -> SchemaWithId:
    try:
        found = registry.get_version(subject)
    except RegistryRequestError as error:
        if not _is_unknown(error):
            raise
        raise NotRegisteredError(
            f"use.latest.version: the subject {subject} has no schema; register one first, or check "
            "subject.name.strategy"
        ) from error
    return SchemaWithId(found.id, check_type(found.schema, schema_type, f"that is the latest of {subject}"))


class Target(NamedTuple, Generic[_Parsed]):
    """What a serializer needs to write a record: the prefix, and the schema in the form of the format's library."""

    prefix: bytes
    schema: _Parsed


class Registration(Generic[_Parsed]):
    """Chooses the schemas for one serializer.

    `own_schema` returns the serializer's own schema after it has registered the schemas that it refers to; None if the
    serializer has no schema. `record_name` is the name of the record in that schema.
    """

    def __init__(
        self,
        registry: RegistryClient,
        settings: SerializerSettings,
        *,
        schema_type: SchemaType,
        parse: Callable[[SchemaWithId], _Parsed],
        own_schema: Callable[[], Schema] | None,
        record_name: str | None,
        field: Field,
    ) -> None:
        if own_schema is None and settings.needs_schema:
            raise ConfigError("give a schema, or set use.latest.version or use.schema.id")
        self._registry = registry
        self._settings = settings
        self._schema_type = schema_type
        self._parse = parse
        self._own_schema = own_schema
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

    def _choose(self, subject: str) -> SchemaWithId:
        if self._settings.schema_id is not None:
            schema_id = self._settings.schema_id
            return SchemaWithId(schema_id, fetch_by_id(self._registry, schema_id, self._schema_type))
        if self._settings.uses_latest:
            return fetch_latest(self._registry, subject, self._schema_type)
        assert self._own_schema is not None
        schema = self._own_schema()
        if self._settings.registers:
            return SchemaWithId(self._registry.register(subject, schema, normalize=self._settings.normalizes), schema)
        return SchemaWithId(look_up(self._registry, subject, schema, normalize=self._settings.normalizes).id, schema)


def look_up(registry: RegistryClient, subject: str, schema: Schema, *, normalize: bool) -> RegisteredSchema:
    try:
        return registry.look_up(subject, schema, normalize=normalize)
    except RegistryRequestError as error:
        if not _is_unknown(error):
            raise
        raise NotRegisteredError(
            f"the schema is not registered under the subject {subject}; register it, or set auto.register.schemas"
        ) from error
