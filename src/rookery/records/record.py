"""The records inside a batch: varints and bytes (KIP-98), decoded from untrusted bytes and encoded.

The broker's produce and fetch paths do not use this module; clients, compaction, timestamp lookups and checks of single
records do. Decoding raises `InvalidBatchError` and nothing else, whatever the bytes are. `iterate_spans` is the lower
level: it finds the positions of records without decoding them. `records.keys` has a faster variant for compaction.

Header keys that are not UTF-8 are kept byte for byte by Python's `surrogateescape`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from rookery.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    make_attributes,
    read_header,
    seal,
)
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress, decompress

_NULL = -1
_VARINT_SIZE_MAX = 10
_INT64_LIMIT = 2**63
_UINT64_MAX = 2**64 - 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: Offset
    timestamp_ms: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordSpan(NamedTuple):
    """The position of one record in a batch's decompressed records, and the fields that decide whether it is kept."""

    start: int
    end: int
    timestamp_delta_ms: int
    # The position of the offset delta: from here on nothing depends on the batch's base timestamp.
    after_timestamp: int
    offset_delta: int
    key: bytes | None
    value_start: int
    # -1 for a null value (a tombstone).
    value_size: int

    @property
    def is_tombstone(self) -> bool:
        return self.value_size == _NULL


def decode_records(batch: Buffer, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> list[Record]:
    """Decode the records of one whole batch, whose length and CRC were checked when it was received."""
    return read_records(*open_batch(batch, size_max=size_max))


def read_records(header: BatchHeader, payload: bytes) -> list[Record]:
    """Decode the records of a batch that `open_batch` has opened."""
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    records: list[Record] = []
    for _, end, timestamp_delta_ms, _, offset_delta, key, value_start, value_size in iterate_spans(payload, header):
        timestamp_ms = _wrap(base_timestamp_ms + timestamp_delta_ms) if append_time_ms is None else append_time_ms
        value_end = value_start + value_size if value_size > 0 else value_start
        value = None if value_size == _NULL else payload[value_start:value_end]
        # Most records have no headers: a single zero byte.
        has_headers = payload[value_end] or value_end + 1 != end
        headers = read_headers(payload, value_end, end, index=len(records)) if has_headers else ()
        records.append(Record(base_offset + offset_delta, timestamp_ms, key, value, headers))
    return records


def record_timestamp(header: BatchHeader, timestamp_delta_ms: int) -> TimestampMs:
    """Return the record's own timestamp, which is valid unless the broker has timestamped the batch."""
    return _wrap(header.base_timestamp_ms + timestamp_delta_ms)


def open_batch(batch: Buffer, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> tuple[BatchHeader, bytes]:
    """Return the header and the decompressed records of a batch."""
    if len(batch) < HEADER_SIZE:
        raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are too few for a record batch")
    header = read_header(batch)
    return header, open_records(header, batch, size_max=size_max)


def open_records(header: BatchHeader, batch: Buffer, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Return the decompressed records of a batch whose header is already read."""
    if header.magic != MAGIC_V2 or header.size_bytes != len(batch) or header.record_count < 0:
        raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, "not one whole v2 record batch")
    if header.codec_id > Codec.ZSTD:
        raise InvalidBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {header.codec_id}")
    payload = memoryview(batch)[HEADER_SIZE:]
    if header.record_count == 0 and not payload:
        # Compaction leaves only the header of a producer's last batch, whatever its codec.
        return b""
    return decompress(Codec(header.codec_id), payload, size_max=size_max)


def iterate_spans(payload: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Yield the records that `header` counts; they must fill `payload` exactly and increase in offset."""
    position, offset_delta_before, last_offset_delta = 0, -1, header.last_offset_delta
    for index in range(header.record_count):
        try:
            span = read_span(payload, position)
        except (IndexError, ValueError):
            raise _invalid("the record is cut off or malformed", index) from None
        position, offset_delta = span.end, span.offset_delta
        if not offset_delta_before < offset_delta <= last_offset_delta:
            raise _invalid(f"its offset delta {offset_delta} is out of order", index)
        yield span
        offset_delta_before = offset_delta
    if position != len(payload):
        raise InvalidBatchError(
            ErrorCode.INVALID_RECORD,
            f"{len(payload) - position} bytes are left after the batch's {header.record_count} records",
        )


def read_span(payload: bytes, start: int) -> RecordSpan:
    """Read the span of the record at `start`; raises IndexError or ValueError on malformed bytes."""
    size, position = read_varint(payload, start)
    end = position + size
    if size < 0 or end > len(payload):
        raise ValueError
    # One byte of record attributes, unused so far, precedes the timestamp.
    timestamp_delta_ms, after_timestamp = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, after_timestamp)
    key_size, position = read_varint(payload, position)
    key = None if key_size == _NULL else payload[position : position + key_size]
    if key_size > 0:
        position += key_size
    value_size, position = read_varint(payload, position)
    if key_size < _NULL or value_size < _NULL or position + max(0, value_size) >= end:
        raise ValueError
    return RecordSpan(start, end, timestamp_delta_ms, after_timestamp, offset_delta, key, position, value_size)


def read_headers(payload: bytes, position: int, end: int, *, index: int) -> Headers:
    """Decode the headers, which fill the rest of a record; `index` is that of the record in its batch."""
    try:
        count, position = read_varint(payload, position)
        if not 0 <= count <= end - position:
            raise ValueError
        headers = []
        for _ in range(count):
            key, position = _read_bytes(payload, position, end)
            value, position = _read_bytes(payload, position, end)
            if key is None:
                raise ValueError
            headers.append((key.decode("utf-8", "surrogateescape"), value))
        if position != end:
            raise ValueError
    except (IndexError, ValueError):
        raise _invalid("its headers are cut off or malformed", index) from None
    return tuple(headers)


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position)
    if size == _NULL:
        return None, position
    if not 0 <= size <= end - position:
        raise ValueError
    return payload[position : position + size], position + size


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it; IndexError at the end of the data, ValueError if too long."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw, shift = byte & 0x7F | (second & 0x7F) << 7, 14
    for after in range(position + 2, position + _VARINT_SIZE_MAX):
        byte = data[after]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Bits beyond the 64th are dropped, as in 64-bit arithmetic.
            raw &= _UINT64_MAX
            return (raw >> 1) ^ -(raw & 1), after + 1
        shift += 7
    raise ValueError


def _wrap(value: int) -> int:
    """Return `value` wrapped to 64 bits: extreme timestamps and their deltas overflow, and decoding wraps them back."""
    return value if -_INT64_LIMIT <= value < _INT64_LIMIT else (value + _INT64_LIMIT) % 2**64 - _INT64_LIMIT


def _write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: Offset = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    log_append_time_ms: TimestampMs | None = None,
) -> bytearray:
    """Build a batch of at least one record; their offsets start at or above `base_offset` and increase."""
    timestamps = [record.timestamp_ms for record in records]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=make_attributes(
            codec, log_append_time=log_append_time_ms is not None, transactional=transactional, control=control
        ),
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp_ms=timestamps[0],
        max_timestamp_ms=max(timestamps) if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    payload = encode_records(records, base_offset=base_offset, base_timestamp_ms=timestamps[0])
    return seal(header, compress(codec, payload, level) if codec else payload)


def encode_records(records: Iterable[Record], *, base_offset: Offset, base_timestamp_ms: TimestampMs) -> bytearray:
    payload = bytearray()
    for record in records:
        body = bytearray(1)
        _write_varint(body, _wrap(record.timestamp_ms - base_timestamp_ms))
        _write_varint(body, record.offset - base_offset)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        _write_varint(body, len(record.headers))
        for key, value in record.headers:
            _write_bytes(body, key.encode("utf-8", "surrogateescape"))
            _write_bytes(body, value)
        _write_varint(payload, len(body))
        payload += body
    return payload


def rebase_span(payload: bytes, span: RecordSpan, timestamp_delta_ms: int) -> bytearray:
    """Return the record of `span` with another timestamp delta, for a batch whose base timestamp changes."""
    body = bytearray(1)
    _write_varint(body, _wrap(timestamp_delta_ms))
    body += memoryview(payload)[span.after_timestamp : span.end]
    record = bytearray()
    _write_varint(record, len(body))
    return record + body


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        _write_varint(out, len(data))
        out += data


def _invalid(what: str, index: int) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, f"record {index}: {what}", record_index=index)
