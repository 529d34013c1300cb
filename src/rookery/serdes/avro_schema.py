"""Prepares Avro schemas for fastavro, for the serializer and the deserializer."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException

from rookery.schemas.avro import parse_registered
from rookery.schemas.avro.model import PRIMITIVES, Node, Record
from rookery.schemas.interface import InvalidSchemaError
from rookery.serdes.avro_bounds import Risk, find_risk, walk
from rookery.serdes.avro_defaults import with_default
from rookery.serdes.avro_guards import guard_type
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import describe, shorten

# The attributes of a type that contain other types. A string in any other attribute is not a type's name.
_NESTED: Final = ("type", "items", "values")


class AvroSchema(NamedTuple):
    """A parsed schema: `raw` for fastavro, `root` as Rookery's own model, `risk` for the checks of `avro_bounds`."""

    raw: Any
    root: Node
    risk: Risk

    @property
    def name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, Record) else None

    @property
    def is_bytes(self) -> bool:
        return self.root.type == "bytes"


def parse_avro(registry: RegistryClient, schema: Schema, *, for_writing: bool = False) -> AvroSchema:
    """Parse a schema and the schemas that it refers to. Raises InvalidSchemaError.

    The name of a primitive type may be without the quotation marks that JSON requires.
    """
    bare = schema.text.strip()
    text = f'"{bare}"' if bare in PRIMITIVES else schema.text
    named: dict[str, Any] = {}
    try:
        parsed = parse_registered(text, registry.resolve(schema))
        raw: Any = fastavro.parse_schema(guarded(parsed.raw), named_schemas=named)
    except (InvalidSchemaError, SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise InvalidSchemaError(shorten(f"not a schema of Avro: {describe(error)}")) from error
    for node in walk(parsed.root):
        if isinstance(node, Record):
            fields = named[node.full_name]["fields"]
            fields[:] = [with_default(each, node.fields[each["name"]], for_writing=for_writing) for each in fields]
    _mark_parsed(raw, named)
    return AvroSchema(raw, parsed.root, find_risk(parsed.root))


def _mark_parsed(raw: Any, named: Mapping[str, Any]) -> None:
    """Mark `raw` as parsed. fastavro marks records only, and would parse other schemas again with each value."""
    for each in raw if isinstance(raw, list) else [raw]:
        if isinstance(each, dict):
            each |= {"__fastavro_parsed": True, "__named_schemas": named}


def guarded(schema: Any) -> Any:
    """Return the schema without the defaults of fields, and with the checks of `avro_guards`."""
    if isinstance(schema, list):
        return [guarded(each) for each in schema]
    if isinstance(schema, str):
        return _guard_name(schema)
    if schema["type"] in PRIMITIVES:
        return guard_type(schema)
    made = {key: guarded(value) if key in _NESTED else value for key, value in schema.items()}
    if "fields" in schema:
        made["fields"] = [
            {key: value for key, value in field.items() if key != "default"} | {"type": guarded(field["type"])}
            for field in schema["fields"]
        ]
    return made


def _guard_name(name: str) -> Any:
    """Return the checked type for a name. A type without a check stays a name, which fastavro handles faster."""
    made = guard_type({"type": name})
    return made if "logicalType" in made else name
