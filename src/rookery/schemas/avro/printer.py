"""Prints a schema as Java's `Schema.toString` does.

Attributes have a fixed order; unknown ones follow in the order of the text. A namespace is omitted if it is that of the
enclosing record. A named type is defined at its first occurrence and only named afterwards; types whose full names are
in `known` are always only named. A schema with references may be deeper than each of the texts. It is rejected if it is
deeper than the limit, because the parser could not read the printed text again.
"""

from collections.abc import Iterable
from typing import Any

from rookery.schemas.avro.json_text import write_json
from rookery.schemas.avro.model import MISSING, TYPES, Array, Enum, Field, Fixed, Map, Name, Named, Node, Record, Union
from rookery.schemas.bounds import DEPTH_MAX
from rookery.schemas.interface import InvalidSchemaError

# The levels of JSON that a record adds: the object, the list of its fields, the field.
_RECORD_DEPTH = 3


def print_schema(node: Node, known: Iterable[str] = ()) -> str:
    return write_json(_Printer(set(known)).describe(node, "", 0))


def print_definition(node: Named) -> str:
    """Print the definition of one type. The types inside it are only named."""
    return write_json(_Printer(None).define(node, "", 0))


class _Printer:
    def __init__(self, known: set[str] | None) -> None:
        """`known` are the full names of the types to name instead of defining them; None means all types."""
        self._known = known

    def describe(self, node: Node, namespace: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise InvalidSchemaError("The schema is nested too deeply")
        match node:
            case Named():
                return self._describe_named(node, namespace, depth)
            case Array():
                return {"type": "array", "items": self.describe(node.items, namespace, depth + 1), **node.properties}
            case Map():
                return {"type": "map", "values": self.describe(node.values, namespace, depth + 1), **node.properties}
            case Union():
                return [self.describe(branch, namespace, depth + 1) for branch in node.branches]
            case _:
                return {"type": node.type, **node.properties} if node.properties else node.type

    def _describe_named(self, node: Named, namespace: str, depth: int) -> Any:
        if self._known is None or node.full_name in self._known:
            return _qualify(node.name, namespace)
        self._known.add(node.full_name)
        return self.define(node, namespace, depth)

    def define(self, node: Named, namespace: str, depth: int) -> dict[str, Any]:
        described: dict[str, Any] = {"type": node.type, "name": node.name.simple}
        if node.name.namespace != namespace:
            described["namespace"] = node.name.namespace
        if node.doc is not None:
            described["doc"] = node.doc
        described |= self._describe_body(node, depth)
        described |= node.properties
        if node.aliases:
            described["aliases"] = [_qualify_alias(alias, node.name.namespace) for alias in node.aliases]
        return described

    def _describe_body(self, node: Named, depth: int) -> dict[str, Any]:
        match node:
            case Record():
                inside = (node.name.namespace, depth + _RECORD_DEPTH)
                fields = [self._describe_field(field, *inside) for field in node.fields.values()]
                return {"type": "error" if node.is_error else "record", "fields": fields}
            case Enum():
                default = {} if node.default is None else {"default": node.default}
                return {"symbols": list(node.symbols), **default}
            case _:
                assert isinstance(node, Fixed)
                return {"size": node.size}

    def _describe_field(self, field: Field, namespace: str, depth: int) -> dict[str, Any]:
        described = {"name": field.name, "type": self.describe(field.type, namespace, depth)}
        if field.doc is not None:
            described["doc"] = field.doc
        if field.default is not MISSING:
            described["default"] = field.default
        if field.order != "ascending":
            described["order"] = field.order
        if field.aliases:
            described["aliases"] = list(field.aliases)
        return described | field.properties


def _qualify(name: Name, namespace: str) -> str:
    """Return the simple name if it is unambiguous in this namespace and not the name of a built-in type."""
    return name.simple if name.namespace == namespace and name.simple not in TYPES else name.full


def _qualify_alias(alias: Name, namespace: str) -> str:
    """Return the name of an alias. An alias without namespace gets a leading dot, which Java omits: without it the
    alias would get the namespace of its type."""
    return _qualify(alias, namespace) if alias.namespace or not namespace else f".{alias.simple}"
