"""JSON text as Confluent's registry reads and prints it (Jackson, with exact decimal fractions).

Of duplicate names the last value counts, at the position of the first. Numbers keep their digits; a fraction is printed
as Java's BigDecimal prints it, which is also Python's format. Escapes of control characters have upper-case digits.
"""

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def _read_fraction(digits: str) -> Decimal:
    value = Decimal(digits)
    return value if value else abs(value)  # BigDecimal has no negative zero


_exact = msgspec.json.Decoder(float_hook=_read_fraction)
_plain = msgspec.json.Decoder(float_hook=float)
_compact = msgspec.json.Encoder(decimal_format="number")
_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted")


def print_compact(text: str) -> str:
    return _upper_escapes(_compact.encode(_exact.decode(text)))


def print_sorted(text: str) -> str:
    """Print like `print_compact`, with the names of each object sorted."""
    return _upper_escapes(_sorted.encode(_exact.decode(text)))


def read(text: str) -> Any:
    """Read the text to a tree in which fractions are floats."""
    return _plain.decode(text)


def key_of(value: Any) -> bytes:
    """Return a key that is equal for equal JSON values, whatever the order of names. 1 and 1.0 are different."""
    return _sorted.encode(value)


def _upper_escapes(encoded: bytes) -> str:
    text = encoded.decode()
    return _ESCAPE.sub(_upper_escape, text) if "\\u" in text else text


def _upper_escape(match: re.Match[str]) -> str:
    escape = match.group()
    return rf"\u{escape[2:].upper()}" if len(escape) > 2 else escape
