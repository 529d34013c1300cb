"""The defaults of fields: JSON values that represent values of the field's type."""

import math
import re
import struct
import sys
from typing import Any, Final

from rookery.schemas.avro.json_text import sort_json
from rookery.schemas.avro.model import MISSING, Array, Map, Node, Record, Union

_INTEGER_BITS: Final = {"int": 32, "long": 64}
_NUMBER: Final = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)")
_FLOAT_DIGITS_MAX = 9


def read_default(node: Node, value: Any) -> Any:
    """Return the value of a default. For float and double a text may be a number, such as "NaN", which JSON lacks."""
    if node.type in ("float", "double") and isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return value


def is_valid_default(node: Node, value: Any) -> bool:
    """Whether `value` is a valid default for the type. For a union, the first branch decides.

    A field that a record's value does not contain must have a default itself, which was checked with that field.
    """
    pending: list[tuple[Node, Any]] = [(node, value)]
    while pending:
        node, value = pending.pop()
        match node:
            case Array() if isinstance(value, list):
                pending += [(node.items, each) for each in value]
            case Map() if isinstance(value, dict):
                pending += [(node.values, each) for each in value.values()]
            case Union() if node.branches:
                pending.append((node.branches[0], value))
            case Record() if isinstance(value, dict) and node.required is not None and node.required <= value.keys():
                pending += [(node.fields[key].type, each) for key, each in value.items() if key in node.fields]
            case _ if not _is_valid_scalar(node.type, value):
                return False
    return True


def _is_valid_scalar(type_: str, value: Any) -> bool:
    """Whether `value` is valid for the scalar type; False for other types."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    match type_:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            limit = 1 << (_INTEGER_BITS[type_] - 1)
            return is_integer and -limit <= value < limit
        case "float" | "double":
            return isinstance(value, float) or (is_integer and abs(value) <= sys.float_info.max)
        case "array" | "map" | "union" | "record":
            return False
        case _:
            return isinstance(value, str)


def normalize_default(node: Node, value: Any) -> Any:
    """Return the default in normal form: numbers of a float or double with a point, names of objects sorted."""
    while isinstance(node, Union) and node.branches:
        node = node.branches[0]
    match value:
        case list() if isinstance(node, Array):
            return [normalize_default(node.items, each) for each in value]
        case dict() if isinstance(node, Map):
            return {key: normalize_default(node.values, value[key]) for key in sorted(value)}
        case dict() if isinstance(node, Record):
            return {key: _normalize_field(node, key, value[key]) for key in sorted(value)}
        case float() | int() if node.type in ("float", "double") and not isinstance(value, bool):
            return _round_to_float(value) if node.type == "float" else _to_double(value)
        case _:
            return value if value is MISSING else sort_json(value)


def _normalize_field(record: Record, name: str, value: Any) -> Any:
    field = record.fields.get(name)
    return sort_json(value) if field is None else normalize_default(field.type, value)


def _to_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _round_to_float(value: float) -> float:
    """Return the shortest decimal number that has the same value in 32 bits."""
    value = _to_double(value)
    try:
        packed = struct.pack("f", value)
    except OverflowError:
        return math.copysign(math.inf, value)
    (rounded,) = struct.unpack("f", packed)
    shorter = (float(f"{rounded:.{digits}g}") for digits in range(1, _FLOAT_DIGITS_MAX))
    return next((each for each in shorter if struct.pack("f", each) == packed), float(rounded))
