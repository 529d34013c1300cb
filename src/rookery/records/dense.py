"""A fast reader of batches as producers write them: no headers, no gaps between offsets, nothing very large.

`unpack_dense` does for such a batch what `batch_reader.unpack_records` does for every batch, in a half to a fifth of
the time, and returns None for all others, valid or not: those are left to `unpack_records`. Two things make it fast.
Offset deltas are known before they are read, 0, 1, 2 and so on, so that they are compared and not decoded. And records
of equal size lie at equal distances, so that a slice with a step reads one byte of each of them in one operation; that
is tried first, and for as long as it succeeds.

A result always equals that of `unpack_records`: every length is compared with its record's size. Called by
`client.consume` and `records.inspection`, once per batch. Pure.
"""

from functools import cache

from rookery.records.batch import BatchHeader
from rookery.records.batch_reader import RecordColumns

# The encoding of -1.
_NULL = 1
# The first indexes whose varints have another width: zigzag doubles the value, and a byte holds 7 bits.
_TWO_BYTES, _THREE_BYTES = 64, 8192
# Larger batches are left to `unpack_records`: three bytes reach a million, and the tables would hold all of them.
_COUNT_MAX = 65_536
# Width in bytes of a varint -> range of the offset deltas that have it.
_WIDTHS = {1: (0, _TWO_BYTES), 2: (_TWO_BYTES, _THREE_BYTES), 3: (_THREE_BYTES, _COUNT_MAX)}
# Fewer equal records in a row are not worth the slices.
_RUN_MIN = 16
_TIMESTAMP_LIMIT = 2**62


class _Columns:
    """The records read so far; `end` is the position after the last one."""

    __slots__ = ("end", "keys", "time_deltas", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        # Timestamp deltas as encoded: zigzag.
        self.time_deltas: list[int] = []
        self.end = 0


def unpack_dense(header: BatchHeader, payload: bytes) -> RecordColumns | None:
    """Decode the records of a batch, or return None: then use `unpack_records`."""
    count = header.record_count
    if count != header.last_offset_delta + 1 or count > _COUNT_MAX:
        return None
    if not 0 <= header.base_timestamp_ms < _TIMESTAMP_LIMIT:
        return None
    columns = _Columns()
    try:
        for width, (first, last) in _WIDTHS.items():
            stop = min(count, last)
            if stop <= first:
                break
            done = _read_runs(columns, payload, first, stop, width)
            if done < stop and not _read_any(columns, payload, _deltas(width)[done - first : stop - first], width):
                return None
    except IndexError:
        return None
    if len(columns.values) != count or columns.end != len(payload):
        return None
    offsets = range(header.base_offset, header.base_offset + count)
    return RecordColumns(offsets, _timestamps(header, columns.time_deltas), columns.keys, columns.values, None)


@cache
def _deltas(width: int) -> list[bytes]:
    """Return the encoded offset deltas whose varints have this width."""
    deltas = range(*_WIDTHS[width])
    if width == 1:
        return [bytes([2 * delta]) for delta in deltas]
    if width == 2:
        return [bytes([2 * delta & 0x7F | 0x80, delta >> 6]) for delta in deltas]
    return [bytes([2 * delta & 0x7F | 0x80, delta >> 6 & 0x7F | 0x80, delta >> 13]) for delta in deltas]


@cache
def _delta_column(width: int, byte: int) -> bytes:
    """Return one byte of each of `_deltas(width)`."""
    return bytes(delta[byte] for delta in _deltas(width))


def _timestamps(header: BatchHeader, time_deltas: list[int]) -> list[int]:
    if header.is_log_append_time:
        return [header.max_timestamp_ms] * len(time_deltas)
    base_ms = header.base_timestamp_ms
    if not any(time_deltas):
        return [base_ms] * len(time_deltas)
    return [base_ms + ((delta >> 1) ^ -(delta & 1)) for delta in time_deltas]


def _read_runs(columns: _Columns, payload: bytes, first: int, stop: int, width: int) -> int:
    """Read runs of equal records from index `first` on; returns the index of the first record that was not read."""
    skipped = first
    while stop - first >= _RUN_MIN:
        count = _read_run(columns, payload, stop - first, width, first - skipped)
        first += count
        if count < _RUN_MIN:
            break
    return first


def _read_run(columns: _Columns, payload: bytes, count: int, width: int, index: int) -> int:
    """Read records like the first: equal in size, and in the sizes of key, value and timestamp delta; returns how many.

    `index` is that of the first record among those whose offset deltas have `width` bytes.
    """
    start = columns.end
    raw, after_size = payload[start], start + 1
    if raw > 0x7F:
        raw, after_size = raw & 0x7F | payload[start + 1] << 7, start + 2
    stride = after_size - start + (raw >> 1)
    end = start + stride
    time_delta_at = after_size + 1
    time_delta_width = 1 if payload[time_delta_at] < 0x80 else 2
    key_at = time_delta_at + time_delta_width + width
    key_raw = payload[key_at]
    key_start = key_at + 1
    key_end = key_start if key_raw == _NULL else key_start + (key_raw >> 1)
    value_raw, value_start = payload[key_end], key_end + 1
    if value_raw > 0x7F:
        value_raw, value_start = value_raw & 0x7F | payload[key_end + 1] << 7, key_end + 2
    if key_raw > 0x7F or (key_raw & 1 and key_raw != _NULL) or raw & 1 or value_raw != (end - 1 - value_start) << 1:
        return 0
    count = min(count, (len(payload) - start) // stride)
    # One byte of each record: its size, the key's size, the value's size, and the number of headers.
    for at in (*range(start, after_size), key_at, *range(key_end, value_start), end - 1):
        same = payload[at : start + count * stride : stride]
        count -= len(same.lstrip(same[:1]))
    if payload[end - 1]:
        return 0
    time_deltas = _time_deltas(payload, time_delta_at, stride, count, time_delta_width)
    count = len(time_deltas)
    stop = start + count * stride
    for byte in range(width):
        deltas = payload[key_at - width + byte : stop : stride]
        if deltas != _delta_column(width, byte)[index : index + count]:
            return 0
    columns.time_deltas += time_deltas
    size = end - 1 - value_start
    columns.values += [payload[at : at + size] for at in range(value_start, stop, stride)]
    if key_raw == _NULL:
        columns.keys += [None] * count
    else:
        size = key_end - key_start
        columns.keys += [payload[at : at + size] for at in range(key_start, stop, stride)]
    columns.end = stop
    return count


def _time_deltas(payload: bytes, at: int, stride: int, count: int, width: int) -> list[int]:
    """Return timestamp deltas of `width` bytes, up to the first that has another width."""
    low = payload[at : at + count * stride : stride][:count]
    if width == 1:
        return list(low if low.isascii() else low[: next(n for n, byte in enumerate(low) if byte > 0x7F)])
    high = payload[at + 1 : at + 1 + count * stride : stride][:count]
    time_deltas = []
    for less, more in zip(low, high, strict=False):
        if less < 0x80 or more > 0x7F:
            break
        time_deltas.append(less & 0x7F | more << 7)
    return time_deltas


def _read_any(columns: _Columns, payload: bytes, deltas: list[bytes], width: int) -> bool:
    """Read records of any size below 8 KB with these offset deltas; returns False if one is not of that form."""
    add_key, add_value, add_time_delta = columns.keys.append, columns.values.append, columns.time_deltas.append
    end = columns.end
    signs = tails = 0
    for delta in deltas:
        if (raw := payload[end]) < 0x80:
            position, end = end + 2, end + 1 + (raw >> 1)
        elif (second := payload[end + 1]) < 0x80:
            position, end = end + 3, end + 2 + ((raw & 0x7F | second << 7) >> 1)
        else:
            return False
        signs |= raw
        if (raw := payload[position]) < 0x80:
            position += 1
        elif (second := payload[position + 1]) < 0x80:
            raw, position = raw & 0x7F | second << 7, position + 2
        else:
            return False
        add_time_delta(raw)
        if payload[position : (position := position + width)] != delta:
            return False
        if (raw := payload[position]) == _NULL:
            position += 1
            add_key(None)
        elif raw < 0x80:
            signs |= raw
            position += 1
            add_key(payload[position : (position := position + (raw >> 1))])
        else:
            return False
        if (raw := payload[position]) < 0x80:
            position += 1
        elif (second := payload[position + 1]) < 0x80:
            raw, position = raw & 0x7F | second << 7, position + 2
        else:
            return False
        last = end - 1
        if raw == (last - position) << 1:
            add_value(payload[position:last])
        elif raw == _NULL and position == last:
            add_value(None)
        else:
            return False
        tails |= payload[last]
    columns.end = end
    return not (signs & 1 or tails)
