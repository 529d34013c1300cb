"""Java's `.properties` syntax, in which `server.properties` files are written, with the source and line of each key.

Comments start with `#` or `!`; a line that ends in an odd number of backslashes continues in the next one; a key ends
at the first `=`, `:` or blank that is not escaped; `\\t \\n \\r \\f \\uXXXX` are characters, any other escaped
character stands for itself. If a key is written twice, the last one counts, as in Java.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rookery.base.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_TRAILING_BACKSLASHES = re.compile(r"\\*\Z")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|\Z)", re.DOTALL)
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": "\\\\", **{character: f"\\{letter}" for letter, character in _CONTROL_ESCAPES.items()}}
_SEPARATORS = frozenset("=: #!")


class Property(NamedTuple):
    """A value as it was written, and where; `line` is 0 if the source has no lines."""

    value: str
    source: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


def read_config(path: Path | None) -> str:
    """Return a file's text, empty if `path` is None; raises ConfigError if it cannot be read."""
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from error


def parse_properties(text: str, source: str) -> dict[str, Property]:
    """Parse a properties text; raises ConfigError for a broken `\\u` escape."""
    properties: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key_end = _KEY.match(line).end()  # type: ignore[union-attr]  # the pattern matches the empty string
        value_start = _SEPARATOR.match(line, key_end).end()  # type: ignore[union-attr]  # likewise
        place = f"{source}:{number}"
        value = Property(_unescape(line[value_start:], place), source, number)
        properties[_unescape(line[:key_end], place)] = value
    return properties


def properties_text(values: Mapping[str, str]) -> str:
    """Return lines of `key=value` that parse to `values`, here and in Java, which reads files as Latin-1."""
    return "".join(f"{_escape(key, _SEPARATORS)}={_escape_value(value)}\n" for key, value in values.items())


def _escape_value(text: str) -> str:
    blank = "\\" if text.startswith(" ") else ""
    return blank + _escape(text)


def _escape(text: str, marked: frozenset[str] = frozenset()) -> str:
    return "".join(_escape_character(character, marked) for character in text)


def _escape_character(character: str, marked: frozenset[str]) -> str:
    if character in marked:
        return f"\\{character}"
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    code_units = character.encode("utf-16-be")
    return "".join(f"\\u{code_units[index : index + 2].hex().upper()}" for index in range(0, len(code_units), 2))


def parse_assignment(text: str, source: str = "--set") -> tuple[str, Property]:
    """Parse one `key=value` of the command line, taken literally."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"{source}: expected key=value, got {text!r}")
    return key.strip(), Property(value.strip(), source, 0)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, joined text) of everything that is not blank or a comment."""
    joined, start = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not start and (not line or line[0] in "#!"):
            continue
        start = start or number
        if len(_TRAILING_BACKSLASHES.search(line).group()) % 2:  # type: ignore[union-attr]  # matches the empty string
            joined += line[:-1]
            continue
        if joined or line:
            yield start, joined + line
        joined, start = "", 0
    if joined:
        yield start, joined


def _unescape(text: str, place: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped == "u":
            raise ConfigError(f"{place}: \\u must be followed by four hexadecimal digits")
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _CONTROL_ESCAPES.get(escaped, escaped)

    return _join_surrogates(_ESCAPE.sub(character, text), place)


def _join_surrogates(text: str, place: str) -> str:
    """Join surrogate pairs: Java writes characters beyond U+FFFF as two escapes."""
    try:
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"{place}: half a surrogate pair") from None
