"""Helpers that build Avro schemas."""

from typing import Any

import msgspec

from rookery.schemas.avro import AvroSchema, parse


def record(name: str, *fields: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, type_: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **attributes}


def enum(name: str, *symbols: str, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def fixed(name: str, size: int, **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **attributes}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def one(type_: Any, **attributes: Any) -> dict[str, Any]:
    """Return a record `R` with one field `f`."""
    return record("R", field("f", type_, **attributes))


def text_of(schema: Any) -> str:
    return msgspec.json.encode(schema).decode()


def parse_shape(schema: Any) -> AvroSchema:
    return parse(text_of(schema))
