"""Finds the part of a value that does not match its schema, after fastavro's writer rejected the value without saying.

For a union the branch that matches furthest is reported. A value for which the search takes too many steps is not
explained.
"""

from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any, Final, NamedTuple

import fastavro

from rookery.schemas.avro.json_text import read_json
from rookery.schemas.avro.model import MISSING, Array, Field, Map, Node, Record, Union
from rookery.schemas.avro.printer import print_schema
from rookery.serdes.avro_schema import guarded
from rookery.serdes.errors import InvalidValueError, describe, format_path

_STEPS_MAX: Final = 10_000


class _Mismatch(NamedTuple):
    path: tuple[str | int, ...]
    expected: str
    value: Any


def explain(root: Node, value: Any, error: Exception) -> InvalidValueError:
    """Return the error for a value that fastavro rejected with `error`."""
    try:
        found = _Search().find(root, value, ())
    except (_TooLargeError, RecursionError):
        found = None
    if found is None:
        return InvalidValueError(describe(error))
    return InvalidValueError(f"expected {found.expected}, not {_show(found.value)}", path=format_path(found.path))


class _TooLargeError(Exception):
    pass


class _Search:
    def __init__(self) -> None:
        self._steps = 0

    def find(self, node: Node, value: Any, path: tuple[str | int, ...]) -> _Mismatch | None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise _TooLargeError
        here = _Mismatch(path, _name(node), value)
        match node:
            case Union():
                return self._find_in_union(node, value, here)
            case Record():
                return self._find_in_record(node, value, path) if isinstance(value, Mapping) else here
            case Array():
                is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
                return self._find_in_items(node.items, enumerate(value), path) if is_list else here
            case Map():
                is_map = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
                return self._find_in_items(node.values, value.items(), path) if is_map else here
            case _:
                return None if _matches(node, value) else here

    def _find_in_union(self, node: Union, value: Any, here: _Mismatch) -> _Mismatch | None:
        branches: Sequence[Node] = node.branches
        if isinstance(value, tuple) and len(value) == 2:
            name, value = value
            branches = [branch for branch in branches if branch.full_name == name]
        found = [self.find(branch, value, here.path) for branch in branches]
        if None in found or not found:
            return here if not found else None
        deepest = max((each for each in found if each is not None), key=lambda each: len(each.path))
        return deepest if len(deepest.path) > len(here.path) else here

    def _find_in_record(self, node: Record, value: Mapping[str, Any], path: tuple[str | int, ...]) -> _Mismatch | None:
        given = [field for field in node.fields.values() if _is_given(field, value)]
        found = (self.find(field.type, value.get(field.name), (*path, field.name)) for field in given)
        return next((each for each in found if each is not None), None)

    def _find_in_items(self, node: Node, items: Any, path: tuple[str | int, ...]) -> _Mismatch | None:
        found = (self.find(node, value, (*path, key)) for key, value in items)
        return next((each for each in found if each is not None), None)


def _is_given(field: Field, value: Mapping[str, Any]) -> bool:
    return field.name in value or field.default is MISSING


def _matches(node: Node, value: Any) -> bool:
    """Whether a value matches a type that contains no other types."""
    try:
        return bool(fastavro.validate(value, guarded(read_json(print_schema(node))), raise_errors=False))
    except Exception:
        return False


def _name(node: Node) -> str:
    """Return the name of a type for messages."""
    if isinstance(node, Union):
        return " or ".join(map(_name, node.branches))
    return str(node.properties.get("logicalType", node.full_name))


def _show(value: Any) -> str:
    shown = Repr()
    shown.maxstring = shown.maxother = 100
    return shown.repr(value)
