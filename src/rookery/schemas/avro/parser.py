"""From the text of a schema to its tree, with the rules and the messages of Java's parser.

A name must be defined before it is used, and once only. The exception are names that come from a schema that is
referred to: the canonical text repeats those that are not its outermost type, so the same definition may come again.
A new schema is held to the specification: names are ASCII, and defaults fit. A stored one may be older than that.
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


class _Place(NamedTuple):
    """Where in the text the parser is, and in whose namespace."""

    namespace: str = ""
    path: str = ""

    def inside(self, step: str, namespace: str | None = None) -> "_Place":
        space = self.namespace if namespace is None else namespace
        return _Place(space, f"{self.path}/{step}")

    def refuse(self, message: str, value: Any = MISSING) -> NoReturn:
        text = message if value is MISSING else f"{message}: {write_json(value)}"
        raise InvalidSchemaError(f"{text} (at {self.path or '/'})")


class Parser:
    """Reads one text after the other; each knows the names of those before."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._named: dict[str, Named] = {}
        self._foreign: frozenset[str] = frozenset()

    def parse(self, text: str) -> Node:
        self._foreign = frozenset(self._named)
        return self._parse(read_json(text), _Place())

    def _parse(self, value: Any, place: _Place) -> Node:
        match value:
            case str():
                return self._find(value, place)
            case dict():
                return self._parse_object(value, place)
            case list():
                return self._parse_union(value, place)
            case _:
                return place.refuse("Schema not yet supported", value)

    def _find(self, text: str, place: _Place) -> Node:
        if text in PRIMITIVES:
            return Node(text, {})
        found = self._named.get(Name.of(text, place.namespace).full) or self._named.get(text)
        return found or place.refuse("Undefined name", text)

    def _parse_object(self, value: _Object, place: _Place) -> Node:
        type_ = _read_text(value, "type", "No type", place)
        match type_:
            case "record" | "error":
                return self._parse_record(value, place)
            case "enum":
                return self._parse_enum(value, place)
            case "fixed":
                return self._parse_fixed(value, place)
            case "array":
                return Array(type_, _keep(value, _RESERVED), self._parse_part(value, "items", place))
            case "map":
                return Map(type_, _keep(value, _RESERVED), self._parse_part(value, "values", place))
            case _ if type_ in PRIMITIVES:
                return Node(type_, _keep(value, _RESERVED))
            case _:
                return self._find(type_, place)

    def _parse_part(self, value: _Object, part: str, place: _Place) -> Node:
        if part not in value:
            place.refuse(f"{value['type'].capitalize()} has no {part} type", value)
        return self._parse(value[part], place.inside(part))

    def _parse_union(self, values: list[Any], place: _Place) -> Union:
        branches: dict[str, Node] = {}
        for index, value in enumerate(values):
            branch = self._parse(value, place.inside(str(index)))
            if isinstance(branch, Union):
                place.refuse("Nested union", values)
            if branch.full_name in branches:
                place.refuse(f"Duplicate in union:{branch.full_name}")
            branches[branch.full_name] = branch
        return Union("union", {}, tuple(branches.values()))

    def _parse_enum(self, value: _Object, place: _Place) -> Enum:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            place.refuse("Enum has no symbols", value)
        for symbol, count in Counter(self._check_name(each, place) for each in symbols).items():
            if count > 1:
                place.refuse(f"Duplicate enum symbol: {symbol}")
        default = _find_text(value, "default")
        if default is not None and default not in symbols:
            place.refuse(f"The Enum Default: {default} is not in the enum symbol set: [{', '.join(symbols)}]")
        named = self._parse_names(value, place)
        return self._define(Enum("enum", _keep(value, _ENUM_RESERVED), *named, tuple(symbols), default), place)

    def _parse_fixed(self, value: _Object, place: _Place) -> Fixed:
        size = value.get("size")
        if type(size) is not int or not 0 <= size <= _FIXED_SIZE_MAX:
            place.refuse("Invalid or no size", value)
        return self._define(Fixed("fixed", _keep(value, _RESERVED), *self._parse_names(value, place), size), place)

    def _parse_record(self, value: _Object, place: _Place) -> Record:
        record = Record("record", _keep(value, _RESERVED), *self._parse_names(value, place))
        record.is_error = value["type"] == "error"
        known = self._named.get(record.full_name)
        self._check_undefined(record, place)
        self._named[record.full_name] = record
        fields = value.get("fields")
        if not isinstance(fields, list):
            place.refuse("Record has no fields", value)
        for index, each in enumerate(fields):
            inside = place.inside(f"fields/{index}", record.name.namespace)
            field = self._parse_field(each, inside)
            if field.name in record.fields:
                inside.refuse(f"Duplicate field {field.name} in record {record.full_name}")
            record.fields[field.name] = field
        record.required = frozenset(field.name for field in record.fields.values() if field.default is MISSING)
        return _check_same(record, known, place)

    def _parse_field(self, value: Any, place: _Place) -> Field:
        if not isinstance(value, dict):
            place.refuse("No field name", value)
        name = self._check_name(_read_text(value, "name", "No field name", place), place)
        if "type" not in value:
            place.refuse("No field type", value)
        type_ = self._parse(value["type"], place.inside("type"))
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            place.refuse("Invalid order of a field", order)
        default = read_default(type_, value.get("default", MISSING))
        if self._strict and default is not MISSING and not is_valid_default(type_, default):
            place.refuse(f"Invalid default for field {name}: {write_json(default)} not a {print_schema(type_)}")
        aliases = tuple(_read_aliases(value, place))
        return Field(
            name, type_, _find_text(value, "doc"), default, order.lower(), aliases, _keep(value, _FIELD_RESERVED)
        )

    def _parse_names(self, value: _Object, place: _Place) -> tuple[Name, str | None, tuple[Name, ...]]:
        """What all types with a name have: the name, the doc, and the aliases."""
        space = _find_text(value, "namespace")
        text = _read_text(value, "name", "No name in schema", place)
        name = Name.of(text, place.namespace if space is None else space)
        self._check_name(name.simple, place)
        if name.full in PRIMITIVES:
            place.refuse(f"Schemas may not be named after primitives: {name.full}")
        aliases = tuple(Name.of(alias, name.namespace) for alias in _read_aliases(value, place))
        for alias in aliases:
            self._check_name(alias.simple, place)
        return name, _find_text(value, "doc"), aliases

    def _define(self, node: _NamedType, place: _Place) -> _NamedType:
        known = self._named.get(node.full_name)
        self._check_undefined(node, place)
        self._named[node.full_name] = node
        return _check_same(node, known, place)

    def _check_undefined(self, node: Named, place: _Place) -> None:
        if node.full_name in self._named and node.full_name not in self._foreign:
            place.refuse(f"Can't redefine: {node.full_name}")

    def _check_name(self, name: Any, place: _Place) -> str:
        if not isinstance(name, str):
            place.refuse("Null name")
        pattern = _NAME_IN_ASCII if self._strict else _NAME
        if not pattern.fullmatch(name):
            if not name:
                place.refuse("Empty name")
            is_first = not pattern.match(name)
            place.refuse(f"Illegal initial character: {name}" if is_first else f"Illegal character in: {name}")
        return name


def _check_same(node: _NamedType, known: Named | None, place: _Place) -> _NamedType:
    """What it is made of has been checked where that is defined."""
    if known is not None and print_definition(node) != print_definition(known):
        place.refuse(f"Can't redefine: {node.full_name}")
    return node


def _find_text(value: _Object, key: str) -> str | None:
    """Like Java's parser, which does not see what is no text."""
    text = value.get(key)
    return text if isinstance(text, str) else None


def _read_text(value: _Object, key: str, message: str, place: _Place) -> str:
    text = _find_text(value, key)
    return place.refuse(message, value) if text is None else text


def _read_aliases(value: _Object, place: _Place) -> list[str]:
    """Without repetitions."""
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list):
        place.refuse("aliases not an array", value)
    for alias in aliases:
        if not isinstance(alias, str):
            place.refuse("alias not a string", alias)
    return list(dict.fromkeys(aliases))


def _keep(value: _Object, reserved: frozenset[str]) -> _Object:
    return {key: each for key, each in value.items() if key not in reserved}
