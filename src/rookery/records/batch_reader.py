"""Decodes the records of a batch into columns: the work of the consumer for every record that it receives.

One loop over a few local integers decodes the records, with varints of one and two bytes inlined; longer ones go to
`record.read_varint`. It creates no objects per record except the key and the value. `record.read_records` is the plain
equivalent; tests compare the two.

Like all decoding of records it raises `InvalidBatchError` and nothing else, whatever the bytes are. `unpack_records` is
called by `client.consume`, once per batch; `unpack_pieces` by `records.inspection`, which must not block for long.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Offset, TimestampMs
from rookery.records.batch import BatchHeader
from rookery.records.keys import read_offsets
from rookery.records.record import Headers, read_headers, read_varint, record_timestamp

# The encoding of -1.
_NULL = 1
# The sum of two numbers below it fits 64 bits.
_PLAIN_TIMESTAMP_LIMIT = 2**62


class RecordColumns(NamedTuple):
    """The records of a batch, as columns of the same length."""

    offsets: Sequence[Offset]
    timestamps_ms: Sequence[TimestampMs]
    keys: list[bytes | None]
    values: list[bytes | None]
    # None if no record has headers.
    headers: list[Headers] | None


class _Piece(NamedTuple):
    """Some records, and the position of the next one."""

    end: int
    # Timestamp and offset deltas as encoded: zigzag.
    time_deltas: list[int]
    deltas: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    # Record index -> start and end of its headers, for records that have any.
    header_ranges: dict[int, tuple[int, int]]


def unpack_records(header: BatchHeader, payload: bytes) -> RecordColumns:
    """Decode the records that `header` counts; they must fill the decompressed `payload` and increase in offset."""
    piece = _read_piece(payload, 0, range(header.record_count))
    if piece.end != len(payload):
        raise _unfilled(header, payload)
    columns = read_offsets(header, piece.deltas), _timestamps(header, piece.time_deltas), piece.keys, piece.values
    return RecordColumns(*columns, _read_all_headers(payload, piece.header_ranges, header.record_count))


def unpack_pieces(header: BatchHeader, payload: bytes, count_max: int) -> Iterator[RecordColumns]:
    """Like `unpack_records`, `count_max` records at a time, for a batch with one record per offset.

    Headers are not decoded: a single record can have millions of them, which would take seconds.
    """
    end = 0
    for first in range(0, header.record_count, count_max):
        indexes = range(first, min(first + count_max, header.record_count))
        piece = _read_piece(payload, end, indexes)
        end = piece.end
        if piece.deltas != [2 * index for index in indexes]:
            raise _malformed(first)
        offsets = range(header.base_offset + first, header.base_offset + indexes.stop)
        yield RecordColumns(offsets, _timestamps(header, piece.time_deltas), piece.keys, piece.values, None)
    if end != len(payload):
        raise _unfilled(header, payload)


def _read_piece(payload: bytes, end: int, indexes: range) -> _Piece:
    """Decode the records with these indexes, which start at `end`."""
    keys, values = list[bytes | None](), list[bytes | None]()
    time_deltas, deltas, header_ranges = list[int](), list[int](), dict[int, tuple[int, int]]()
    add_key, add_value, add_time_delta, add_delta = keys.append, values.append, time_deltas.append, deltas.append
    signs = 0
    index = indexes.start
    try:
        for index in indexes:
            if (raw := payload[end]) < 0x80:
                position, end = end + 2, end + 1 + (raw >> 1)
            elif (second := payload[end + 1]) < 0x80:
                position, end = end + 3, end + 2 + ((raw & 0x7F | second << 7) >> 1)
            else:
                raw, start = _read_long(payload, end)
                position, end = start + 1, start + (raw >> 1)
            signs |= raw
            if (raw := payload[position]) < 0x80:
                position += 1
            elif (second := payload[position + 1]) < 0x80:
                raw, position = raw & 0x7F | second << 7, position + 2
            else:
                raw, position = _read_long(payload, position)
            add_time_delta(raw)
            if (raw := payload[position]) < 0x80:
                position += 1
            elif (second := payload[position + 1]) < 0x80:
                raw, position = raw & 0x7F | second << 7, position + 2
            else:
                raw, position = _read_long(payload, position)
            add_delta(raw)
            if (raw := payload[position]) < 0x80:
                position += 1
            else:
                raw, position = _read_long(payload, position)
            if raw == _NULL:
                add_key(None)
            else:
                signs |= raw
                add_key(payload[position : (position := position + (raw >> 1))])
            if (raw := payload[position]) < 0x80:
                position += 1
            elif (second := payload[position + 1]) < 0x80:
                raw, position = raw & 0x7F | second << 7, position + 2
            else:
                raw, position = _read_long(payload, position)
            if raw == _NULL:
                add_value(None)
            else:
                signs |= raw
                add_value(payload[position : (position := position + (raw >> 1))])
            if payload[position] or position + 1 != end:
                header_ranges[index] = position, end
    except (IndexError, ValueError):
        raise _malformed(index) from None
    # A key or a value that extends beyond its record.
    beyond = next((index for index, (start, stop) in header_ranges.items() if start >= stop), None)
    if beyond is not None or signs & 1 or end > len(payload):
        raise _malformed(index if beyond is None else beyond)
    return _Piece(end, time_deltas, deltas, keys, values, header_ranges)


def _timestamps(header: BatchHeader, time_deltas: list[int]) -> Sequence[TimestampMs]:
    if header.is_log_append_time:
        return [header.max_timestamp_ms] * len(time_deltas)
    if not any(time_deltas):
        return [header.base_timestamp_ms] * len(time_deltas)
    base_ms = header.base_timestamp_ms
    if 0 <= base_ms < _PLAIN_TIMESTAMP_LIMIT and max(time_deltas) < _PLAIN_TIMESTAMP_LIMIT:
        return [base_ms + ((delta >> 1) ^ -(delta & 1)) for delta in time_deltas]
    return [record_timestamp(header, (delta >> 1) ^ -(delta & 1)) for delta in time_deltas]


def _read_all_headers(payload: bytes, header_ranges: dict[int, tuple[int, int]], count: int) -> list[Headers] | None:
    if not header_ranges:
        return None
    headers: list[Headers] = [()] * count
    for index, (start, end) in header_ranges.items():
        headers[index] = read_headers(payload, start, end, index=index)
    return headers


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint of any length as encoded (zigzag), and the position after it."""
    value, position = read_varint(data, position)
    return (value << 1) ^ (value >> 63), position


def _malformed(index: int) -> InvalidBatchError:
    message = f"record {index}: the record is cut off or malformed"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message, record_index=index)


def _unfilled(header: BatchHeader, payload: bytes) -> InvalidBatchError:
    message = f"{header.record_count} records do not fill the batch's {len(payload)} bytes"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message)
