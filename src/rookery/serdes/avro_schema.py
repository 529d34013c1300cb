"""Schemas of Avro as fastavro works with them, for the serializer and the deserializer.

fastavro writes integers of up to 64 bits for the type `int` too, and other libraries then cannot read them. So each
`int` gets a logical type of ours, whose only purpose is that fastavro calls us before it writes one.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import fastavro
import msgspec
from fastavro.schema import SchemaParseException
from fastavro.write import LOGICAL_WRITERS

from rookery.schemas.interface import InvalidSchemaError
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema

_INT32: Final = "rookery-int32"
_INT32_LIMIT: Final = 2**31
# Under which names types contain other types; a name elsewhere in a schema is no type.
_NESTED: Final = ("type", "items", "values")


class AvroSchema(NamedTuple):
    """`raw` is what fastavro works with. A schema is recursive if a record can contain one of its own kind."""

    raw: Any
    name: str | None
    is_bytes: bool
    is_recursive: bool


def parse_avro(registry: RegistryClient, schema: Schema) -> AvroSchema:
    """With what it refers to. Raises InvalidSchemaError."""
    named: dict[str, Any] = {}
    try:
        for text in registry.resolve(schema).values():
            fastavro.parse_schema(_load(text), named_schemas=named)
        raw: Any = fastavro.parse_schema(_load(schema.text), named_schemas=named)
    except (SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise InvalidSchemaError(f"not a schema of Avro: {type(error).__name__}: {error}") from error
    is_object = isinstance(raw, dict)
    return AvroSchema(
        raw,
        name=raw.get("name") if is_object else None,
        is_bytes="bytes" in (raw, is_object and raw["type"]),
        is_recursive=any(name in _names_within(each, named, set()) for name, each in named.items()),
    )


def type_name(schema: Any) -> str:
    """For people."""
    if not isinstance(schema, Mapping):
        return str(schema)
    logical = schema.get("logicalType")
    return str(schema.get("name") or (logical if logical != _INT32 else None) or schema["type"])


def _load(text: str) -> Any:
    """The name of a primitive type may stand alone, without the quotation marks that JSON asks for."""
    if text.strip().isalpha():
        return _guarded(text.strip())
    return _guarded(msgspec.json.decode(text))


def _guarded(schema: Any) -> Any:
    if schema == "int":
        return {"type": "int", "logicalType": _INT32}
    if isinstance(schema, list):
        return [_guarded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "int":
        return {"logicalType": _INT32, **schema}
    return {key: _guarded(value) if key in _NESTED else value for key, value in schema.items()} | _guarded_fields(
        schema
    )


def _guarded_fields(schema: dict[str, Any]) -> dict[str, Any]:
    fields = schema.get("fields")
    if not isinstance(fields, list):
        return {}
    return {
        "fields": [
            each | {"type": _guarded(each["type"])} if isinstance(each, dict) and "type" in each else each
            for each in fields
        ]
    }


def _names_within(schema: Any, named: Mapping[str, Any], seen: set[str]) -> set[str]:
    """The named types that a type's fields, items and values are made of, at any depth."""
    if isinstance(schema, str):
        if schema in named and schema not in seen:
            seen.add(schema)
            _names_within(named[schema], named, seen)
        return seen
    parts = schema
    if isinstance(schema, Mapping):
        parts = [schema[key] for key in ("items", "values") if key in schema]
        parts += [each["type"] for each in schema.get("fields", ())]
    for part in parts:
        _names_within(part.get("name", part) if isinstance(part, Mapping) else part, named, seen)
    return seen


class _TooLong:
    """Takes the place of an integer, so that fastavro refuses it, and says where it stood."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"{self._value}, which has more than 32 bits"


def _check_int32(value: Any, *_: Any) -> Any:
    return _TooLong(value) if isinstance(value, int) and not -_INT32_LIMIT <= value < _INT32_LIMIT else value


LOGICAL_WRITERS[f"int-{_INT32}"] = _check_int32
