"""The subject of a certificate (DER) as text in the form of RFC 2253, as Java prints it. Pure.

Attributes without a keyword of RFC 2253, such as e-mail addresses, are printed as an object identifier and the
hexadecimal bytes of the value.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rookery.base.errors import ProtocolError

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
_VERSION: Final = 0xA0
# The fields before the subject: serial number, signature algorithm, issuer, validity.
_FIELDS_BEFORE_SUBJECT: Final = 4
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# The encodings of the string types: UTF8String, PrintableString, TeletexString, IA5String, UniversalString, BMPString.
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Element(NamedTuple):
    tag: int
    content: bytes
    # With tag and length.
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject, the last attribute first. Raises ProtocolError if the certificate cannot be parsed."""
    try:
        (outer,) = _elements(certificate)
        body = [element for element in _elements(next(_elements(outer.content)).content) if element.tag != _VERSION]
        names = [_relative_name(element) for element in _elements(body[_FIELDS_BEFORE_SUBJECT].content)]
    except (IndexError, ValueError, StopIteration) as error:
        raise ProtocolError("the client's certificate has no subject that can be read") from error
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & 0x80:
            length_bytes = size & 0x7F
            size = int.from_bytes(data[position : position + length_bytes])
            position += length_bytes
        end = position + size
        if end > len(data):
            raise ValueError("truncated")
        yield _Element(tag, data[position:end], data[start:end])
        position = end


def _relative_name(element: _Element) -> str:
    if element.tag != _SET:
        raise ValueError("not a set")
    return "+".join(_attribute(*_elements(each.content)) for each in _elements(element.content))


def _attribute(kind: _Element, value: _Element) -> str:
    if kind.tag != _OBJECT_ID:
        raise ValueError("not an object identifier")
    identifier = _object_id(kind.content)
    keyword, encoding = _KEYWORDS.get(identifier), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    return f"{keyword}={_escape(value.content.decode(encoding))}"


def _object_id(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escape(text: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in text)
    stripped = escaped.strip(" ")
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(stripped) - leading
    return "\\ " * leading + stripped + "\\ " * trailing
