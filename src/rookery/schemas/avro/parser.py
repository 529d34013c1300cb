"""Parses the text of a schema to its tree, with the rules and the messages of Java's parser.

A name must be defined before its use, and only once. Names from a referenced schema are an exception: the canonical
text repeats those that are not that schema's outermost type, so the same definition may occur again. A new schema must
satisfy the specification: names are ASCII, and defaults match their types. A stored schema may be older than these
checks.
"""

import re
from collections import Counter
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from rookery.schemas.avro.defaults import is_valid_default, read_default
from rookery.schemas.avro.json_text import read_json, write_json
from rookery.schemas.avro.model import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Node,
    Record,
    Union,
)
from rookery.schemas.avro.printer import print_definition, print_schema
from rookery.schemas.interface import InvalidSchemaError

_Object: TypeAlias = dict[str, Any]
_NamedType = TypeVar("_NamedType", bound=Named)

_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_RESERVED: Final = _RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = ("ascending", "descending", "ignore")
_NAME_IN_ASCII: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME: Final = re.compile(r"[^\W\d]\w*")
_FIXED_SIZE_MAX = (1 << 31) - 1 - 8


class _Location(NamedTuple):
    """The parser's path in the text, and the enclosing namespace."""

    namespace: str = ""
    path: str = ""

    def inside(self, step: str, namespace: str | None = None) -> "_Location":
        space = self.namespace if namespace is None else namespace
        return _Location(space, f"{self.path}/{step}")

    def fail(self, message: str, value: Any = MISSING) -> NoReturn:
        text = message if value is MISSING else f"{message}: {write_json(value)}"
        raise InvalidSchemaError(f"{text} (at {self.path or '/'})")


class Parser:
    """Parses one text after the other. A text can use the names that earlier texts defined."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._named: dict[str, Named] = {}
        self._foreign: frozenset[str] = frozenset()

    def parse(self, text: str) -> Node:
        self._foreign = frozenset(self._named)
        return self._parse(read_json(text), _Location())

    def _parse(self, value: Any, location: _Location) -> Node:
        match value:
            case str():
                return self._find(value, location)
            case dict():
                return self._parse_object(value, location)
            case list():
                return self._parse_union(value, location)
            case _:
                return location.fail("Schema not yet supported", value)

    def _find(self, text: str, location: _Location) -> Node:
        if text in PRIMITIVES:
            return Node(text, {})
        found = self._named.get(Name.of(text, location.namespace).full) or self._named.get(text)
        return found or location.fail("Undefined name", text)

    def _parse_object(self, value: _Object, location: _Location) -> Node:
        type_ = _read_text(value, "type", "No type", location)
        match type_:
            case "record" | "error":
                return self._parse_record(value, location)
            case "enum":
                return self._parse_enum(value, location)
            case "fixed":
                return self._parse_fixed(value, location)
            case "array":
                return Array(type_, _keep(value, _RESERVED), self._parse_part(value, "items", location))
            case "map":
                return Map(type_, _keep(value, _RESERVED), self._parse_part(value, "values", location))
            case _ if type_ in PRIMITIVES:
                return Node(type_, _keep(value, _RESERVED))
            case _:
                return self._find(type_, location)

    def _parse_part(self, value: _Object, part: str, location: _Location) -> Node:
        if part not in value:
            location.fail(f"{value['type'].capitalize()} has no {part} type", value)
        return self._parse(value[part], location.inside(part))

    def _parse_union(self, values: list[Any], location: _Location) -> Union:
        branches: dict[str, Node] = {}
        for index, value in enumerate(values):
            branch = self._parse(value, location.inside(str(index)))
            if isinstance(branch, Union):
                location.fail("Nested union", values)
            if branch.full_name in branches:
                location.fail(f"Duplicate in union:{branch.full_name}")
            branches[branch.full_name] = branch
        return Union("union", {}, tuple(branches.values()))

    def _parse_enum(self, value: _Object, location: _Location) -> Enum:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            location.fail("Enum has no symbols", value)
        for symbol, count in Counter(self._check_name(each, location) for each in symbols).items():
            if count > 1:
                location.fail(f"Duplicate enum symbol: {symbol}")
        default = _find_text(value, "default")
        if default is not None and default not in symbols:
            location.fail(f"The Enum Default: {default} is not in the enum symbol set: [{', '.join(symbols)}]")
        named = self._parse_names(value, location)
        return self._define(Enum("enum", _keep(value, _ENUM_RESERVED), *named, tuple(symbols), default), location)

    def _parse_fixed(self, value: _Object, location: _Location) -> Fixed:
        size = value.get("size")
        if type(size) is not int or not 0 <= size <= _FIXED_SIZE_MAX:
            location.fail("Invalid or no size", value)
        return self._define(
            Fixed("fixed", _keep(value, _RESERVED), *self._parse_names(value, location), size), location
        )

    def _parse_record(self, value: _Object, location: _Location) -> Record:
        record = Record("record", _keep(value, _RESERVED), *self._parse_names(value, location))
        record.is_error = value["type"] == "error"
        known = self._named.get(record.full_name)
        self._check_undefined(record, location)
        self._named[record.full_name] = record
        fields = value.get("fields")
        if not isinstance(fields, list):
            location.fail("Record has no fields", value)
        for index, each in enumerate(fields):
            inside = location.inside(f"fields/{index}", record.name.namespace)
            field = self._parse_field(each, inside)
            if field.name in record.fields:
                inside.fail(f"Duplicate field {field.name} in record {record.full_name}")
            record.fields[field.name] = field
        record.required = frozenset(field.name for field in record.fields.values() if field.default is MISSING)
        return _check_same(record, known, location)

    def _parse_field(self, value: Any, location: _Location) -> Field:
        if not isinstance(value, dict):
            location.fail("No field name", value)
        name = self._check_name(_read_text(value, "name", "No field name", location), location)
        if "type" not in value:
            location.fail("No field type", value)
        type_ = self._parse(value["type"], location.inside("type"))
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            location.fail("Invalid order of a field", order)
        default = read_default(type_, value.get("default", MISSING))
        if self._strict and default is not MISSING and not is_valid_default(type_, default):
            location.fail(f"Invalid default for field {name}: {write_json(default)} not a {print_schema(type_)}")
        aliases = tuple(_read_aliases(value, location))
        return Field(
            name, type_, _find_text(value, "doc"), default, order.lower(), aliases, _keep(value, _FIELD_RESERVED)
        )

    def _parse_names(self, value: _Object, location: _Location) -> tuple[Name, str | None, tuple[Name, ...]]:
        """Return what all named types have: the name, the doc, and the aliases."""
        space = _find_text(value, "namespace")
        text = _read_text(value, "name", "No name in schema", location)
        name = Name.of(text, location.namespace if space is None else space)
        self._check_name(name.simple, location)
        if name.full in PRIMITIVES:
            location.fail(f"Schemas may not be named after primitives: {name.full}")
        aliases = tuple(Name.of(alias, name.namespace) for alias in _read_aliases(value, location))
        for alias in aliases:
            self._check_name(alias.simple, location)
        return name, _find_text(value, "doc"), aliases

    def _define(self, node: _NamedType, location: _Location) -> _NamedType:
        known = self._named.get(node.full_name)
        self._check_undefined(node, location)
        self._named[node.full_name] = node
        return _check_same(node, known, location)

    def _check_undefined(self, node: Named, location: _Location) -> None:
        if node.full_name in self._named and node.full_name not in self._foreign:
            location.fail(f"Can't redefine: {node.full_name}")

    def _check_name(self, name: Any, location: _Location) -> str:
        if not isinstance(name, str):
            location.fail("Null name")
        pattern = _NAME_IN_ASCII if self._strict else _NAME
        if not pattern.fullmatch(name):
            if not name:
                location.fail("Empty name")
            is_first = not pattern.match(name)
            location.fail(f"Illegal initial character: {name}" if is_first else f"Illegal character in: {name}")
        return name


def _check_same(node: _NamedType, known: Named | None, location: _Location) -> _NamedType:
    """Check that a repeated definition equals the known one. Nested types are compared where they are defined."""
    if known is not None and print_definition(node) != print_definition(known):
        location.fail(f"Can't redefine: {node.full_name}")
    return node


def _find_text(value: _Object, key: str) -> str | None:
    """Return the text of an attribute. A value of another type counts as absent, as in Java's parser."""
    text = value.get(key)
    return text if isinstance(text, str) else None


def _read_text(value: _Object, key: str, message: str, location: _Location) -> str:
    text = _find_text(value, key)
    return location.fail(message, value) if text is None else text


def _read_aliases(value: _Object, location: _Location) -> list[str]:
    """Return the aliases without duplicates."""
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list):
        location.fail("aliases not an array", value)
    for alias in aliases:
        if not isinstance(alias, str):
            location.fail("alias not a string", alias)
    return list(dict.fromkeys(aliases))


def _keep(value: _Object, reserved: frozenset[str]) -> _Object:
    return {key: each for key, each in value.items() if key not in reserved}
