"""Converts between Avro values and plain JSON, for values that users type and read.

`to_json` converts what a deserializer returns to JSON's types. `from_json` is its inverse and needs the schema: bytes
are texts of the characters 0 to 255 (as in Avro's own JSON encoding), dates and times are ISO 8601, decimals are
texts or numbers. A value of a union is written without its branch; Avro's form with the branch's name,
`{"string": "x"}`, is accepted if the plain value matches no branch.
"""

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from rookery.schemas.avro.model import Array, Map, Node, Record, Union
from rookery.serdes.errors import InvalidValueError, format_path

_Path: TypeAlias = tuple[str | int, ...]

# The Python types of decoded JSON that a branch of a union accepts. bool is a subclass of int in Python, not in Avro.
_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "string": (str,),
    "fixed": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


def to_json(value: Any) -> Any:
    """Return `value` in the types that JSON has."""
    match value:
        case dict():
            return {key: to_json(each) for key, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
        case bytes():
            return value.decode("latin-1")
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
    return value


def from_json(node: Node, value: Any, path: _Path = ()) -> Any:
    """Return `value` in the types that the serializer accepts for the schema `node`.

    Raises InvalidValueError with the path of the part that does not match.
    """
    match node:
        case Union():
            return _from_union(node, value, path)
        case Record():
            return _from_record(node, value, path)
        case Array() if isinstance(value, list):
            return [from_json(node.items, each, (*path, index)) for index, each in enumerate(value)]
        case Map() if isinstance(value, dict):
            return {key: from_json(node.values, each, (*path, key)) for key, each in value.items()}
    return _from_simple(node, value, path)


def _from_simple(node: Node, value: Any, path: _Path) -> Any:
    logical = str(node.properties.get("logicalType"))
    try:
        if logical == "decimal" and isinstance(value, str | int | float):
            return Decimal(str(value))
        if logical in _READERS and isinstance(value, str):
            return _READERS[logical](value)
        if node.type in ("bytes", "fixed") and isinstance(value, str):
            return value.encode("latin-1")
        if node.type in ("float", "double") and isinstance(value, str):
            return float(value)
    except (ValueError, InvalidOperation):
        raise InvalidValueError(
            f"{value!r} is not a valid {node.properties.get('logicalType', node.type)}", path=format_path(path)
        ) from None
    return value


def _from_record(node: Record, value: Any, path: _Path) -> Any:
    if not isinstance(value, dict):
        raise InvalidValueError(f"expected a record {node.full_name}, not {value!r}", path=format_path(path))
    unknown = value.keys() - node.fields.keys()
    if unknown:
        # The serializer ignores unknown fields. Without this check, a mistyped name would silently be dropped, and the
        # intended field would get its default.
        known = ", ".join(node.fields)
        raise InvalidValueError(f"{node.full_name} has no field {min(unknown)}, only {known}", path=format_path(path))
    return {name: from_json(node.fields[name].type, each, (*path, name)) for name, each in value.items()}


def _from_union(node: Union, value: Any, path: _Path) -> Any:
    failures = []
    for branch in node.branches:
        if _may_match(branch, value):
            try:
                return _with_name(branch, from_json(branch, value, path))
            except InvalidValueError as error:
                failures.append(error)
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in node.branches:
            if name == branch.full_name:
                return _with_name(branch, from_json(branch, inner, (*path, name)))
    if failures:
        raise failures[0]
    names = ", ".join(branch.full_name for branch in node.branches)
    raise InvalidValueError(f"expected one of {names}, not {value!r}", path=format_path(path))


def _with_name(branch: Node, value: Any) -> Any:
    """Add the name to a record, so that the serializer does not choose another branch that matches as well."""
    return (branch.full_name, value) if isinstance(branch, Record) else value


def _may_match(branch: Node, value: Any) -> bool:
    types = _JSON_TYPES[branch.type]
    if isinstance(value, bool):
        return bool in types
    if branch.properties.get("logicalType") in _READERS or branch.properties.get("logicalType") == "decimal":
        return isinstance(value, (*types, str, int, float))
    return isinstance(value, types)
