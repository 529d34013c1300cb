"""JSON as Jackson, the library of Java's schemas, reads and writes it.

Reading accepts comments. Writing formats numbers as Java does, with "NaN" in quotes. Both keep the attributes' order.
"""

import math
import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from rookery.schemas.bounds import is_too_deep
from rookery.schemas.interface import InvalidSchemaError

_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
# Unterminated strings and comments match as well: searching for their end again at each position would be quadratic.
_STRING_OR_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?|/\*(?!.*?\*/).*)|/\*.*?\*/|//[^\n]*', re.DOTALL)
# Java writes a double between these limits without an exponent.
_PLAIN_MIN: Final = 1e-3
_PLAIN_MAX: Final = 1e7


def read_json(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        without_comments = _STRING_OR_COMMENT.sub(lambda match: match[1] or " ", text)
        if without_comments != text:
            return read_json(without_comments)
        raise InvalidSchemaError(f"The schema is not JSON: {error}") from error
    if is_too_deep(value):
        raise InvalidSchemaError("The schema is nested too deeply")
    return value


def write_json(value: Any) -> str:
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def _write(value: Any, pieces: list[str]) -> None:
    match value:
        case str():
            pieces.append(f'"{_ESCAPED.sub(_escape, value)}"')
        case float():
            pieces.append(_write_double(value))
        case dict():
            before = "{"
            for key, each in value.items():
                pieces.append(before)
                _write(key, pieces)
                pieces.append(":")
                _write(each, pieces)
                before = ","
            pieces.append("}" if value else "{}")
        case list():
            before = "["
            for each in value:
                pieces.append(before)
                _write(each, pieces)
                before = ","
            pieces.append("]" if value else "[]")
        case _:
            pieces.append(msgspec.json.encode(value).decode())


def sort_json(value: Any) -> Any:
    """Return the value with the attributes of all objects in alphabetical order."""
    match value:
        case dict():
            return {key: sort_json(value[key]) for key in sorted(value)}
        case list():
            return [sort_json(each) for each in value]
        case _:
            return value


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _write_double(value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or _PLAIN_MIN <= abs(value) < _PLAIN_MAX:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{exponent + len(others)}"
