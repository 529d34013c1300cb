"""The JSON Schema serializer and deserializer: values are validated before they are written and after they are read.

A value may be anything that msgspec encodes as JSON: dictionaries, dataclasses, structs, dates. The validation sees the
JSON that will be written, not the Python object, so no type of Python's can bypass the schema.

Schemas are never fetched from the web: what a schema refers to is inside it, or is one of its references.
"""

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from rookery.schemas.json_schema import parse
from rookery.serdes.base import TextDeserializer, TextSerializer
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, InvalidValueError, format_path, shorten
from rookery.serdes.settings import (
    JSON_DESERIALIZER_KEYS,
    JSON_SERIALIZER_KEYS,
    DeserializerSettings,
    SerializerSettings,
)
from rookery.serdes.subjects import Convert, SerializationContext


class _Parsed(NamedTuple):
    validator: jsonschema_rs.Validator
    name: str | None


class JSONSchemaSerializer(TextSerializer[_Parsed]):
    """Serializes values, or keys if `is_key`, as JSON.

    `schema` may be a text if it has no references. `to_dict(value, context)` converts a program's object to the types
    that msgspec encodes. The settings in `config` have Confluent's names.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        to_dict: Convert | None = None,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        settings = SerializerSettings.parse(JSON_SERIALIZER_KEYS, config)
        parse = partial(_parse, registry)
        super().__init__(registry, settings, schema, schema_type="JSON", parse=parse, to_dict=to_dict, is_key=is_key)
        self._validates = settings.values.boolean("validate")

    def _encode(self, schema: _Parsed, value: Any) -> bytes:
        try:
            data = msgspec.json.encode(value)
            if b"null" in data:
                _reject_infinite(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidValueError(f"{error}; give to_dict to make JSON of it") from error
        if self._validates:
            _check(schema, msgspec.json.decode(data))
        return data


class JSONSchemaDeserializer(TextDeserializer[_Parsed]):
    """Deserializes values, or keys if `is_key`, from JSON.

    `schema` is the reader's schema, if there is one. `from_dict(value, context)` converts the decoded value to a
    program's object.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        from_dict: Convert | None = None,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        settings = DeserializerSettings.parse(JSON_DESERIALIZER_KEYS, config)
        parse = partial(_parse, registry)
        super().__init__(
            registry, settings, schema, schema_type="JSON", parse=parse, from_dict=from_dict, is_key=is_key
        )
        self._validates = settings.values.boolean("validate")

    def _decode(self, context: SerializationContext, schema_id: int, payload: bytes) -> Any:
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidDataError(f"data of the schema {schema_id} is not JSON: {error}") from error
        if self._validates:
            self._validate(context, schema_id, value)
        return value

    def _validate(self, context: SerializationContext, schema_id: int, value: Any) -> None:
        writer = self._source.writer(schema_id)
        try:
            _check(self._source.reader(context, writer) or writer, value)
        except InvalidValueError as error:
            raise InvalidDataError(f"data of the schema {schema_id} does not match: {error}") from error


def _reject_infinite(value: Any) -> None:
    """Raise InvalidValueError for NaN and infinities, which msgspec would silently write as null."""
    plain = msgspec.to_builtins(value)
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        path = _find_infinite(plain, ())
        if path is not None:
            raise InvalidValueError("JSON cannot represent this number", path=format_path(path)) from None


def _find_infinite(value: Any, path: tuple[str | int, ...]) -> tuple[str | int, ...] | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (_find_infinite(each, (*path, key)) for key, each in parts)
    return next((each for each in found if each is not None), None)


def _check(schema: _Parsed, value: Any) -> None:
    try:
        schema.validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        raise InvalidValueError(error.message, path=format_path(error.instance_path)) from None


def _parse(registry: RegistryClient, schema: Schema) -> _Parsed:
    try:
        parsed = parse(schema.text, registry.resolve(schema))
        return _Parsed(parsed.validator(), parsed.name)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(shorten(f"not a JSON Schema: {error}")) from error
