"""Parses lines of text into records and renders records as text: the formats of `produce` and `consume`.

Pure. Works on bytes, because keys and values need not be UTF-8.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from rookery.client.consume.records import ConsumerRecord
from rookery.records.record import Headers

Record: TypeAlias = ConsumerRecord[bytes, bytes]

DEFAULT_NULL_TEXT = b"null"

# A field, or the text up to the next field; a percent sign at the very end is a field without a name.
_FORMAT_PART = re.compile(r"%.?|[^%]+", re.DOTALL)


class Decoded(NamedTuple):
    """A key or value that was decoded with a schema, in JSON's types; it replaces the bytes in a record."""

    value: Any


class LineError(ValueError):
    """A line does not have the parts that the format requires."""


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class LineFormat(NamedTuple):
    """`[headers SEPARATOR] [key SEPARATOR] value`: a part is present if its separator is given.

    Headers are written `name=value,name=value`. A key, value or header value that equals the null marker is null.
    """

    key_separator: bytes | None = None
    headers_separator: bytes | None = None
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> ParsedLine:
        headers: Headers = ()
        key: bytes | None = None
        if self.headers_separator is not None:
            text, line = _split(line, self.headers_separator, "headers")
            headers = self._parse_headers(text)
        if self.key_separator is not None:
            text, line = _split(line, self.key_separator, "key")
            key = self._or_null(text)
        return ParsedLine(key, self._or_null(line), headers)

    def _parse_headers(self, text: bytes) -> Headers:
        if not text:
            return ()
        pairs = []
        for pair in text.split(b","):
            name, equals, value = pair.partition(b"=")
            if not equals or not name:
                raise LineError(f"the header '{_readable(pair)}' must have the form name=value")
            pairs.append((name.decode("utf-8", "surrogateescape"), self._or_null(value)))
        return tuple(pairs)

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


def _split(line: bytes, separator: bytes, part: str) -> tuple[bytes, bytes]:
    before, found, after = line.partition(separator)
    if not found:
        raise LineError(f"there is no {part} separator '{_readable(separator)}' in '{_readable(line[:80])}'")
    return before, after


def _readable(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\t", "\\t")


def compile_format(template: str, null_text: bytes = DEFAULT_NULL_TEXT) -> Callable[[Record], bytes]:
    """Return a function that renders records: %k key, %v value, %t topic, %p partition, %o offset, %T timestamp in ms,
    %h headers as name=value,..., %% a percent sign. Raises ValueError for any other field.
    """
    parts = [_compile_part(part, null_text) for part in _FORMAT_PART.findall(template)]
    return lambda record: b"".join(part(record) for part in parts)


def _compile_part(part: str, null_text: bytes) -> Callable[[Record], bytes]:
    if part[0] == "%" and part != "%%":
        if part[1:] not in _FIELDS:
            raise ValueError(f"'{part}' is not a field: use {', '.join('%' + name for name in _FIELDS)} or %%")
        return _field(part[1:], null_text)
    data = b"%" if part == "%%" else part.encode()
    return lambda record: data


def _field(name: str, null_text: bytes) -> Callable[[Record], bytes]:
    read = _FIELDS[name]

    def render(record: Record) -> bytes:
        value = read(record, null_text)
        return null_text if value is None else value

    return render


def _render_headers(record: Record, null_text: bytes) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (null_text if value is None else value)
        for name, value in record.headers
    )


def _text(data: bytes | Decoded | None) -> bytes | None:
    return _dump(data.value) if isinstance(data, Decoded) else data


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_FIELDS: dict[str, Callable[[Record, bytes], bytes | None]] = {
    "k": lambda record, _: _text(record.key),
    "v": lambda record, _: _text(record.value),
    "t": lambda record, _: record.topic.encode(),
    "p": lambda record, _: b"%d" % record.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "T": lambda record, _: b"%d" % record.timestamp_ms,
    "h": _render_headers,
}


def render_json(record: Record) -> bytes:
    """Return one line of JSON. Bytes that are not UTF-8 appear as `<name>_base64` instead of `<name>`."""
    value: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [json_header(name, data) for name, data in record.headers],
    }
    return _dump(value) + b"\n"


def json_header(name: str, value: bytes | None) -> dict[str, Any]:
    return {**json_bytes("name", name.encode("utf-8", "surrogateescape")), **json_bytes("value", value)}


def json_bytes(name: str, data: bytes | Decoded | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    if isinstance(data, Decoded):
        return {name: data.value}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
