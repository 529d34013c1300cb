"""JSON with a JSON Schema: what is written is checked before, what is read after.

Values are whatever msgspec makes JSON of: dictionaries, dataclasses, structs, dates. What is checked is the JSON that
will be written, so that nothing gets past the schema by being something else in Python.

Schemas are never fetched from the network: what a schema refers to is in it, or is one of its references.
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
    """Of the values of topics, or of their keys. `schema` may be a text that refers to no other schema.

    `to_dict(value, context)` makes what JSON can hold out of a value. `config` has Confluent's names.
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
                _refuse_infinite(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidValueError(f"{error}; give to_dict to make JSON of it") from error
        if self._validates:
            _check(schema, msgspec.json.decode(data))
        return data


class JSONSchemaDeserializer(TextDeserializer[_Parsed]):
    """`schema` is the reader's, if it has one; `from_dict(value, context)` makes objects of what was read."""

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
        writer = self._sources.writer(schema_id)
        try:
            _check(self._sources.reader(context, writer) or writer, value)
        except InvalidValueError as error:
            raise InvalidDataError(f"data of the schema {schema_id} does not fit: {error}") from error


def _refuse_infinite(value: Any) -> None:
    """msgspec writes null for what JSON has no number for."""
    plain = msgspec.to_builtins(value)
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        path = _find_infinite(plain, ())
        if path is not None:
            raise InvalidValueError("JSON has no such number", path=format_path(path)) from None


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
