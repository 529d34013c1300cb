"""Encodes the records of a batch from columns: the work of the producer for every record that it sends.

One loop collects the parts of all records, and one join copies them. Lengths are looked up in a table of varints, and a
timestamp delta is encoded only when it changes. `record.encode_records` is the plain equivalent; tests compare the two.

The batch's base offset and base timestamp are those of its first record, and offset deltas count up from 0. Called by
`client.produce`, once per batch.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Protocol

from rookery.base.types import TimestampMs
from rookery.records.record import Headers

_INT64_LIMIT = 2**63
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
# An attributes byte, unused so far, precedes the timestamp delta.
_ATTRIBUTES = b"\x00"


def encode_varint(value: int) -> bytes:
    """Encode a 64-bit integer as a zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


class _Varints(Protocol):
    def __getitem__(self, value: int, /) -> bytes: ...


class _Sizes(Protocol):
    def __getitem__(self, value: int, /) -> int: ...


# Lengths whose varints have one or two bytes: the varints, and the sizes of the varint plus the data that it counts.
_TABLE_SIZE = 2**13
_VARINTS = [encode_varint(value) for value in range(_TABLE_SIZE)]
_SIZES = [value + len(written) for value, written in enumerate(_VARINTS)]


class _AllVarints:
    def __getitem__(self, value: int, /) -> bytes:
        return encode_varint(value)


class _AllSizes:
    def __getitem__(self, value: int, /) -> int:
        return value + len(encode_varint(value))


def pack_records(
    timestamps_ms: Sequence[TimestampMs],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None = None,
) -> bytearray:
    """Encode the records of a batch, uncompressed, from columns of equal length; `headers` may be None."""
    encoded_headers: Sequence[bytes] | None = None if headers is None else list(map(_pack_headers, headers))
    try:
        parts = _parts(timestamps_ms, keys, values, encoded_headers, varints=_VARINTS, sizes=_SIZES)
    except IndexError:
        # A record is longer than the tables cover.
        parts = _parts(timestamps_ms, keys, values, encoded_headers, varints=_AllVarints(), sizes=_AllSizes())
    return bytearray().join(parts)


def _parts(
    timestamps_ms: Sequence[TimestampMs],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    encoded_headers: Sequence[bytes] | None,
    *,
    varints: _Varints,
    sizes: _Sizes,
) -> list[bytes]:
    parts: list[bytes] = []
    base_ms = timestamps_ms[0] if timestamps_ms else 0
    before_ms, prefix = base_ms, _ATTRIBUTES + _VARINTS[0]
    # The size of the prefix plus the one byte that says that there are no headers.
    fixed_size = 3
    deltas = _offset_deltas(len(values))
    rows = zip(timestamps_ms, deltas, keys, values, encoded_headers or repeat(_NO_HEADERS), strict=False)
    for timestamp_ms, offset_delta, key, value, ending in rows:
        if timestamp_ms != before_ms:
            before_ms, prefix = timestamp_ms, _ATTRIBUTES + encode_varint(_wrap(timestamp_ms - base_ms))
            fixed_size = len(prefix) + 1
        size = fixed_size + len(offset_delta)
        if encoded_headers is not None:
            size += len(ending) - 1
        if value is None:
            value_size, value = _NULL, b""
            size += 1
        else:
            value_size = varints[length := len(value)]
            size += sizes[length]
        if key is None:
            parts += (varints[size + 1], prefix, offset_delta, _NULL, value_size, value, ending)
        else:
            length = len(key)
            size += sizes[length]
            parts += (varints[size], prefix, offset_delta, varints[length], key, value_size, value, ending)
    return parts


def _offset_deltas(count: int) -> Iterable[bytes]:
    if count <= _TABLE_SIZE:
        return _VARINTS
    return chain(_VARINTS, map(encode_varint, range(_TABLE_SIZE, count)))


def _wrap(value: int) -> int:
    """Return `value` wrapped to 64 bits: deltas of extreme timestamps overflow, and decoding wraps them back."""
    return (value + _INT64_LIMIT) % 2**64 - _INT64_LIMIT


def _pack_headers(headers: Headers) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts = [_varint(len(headers))]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        parts += (_varint(len(name)), name)
        parts += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def _varint(length: int) -> bytes:
    return _VARINTS[length] if length < _TABLE_SIZE else encode_varint(length)
