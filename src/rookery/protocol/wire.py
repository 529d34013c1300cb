"""The protocol's primitive types: a reader and a writer for each, shared by the codec, the hot paths and framing.

A reader takes (data, position) and returns (value, next position); a writer appends to a bytearray. The bytes are
untrusted: readers raise ProtocolError, or one of `MALFORMED`, which the caller converts to ProtocolError once per
message instead of once per field. No reader allocates memory for a length that exceeds the available bytes.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from rookery.base.errors import ProtocolError
from rookery.base.types import NO_TOPIC_ID, Buffer

Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[bytearray, Any], None]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ZERO_UUID = bytes(16)
_VARINT_BYTES_MAX = 5

_TAGGED_FIELDS_MAX = 1000
# The longest string that versions with plain (int16) lengths can represent.
_STRING_BYTES_MAX = 2**15 - 1
_COMPACT_SIZE_BYTES_MAX = 3

# The exceptions that a reader may raise in addition to ProtocolError.
MALFORMED = (struct.error, IndexError, UnicodeDecodeError)


def malformed(what: str, error: Exception) -> ProtocolError:
    """Return the ProtocolError for one of `MALFORMED`; `what` names the message."""
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{what} has a string that is not UTF-8")
    return ProtocolError(f"{what} ends too early")


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for index in range(1, _VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ProtocolError("a varint is longer than five bytes")


def write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_tag_count(data: Buffer, position: int) -> tuple[int, int]:
    count, position = read_varint(data, position)
    if count > _TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields in one struct")
    return count, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields, none of which is known (KIP-482)."""
    count, position = read_tag_count(data, position)
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        position = end_of(data, position, size)
    return position


def read_tagged_fields(data: Buffer, position: int) -> tuple[dict[int, Buffer], int]:
    """Return the tagged fields at `position`, as undecoded bytes."""
    fields = {}
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        end = end_of(data, position, size)
        fields[tag] = data[position:end]
        position = end
    return fields, position


def write_tagged_fields(out: bytearray, fields: Sequence[tuple[int, Buffer]]) -> None:
    """Write encoded fields, which must be in the order of their tags."""
    write_varint(out, len(fields))
    for tag, encoded in fields:
        write_varint(out, tag)
        write_varint(out, len(encoded))
        out += encoded


def end_of(data: Buffer, position: int, size: int) -> int:
    """Return `position + size`; raises ProtocolError if the data is shorter."""
    end = position + size
    if end > len(data):
        raise ProtocolError(f"a field of {size} bytes in the last {len(data) - position}")
    return end


def _null() -> ProtocolError:
    return ProtocolError("null where a value is needed")


def read_uuid(data: Buffer, position: int) -> tuple[UUID, int]:
    end = end_of(data, position, 16)
    raw = bytes(data[position:end])
    return (NO_TOPIC_ID if raw == _ZERO_UUID else UUID(bytes=raw)), end


def write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def read_compact_string(data: Buffer, position: int) -> tuple[str, int]:
    size, position = read_varint(data, position)
    if size == 0:
        raise _null()
    end = end_of(data, position, size - 1)
    return str(data[position:end], "utf-8"), end


def read_compact_nullable_string(data: Buffer, position: int) -> tuple[str | None, int]:
    size, position = read_varint(data, position)
    if size == 0:
        return None, position
    end = end_of(data, position, size - 1)
    return str(data[position:end], "utf-8"), end


def read_string(data: Buffer, position: int) -> tuple[str, int]:
    value, position = read_nullable_string(data, position)
    if value is None:
        raise _null()
    return value, position


def read_nullable_string(data: Buffer, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, position)
    position += 2
    if size < 0:
        return None, position
    end = end_of(data, position, size)
    return str(data[position:end], "utf-8"), end


def read_compact_bytes_view(data: Buffer, position: int) -> tuple[Buffer | None, int]:
    """Read nullable bytes as a slice of `data`, which is a view if `data` is a memoryview."""
    size = data[position]
    if size < 0x80:
        position += 1
    else:
        size, position = read_varint(data, position)
    if size == 0:
        return None, position
    end = position + size - 1
    if end > len(data):
        end_of(data, position, size - 1)
    return data[position:end], end


def read_bytes_view(data: Buffer, position: int) -> tuple[Buffer | None, int]:
    (size,) = _INT32.unpack_from(data, position)
    position += 4
    if size < 0:
        return None, position
    end = end_of(data, position, size)
    return data[position:end], end


def _copying(read_view: Reader, *, nullable: bool) -> Reader:
    def read(data: Buffer, position: int) -> tuple[bytes | None, int]:
        value, position = read_view(data, position)
        if value is not None:
            return bytes(value), position
        if not nullable:
            raise _null()
        return None, position

    return read


def _bounded(read_string: Reader) -> Reader:
    """Return a reader that also checks the length of a compact string.

    It may become part of a record or response with plain strings; a longer one would fail there, when it is encoded.
    """

    def read(data: Buffer, position: int) -> tuple[str | None, int]:
        first = data[position]
        if 0 < first < 0x80 and position + first <= len(data):
            # The most frequent case: the size takes one byte, and all bytes are available.
            end = position + first
            return str(data[position + 1 : end], "utf-8"), end
        value, end = read_string(data, position)
        size = end - position - _COMPACT_SIZE_BYTES_MAX
        if size > _STRING_BYTES_MAX:
            raise ProtocolError(f"a string of {size} bytes, where {_STRING_BYTES_MAX} are the most")
        return value, end

    return read


def write_compact_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    size = len(encoded) + 1
    if size < 0x80:
        out.append(size)
    else:
        write_varint(out, size)
    out += encoded


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    out += _INT16.pack(len(encoded))
    out += encoded


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_bytes(out: bytearray, value: Buffer) -> None:
    write_varint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def write_bytes(out: bytearray, value: Buffer) -> None:
    out += _INT32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def read_array_size(data: Buffer, position: int, item_size_min: int) -> tuple[int, int]:
    """Read the size of an array, -1 for null; raises ProtocolError if the rest of the data is too short for it."""
    (count,) = _INT32.unpack_from(data, position)
    position += 4
    if count * item_size_min > len(data) - position:
        raise ProtocolError(f"an array of {count} items in the last {len(data) - position} bytes")
    return max(count, -1), position


def read_compact_array_size(data: Buffer, position: int, item_size_min: int) -> tuple[int, int]:
    count, position = read_varint(data, position)
    if (count - 1) * item_size_min > len(data) - position:
        raise ProtocolError(f"an array of {count - 1} items in the last {len(data) - position} bytes")
    return count - 1, position


def write_array_size(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def write_compact_array_size(out: bytearray, count: int) -> None:
    """Write the size of an array; -1 stands for null, as in `write_array_size`."""
    if count < 0x7F:
        out.append(count + 1)
    else:
        write_varint(out, count + 1)


# The readers and writers of strings and bytes, by (flexible, nullable).
STRING_READERS: dict[tuple[bool, bool], Reader] = {
    (False, False): read_string,
    (False, True): read_nullable_string,
    (True, False): _bounded(read_compact_string),
    (True, True): _bounded(read_compact_nullable_string),
}
STRING_WRITERS: dict[tuple[bool, bool], Writer] = {
    (False, False): write_string,
    (False, True): write_nullable_string,
    (True, False): write_compact_string,
    (True, True): write_compact_nullable_string,
}
BYTES_READERS: dict[tuple[bool, bool], Reader] = {
    (False, False): _copying(read_bytes_view, nullable=False),
    (False, True): _copying(read_bytes_view, nullable=True),
    (True, False): _copying(read_compact_bytes_view, nullable=False),
    (True, True): _copying(read_compact_bytes_view, nullable=True),
}
BYTES_WRITERS: dict[tuple[bool, bool], Writer] = {
    (False, False): write_bytes,
    (False, True): write_nullable_bytes,
    (True, False): write_compact_bytes,
    (True, True): write_compact_nullable_bytes,
}
