"""Converts the defaults of fields from JSON to the values that a deserializer returns.

In a schema a default is JSON: a text for bytes, a number for a date, a record without the fields that have defaults
themselves. fastavro returns it unconverted, and the same list or dictionary each time. So defaults are converted once,
and for readers the mutable ones are copied for each record. fastavro's writer does not modify them, and accepts only
plain dictionaries as fields.

A default that does not match its type is ignored: old versions of registries accepted such schemas.
"""

from copy import deepcopy
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rookery.schemas.avro.defaults import is_valid_default
from rookery.schemas.avro.model import MISSING, Array, Field, Map, Node, Record, Union

# No author writes a larger default. It results from nested records whose defaults multiply.
_SIZE_MAX: Final = 2000


class _WithMutableDefault(dict[str, Any]):
    """A field of a fastavro schema that returns a copy of its default on each access."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return deepcopy(value) if key == "default" else value


def with_default(raw: dict[str, Any], field: Field, *, for_writing: bool) -> dict[str, Any]:
    """Return `raw`, fastavro's field without default, with the converted default of `field` if it has a valid one."""
    try:
        default = _Conversion().convert_default(field)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return raw
    if default is MISSING:
        return raw
    made = raw | {"default": default}
    return made if for_writing or not isinstance(default, list | dict) else _WithMutableDefault(made)


class _Conversion:
    """The conversion of one default. It fails if the result becomes too large."""

    def __init__(self) -> None:
        self._size = 0

    def convert_default(self, field: Field) -> Any:
        if field.default is MISSING or not is_valid_default(field.type, field.default):
            return MISSING
        return self._convert(field.type, field.default)

    def _convert(self, node: Node, value: Any) -> Any:
        self._size += 1
        if self._size > _SIZE_MAX:
            raise ValueError("too large")
        match node:
            case Union():
                return self._convert(node.branches[0], value)
            case Array():
                return [self._convert(node.items, each) for each in value]
            case Map():
                return {key: self._convert(node.values, each) for key, each in value.items()}
            case Record():
                return {field.name: self._convert_field(field, value) for field in node.fields.values()}
            case _:
                return _convert_scalar(node, value)

    def _convert_field(self, field: Field, record: dict[str, Any]) -> Any:
        if field.name in record:
            return self._convert(field.type, record[field.name])
        default = self.convert_default(field)
        if default is MISSING:
            raise ValueError("incomplete")
        return default


def _convert_scalar(node: Node, value: Any) -> Any:
    if node.type in ("bytes", "fixed"):
        value = value.encode("latin-1")
    elif node.type in ("float", "double"):
        value = float(value)
    read = LOGICAL_READERS.get(f"{node.type}-{node.properties.get('logicalType')}")
    return value if read is None else read(value, {"type": node.type, **node.properties}, None)
