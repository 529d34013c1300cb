"""JSON text as Confluent's registry reads and prints it (Jackson, with exact decimal fractions).

Order and duplicates: the last value of a name counts, at the place of the first. Numbers keep their digits; the print
of a fraction is that of Java's BigDecimal, which is also Python's. Control characters have upper-case digits.
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
    return _spell_escapes(_compact.encode(_exact.decode(text)))


def print_sorted(text: str) -> str:
    """The same with the names of each object in order."""
    return _spell_escapes(_sorted.encode(_exact.decode(text)))


def read(text: str) -> Any:
    """A tree for computing with: fractions are floats."""
    return _plain.decode(text)


def key_of(value: Any) -> bytes:
    """The same for values that are the same as JSON, in whatever order their names are. 1 and 1.0 are different."""
    return _sorted.encode(value)


def _spell_escapes(encoded: bytes) -> str:
    text = encoded.decode()
    return _ESCAPE.sub(_spell_escape, text) if "\\u" in text else text


def _spell_escape(match: re.Match[str]) -> str:
    escape = match.group()
    return rf"\u{escape[2:].upper()}" if len(escape) > 2 else escape
