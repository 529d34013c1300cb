"""The normal form of a schema, as Confluent's registry defines it: without insignificant differences in the text.

Unknown attributes, aliases, and the attributes of defaults are in alphabetical order, after a valid logical type.
Defaults are written in the form of their type. Empty docs of types are removed, and errors become records. There is one
difference to Confluent's registry: a type without namespace inside a type with one keeps no namespace, while
Confluent's normal form moves it into that namespace.
"""

import math
from dataclasses import replace
from typing import Any, Final

from rookery.schemas.avro.defaults import normalize_default
from rookery.schemas.avro.json_text import sort_json
from rookery.schemas.avro.model import Array, Field, Fixed, Map, Named, Node, Record, Union

_LOGICAL_TYPES: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "big-decimal": "bytes",
}
_UUID_SIZE_BYTES = 16


def normalize(node: Node) -> Node:
    return _Normalizer().copy(node)


class _Normalizer:
    def __init__(self) -> None:
        self._named: dict[str, Named] = {}

    def copy(self, node: Node) -> Node:
        properties = _sort_properties(node)
        match node:
            case Named():
                return self._named.get(node.full_name) or self._copy_named(node, properties)
            case Array():
                return Array("array", properties, self.copy(node.items))
            case Map():
                return Map("map", properties, self.copy(node.values))
            case Union():
                return Union("union", properties, tuple(map(self.copy, node.branches)))
            case _:
                return Node(node.type, properties)

    def _copy_named(self, node: Named, properties: dict[str, Any]) -> Named:
        aliases = tuple(sorted(node.aliases, key=lambda alias: alias.full))
        copied = replace(node, properties=properties, doc=node.doc or None, aliases=aliases)
        self._named[node.full_name] = copied
        if isinstance(copied, Record):
            copied.is_error = False
            copied.fields = {name: self._copy_field(field) for name, field in copied.fields.items()}
        return copied

    def _copy_field(self, field: Field) -> Field:
        return replace(
            field,
            type=self.copy(field.type),
            default=normalize_default(field.type, field.default),
            aliases=tuple(sorted(field.aliases)),
            properties=sort_json(field.properties),
        )


def _sort_properties(node: Node) -> dict[str, Any]:
    properties: dict[str, Any] = sort_json(node.properties)
    return _logical_type(node) | properties


def _logical_type(node: Node) -> dict[str, Any]:
    """Return the attributes of the logical type; an empty dictionary if it is invalid, which Avro ignores."""
    name = node.properties.get("logicalType")
    if name == "decimal":
        return _decimal(node)
    if name == "uuid":
        is_valid = node.type == "string" or (isinstance(node, Fixed) and node.size == _UUID_SIZE_BYTES)
    else:
        is_valid = isinstance(name, str) and _LOGICAL_TYPES.get(name) == node.type
    return {"logicalType": name} if is_valid else {}


def _decimal(node: Node) -> dict[str, Any]:
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return {}
    if not (0 < precision <= _precision_max(node) and 0 <= scale <= precision):
        return {}
    return {"logicalType": "decimal", "precision": precision} | ({"scale": scale} if scale else {})


def _precision_max(node: Node) -> float:
    if isinstance(node, Fixed):
        return math.floor(math.log10(2) * (8 * node.size - 1))
    return math.inf if node.type == "bytes" else -1
