"""Finds the schemas to read a record with: the writer's, by the id in the data, and the reader's, if there is one.

Both are fetched once and cached. The reader's schema is the deserializer's own, or with `use.latest.version` the latest
of the subject when it is first needed.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rookery.schemas.interface import SchemaType
from rookery.serdes.caches import OnceCache
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError
from rookery.serdes.registration import fetch_by_id, fetch_latest
from rookery.serdes.settings import DeserializerSettings
from rookery.serdes.subjects import SerializationContext


class NamedSchema(Protocol):
    @property
    def name(self) -> str | None: ...


_Parsed = TypeVar("_Parsed", bound=NamedSchema)


class SchemaSource(Generic[_Parsed]):
    """The schemas of one deserializer. `parse` returns a schema in the form of the format's library."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: DeserializerSettings,
        *,
        schema_type: SchemaType,
        parse: Callable[[Schema], _Parsed],
        own: Schema | None,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._schema_type = schema_type
        self._own = own
        self._schemas: OnceCache[Schema, _Parsed] = OnceCache(parse)
        self._writers: OnceCache[int, _Parsed] = OnceCache(self._fetch_writer)
        self._latest: OnceCache[str, _Parsed] = OnceCache(self._fetch_latest)
        if own is not None:
            # Parse it now, so that an invalid schema raises in the constructor.
            self._schemas[own]

    def writer(self, schema_id: int) -> _Parsed:
        return self._writers[schema_id]

    def reader(self, context: SerializationContext, writer: _Parsed) -> _Parsed | None:
        """Return the reader's schema, or None if data is read with the writer's schema only."""
        if self._own is not None:
            return self._schemas[self._own]
        if not self._settings.uses_latest:
            return None
        return self._latest[self._settings.subject_of(context, writer.name)]

    def _fetch_writer(self, schema_id: int) -> _Parsed:
        schema = fetch_by_id(self._registry, schema_id, self._schema_type)
        return self._parse_registered(schema, f"with the id {schema_id}")

    def _fetch_latest(self, subject: str) -> _Parsed:
        schema = fetch_latest(self._registry, subject, self._schema_type).schema
        return self._parse_registered(schema, f"that is the latest of {subject}")

    def _parse_registered(self, schema: Schema, which: str) -> _Parsed:
        try:
            return self._schemas[schema]
        except InvalidSchemaError as error:
            raise InvalidDataError(f"the schema {which} cannot be used: {error}") from error
