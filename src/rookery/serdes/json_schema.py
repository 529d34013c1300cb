"""JSON with a JSON Schema: what is written is checked before, what is read after.

Values are whatever msgspec makes JSON of: dictionaries, dataclasses, structs, dates. What is checked is the JSON that
will be written, so that nothing gets past the schema by being something else in Python.

Schemas are never fetched from the network: what a schema refers to is in it, or is one of its references.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urljoin

import jsonschema_rs
import msgspec

from rookery.schemas.interface import InvalidSchemaError
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError
from rookery.serdes.reading import Sources
from rookery.serdes.registration import Registration, as_schema, field_of
from rookery.serdes.settings import (
    JSON_DESERIALIZER_KEYS,
    JSON_SERIALIZER_KEYS,
    DeserializerSettings,
    SerializerSettings,
)
from rookery.serdes.subjects import Convert, SerializationContext
from rookery.serdes.wire import read_prefix

# What jsonschema-rs puts before references that are relative.
_BASE_URI = "json-schema:///"


class _Parsed(NamedTuple):
    validator: Any
    name: str | None


class JSONSchemaSerializer:
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
        own = as_schema(schema, "JSON")
        self._registration = Registration(
            registry,
            settings,
            schema_type="JSON",
            parse=lambda chosen: _parse(registry, chosen.schema),
            complete=None if own is None else lambda: own,
            record_name=None if own is None else _parse(registry, own).name,
            field=field_of(is_key=is_key),
        )
        self._to_dict = to_dict
        self._field = field_of(is_key=is_key)
        self._validates = settings.values.boolean("validate")

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        target = self._registration.target(topic)
        if self._to_dict is not None:
            value = self._to_dict(value, SerializationContext(topic, self._field))
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidValueError(f"{error}; give to_dict to make JSON of it") from error
        if self._validates:
            _check(target.schema, msgspec.json.decode(data))
        return target.prefix + data


class JSONSchemaDeserializer:
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
        self._sources = Sources(
            registry,
            settings,
            schema_type="JSON",
            parse=partial(_parse, registry),
            own=as_schema(schema, "JSON"),
        )
        self._from_dict = from_dict
        self._field = field_of(is_key=is_key)
        self._validates = settings.values.boolean("validate")

    def __call__(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, payload = read_prefix(data)
        context = SerializationContext(topic, self._field)
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidDataError(f"data of the schema {schema_id} is not JSON: {error}") from error
        if self._validates:
            self._validate(context, schema_id, value)
        return value if self._from_dict is None else self._from_dict(value, context)

    def _validate(self, context: SerializationContext, schema_id: int, value: Any) -> None:
        writer = self._sources.writer(schema_id)
        try:
            _check(self._sources.reader(context, writer) or writer, value)
        except InvalidValueError as error:
            raise InvalidDataError(f"data of the schema {schema_id} does not fit: {error}") from error


def _check(schema: _Parsed, value: Any) -> None:
    try:
        schema.validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        raise InvalidValueError(error.message, path=_path(error.instance_path)) from None


def _path(steps: list[str | int]) -> str:
    """In the manner of JSONPath: $.lines[2].price"""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _parse(registry: RegistryClient, schema: Schema) -> _Parsed:
    try:
        raw = msgspec.json.decode(schema.text)
        validator = _find_draft(raw)(raw, retriever=_retriever(raw, registry.resolve(schema)))
    except (msgspec.DecodeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidSchemaError(f"not a JSON Schema: {error}") from error
    return _Parsed(validator, raw.get("title") if isinstance(raw, dict) else None)


def _find_draft(raw: Any) -> Callable[..., Any]:
    """Schemas that do not say it are of draft 7, here as in Confluent's serializers."""
    is_stated = isinstance(raw, dict) and "$schema" in raw
    return jsonschema_rs.validator_for if is_stated else jsonschema_rs.Draft7Validator


def _retriever(raw: Any, resolved: Mapping[str, str]) -> Callable[[str], Any]:
    """References are known by their names, as they are and relative to where the schema says that it is."""
    own_uri = str(raw.get("$id", "")) if isinstance(raw, dict) else ""
    texts = {uri: text for name, text in resolved.items() for uri in (name, _BASE_URI + name, urljoin(own_uri, name))}

    def retrieve(uri: str) -> Any:
        if uri not in texts:
            raise LookupError(f"{uri} is none of the schema's references")
        return msgspec.json.decode(texts[uri])

    return retrieve
