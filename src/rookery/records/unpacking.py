"""The records of a batch, read into columns: what the consumer does with every record that it gets.

One loop over a few local integers takes the records apart, with varints of one and two bytes in line; longer ones go to
`record.read_varint`. It makes no object per record but the key and the value. `record.read_records` says the same in
plain words; tests compare.

Like all reading of records it raises `InvalidBatchError` and nothing else, whatever the bytes are. Called by
`client.consume` and `broker.schema_checks`, once per batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Offset, TimestampMs
from rookery.records.batch import BatchHeader
from rookery.records.keys import read_offsets
from rookery.records.record import Headers, read_headers, read_varint, record_timestamp

# -1 as it is written.
_NULL = 1
# Sums of two numbers below it fit 64 bits.
_PLAIN_TIMESTAMP_LIMIT = 2**62


class RecordColumns(NamedTuple):
    """The records of a batch, as columns of the same length."""

    offsets: Sequence[Offset]
    timestamps_ms: Sequence[TimestampMs]
    keys: list[bytes | None]
    values: list[bytes | None]
    # None if no record has any.
    headers: list[Headers] | None


def unpack_records(header: BatchHeader, payload: bytes) -> RecordColumns:
    """The records that `header` counts; these must fill `payload`, which is decompressed, and go up in offset."""
    keys, values = list[bytes | None](), list[bytes | None]()
    # Timestamp and offset deltas as they are written, zigzag; where headers start and end, if there are any.
    delays, deltas, endings = list[int](), list[int](), dict[int, tuple[int, int]]()
    add_key, add_value, add_delay, add_delta = keys.append, values.append, delays.append, deltas.append
    end = signs = 0
    try:
        for index in range(header.record_count):
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
            add_delay(raw)
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
                endings[index] = position, end
    except (IndexError, ValueError):
        raise _malformed(index) from None
    if signs & 1 or end != len(payload):
        raise _unfilled(header, payload)
    columns = read_offsets(header, deltas), _timestamps(header, delays), keys, values
    return RecordColumns(*columns, _read_all_headers(payload, endings, len(keys)))


def _timestamps(header: BatchHeader, delays: list[int]) -> Sequence[TimestampMs]:
    if header.is_log_append_time:
        return [header.max_timestamp_ms] * len(delays)
    if not any(delays):
        return [header.base_timestamp_ms] * len(delays)
    base_ms = header.base_timestamp_ms
    if 0 <= base_ms < _PLAIN_TIMESTAMP_LIMIT and max(delays) < _PLAIN_TIMESTAMP_LIMIT:
        return [base_ms + ((delay >> 1) ^ -(delay & 1)) for delay in delays]
    return [record_timestamp(header, (delay >> 1) ^ -(delay & 1)) for delay in delays]


def _read_all_headers(payload: bytes, endings: dict[int, tuple[int, int]], count: int) -> list[Headers] | None:
    if not endings:
        return None
    headers: list[Headers] = [()] * count
    for index, (start, end) in endings.items():
        # A key or a value that goes beyond its record.
        if start >= end:
            raise _malformed(index)
        headers[index] = read_headers(payload, start, end, index=index)
    return headers


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """A varint of any length as it is written, zigzag, and the position behind it."""
    value, position = read_varint(data, position)
    return (value << 1) ^ (value >> 63), position


def _malformed(index: int) -> InvalidBatchError:
    message = f"record {index}: the record is cut off or malformed"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message, record_index=index)


def _unfilled(header: BatchHeader, payload: bytes) -> InvalidBatchError:
    message = f"{header.record_count} records do not fill the batch's {len(payload)} bytes"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message)
