"""The schemas that a decoder asks the registry for. Registry clients are shared by all decoders of a process.

What an id stands for is asked once. An id that the registry does not know is an error of the rows that have it, and is
asked for again after a while: somebody may restore it. Only so many are asked for in that while: data that is no data
of a registry has any number of them. A registry that does not answer is no error of any row: that ends the query, so
that nothing is taken for malformed that is not.
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
    """What a serializer or deserializer with these keys knows: the same settings may serve both."""
    for key in settings:
        if key not in _ALL_KEYS:
            near = get_close_matches(key, _ALL_KEYS, n=1)
            hint = f"; is {near[0]} meant?" if near else ""
            raise FormatError(f"there is no setting {key} of a registry or a serializer{hint}")
    return {key: value for key, value in settings.items() if key == _STRATEGY or key in keys}


def registry_of(settings: Mapping[str, str]) -> RegistryClient:
    if not settings.get(_URL):
        raise FormatError("set schema.registry.url: this format has its schemas in a registry")
    return _client(
        os.getpid(), tuple(sorted((key, settings[key]) for key in (_URL, *REGISTRY_KEYS) if key in settings))
    )


@cache
def _client(_process: int, settings: tuple[tuple[str, str], ...]) -> RegistryClient:
    """A forked process makes its own: two cannot share a connection."""
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
                "or give the schema or the subject by an option"
            ) from error
    try:
        check_type(found.schema, schema_type, f"of {subject}")
    except InvalidDataError as error:
        raise FormatError(f"{error}: check the format") from error
    return found


class WriterSchemas(Generic[_Parsed]):
    """By id; `parse` makes of a schema what the decoder works with, and may raise InvalidSchemaError."""

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
        """The error is the same for all rows with this id."""
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
                f"the registry was not asked for a schema with the id {schema_id}: it did not know {_UNKNOWN_MAX} "
                f"others of the last {_UNKNOWN_REMEMBERED_S:.0f} s. Is this data of a registry, and of this one?"
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
            # Something that is no registry has no codes.
            if error.status != _NOT_FOUND or error.code == NO_CODE:
                raise
            raise NotRegisteredError(
                f"the schema with the id {schema_id} refers to one that the registry does not have: {error.message}"
            ) from error


def row_error(row: int, error: SerdesError) -> RowError:
    return RowError(row, type(error).__name__, str(error))
