"""Fetches writers' schemas from the registry. All decoders of a process share the registry clients.

A schema is fetched once per id. An id that the registry does not have is an error of the rows with that id; it is
requested again after a while, because the schema may be restored. The number of such requests in that time is limited:
data that was not written with a registry contains arbitrary ids. A registry that does not respond is not an error of a
row but ends the query, so that valid records are not treated as malformed.
"""

import os
from collections.abc import Callable, Container, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final, Generic, TypeVar

from rookery.base.clock import Clock, SystemClock
from rookery.schemas.interface import SchemaType
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.entities import RegisteredSchema
from rookery.serdes.errors import (
    InvalidDataError,
    InvalidSchemaError,
    NotRegisteredError,
    RegistryRequestError,
    SerdesError,
)
from rookery.serdes.registration import check_type, fetch_by_id
from rookery.serdes.settings import (
    AVRO_SERIALIZER_KEYS,
    JSON_DESERIALIZER_KEYS,
    JSON_SERIALIZER_KEYS,
    PROTOBUF_SERIALIZER_KEYS,
    REGISTRY_KEYS,
)
from rookery.serdes.transport import NO_CODE
from rookery.spark.formats.columns import RowError
from rookery.spark.formats.errors import FormatError, wrap_registry_errors

_URL: Final = "schema.registry.url"
_UNKNOWN_REMEMBERED_S: Final = 10.0
_UNKNOWN_MAX: Final = 1000
_NOT_FOUND: Final = 404

_STRATEGY: Final = "subject.name.strategy"
_ALL_KEYS: Final = (
    _URL,
    _STRATEGY,
    *dict.fromkeys(
        (
            *REGISTRY_KEYS,
            *AVRO_SERIALIZER_KEYS,
            *JSON_SERIALIZER_KEYS,
            *PROTOBUF_SERIALIZER_KEYS,
            *JSON_DESERIALIZER_KEYS,
        )
    ),
)

_Parsed = TypeVar("_Parsed")


def serdes_settings(settings: Mapping[str, str], keys: Container[str]) -> dict[str, str]:
    """Return the settings that a serializer or deserializer with `keys` supports; both may share one dictionary.

    Raises FormatError for a key that none supports.
    """
    for key in settings:
        if key not in _ALL_KEYS:
            near = get_close_matches(key, _ALL_KEYS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise FormatError(f"unknown setting {key} of a registry or a serializer{hint}")
    return {key: value for key, value in settings.items() if key == _STRATEGY or key in keys}


def registry_of(settings: Mapping[str, str]) -> RegistryClient:
    if not settings.get(_URL):
        raise FormatError("set schema.registry.url: this format needs a schema registry")
    return _client(
        os.getpid(), tuple(sorted((key, settings[key]) for key in (_URL, *REGISTRY_KEYS) if key in settings))
    )


@cache
def _client(_process: int, settings: tuple[tuple[str, str], ...]) -> RegistryClient:
    """Create a client per process: a forked process must not share its parent's connection."""
    config = dict(settings)
    with wrap_registry_errors():
        return RegistryClient(config.pop(_URL), config)


def fetch_version(registry: RegistryClient, subject: str, version: str, schema_type: SchemaType) -> RegisteredSchema:
    with wrap_registry_errors():
        try:
            found = registry.get_version(subject, "latest" if version == "latest" else int(version))
        except RegistryRequestError as error:
            if error.status != _NOT_FOUND:
                raise
            raise FormatError(
                f"the registry has no version {version} of the subject {subject} ({error.message}): register a schema, "
                "or set the schema or the subject with an option"
            ) from error
    try:
        check_type(found.schema, schema_type, f"of {subject}")
    except InvalidDataError as error:
        raise FormatError(f"{error}: check the format") from error
    return found


class WriterSchemas(Generic[_Parsed]):
    """The writers' schemas by id. `parse` converts a schema for the decoder; it may raise InvalidSchemaError."""

    def __init__(
        self,
        registry: Callable[[], RegistryClient],
        schema_type: SchemaType,
        parse: Callable[[Schema], _Parsed],
        clock: Clock | None = None,
    ) -> None:
        self._registry = registry
        self._schema_type = schema_type
        self._parse = parse
        self._clock = clock or SystemClock()
        self._known: dict[int, _Parsed] = {}
        self._unknown: dict[int, SerdesError] = {}
        self._forget_at_s = 0.0

    def find(self, schema_id: int) -> _Parsed | SerdesError:
        """Return the parsed schema, or the error of all rows with this id. Raises RegistryDownError."""
        if schema_id in self._known:
            return self._known[schema_id]
        now = self._clock.monotonic()
        if now >= self._forget_at_s:
            self._unknown.clear()
            self._forget_at_s = now + _UNKNOWN_REMEMBERED_S
        if schema_id in self._unknown:
            return self._unknown[schema_id]
        if len(self._unknown) >= _UNKNOWN_MAX:
            return NotRegisteredError(
                f"the schema with the id {schema_id} was not requested: the registry did not have {_UNKNOWN_MAX} other "
                f"ids in the last {_UNKNOWN_REMEMBERED_S:.0f} s. Was this data written with a registry, and which one?"
            )
        try:
            with wrap_registry_errors():
                self._known[schema_id] = self._fetch(schema_id)
        except (NotRegisteredError, InvalidDataError) as error:
            self._unknown[schema_id] = error
            return error
        return self._known[schema_id]

    def _fetch(self, schema_id: int) -> _Parsed:
        schema = fetch_by_id(self._registry(), schema_id, self._schema_type)
        try:
            return self._parse(schema)
        except InvalidSchemaError as error:
            raise InvalidDataError(f"the schema with the id {schema_id} cannot be used: {error}") from error
        except RegistryRequestError as error:
            # Only a registry sends an error code. A 404 without one comes from another server, such as a proxy.
            if error.status != _NOT_FOUND or error.code == NO_CODE:
                raise
            raise NotRegisteredError(
                f"the schema with the id {schema_id} refers to one that the registry does not have: {error.message}"
            ) from error


def row_error(row: int, error: SerdesError) -> RowError:
    return RowError(row, type(error).__name__, str(error))
