"""The header of a v2 record batch: 61 bytes with everything that the broker needs (KIP-98).

The broker does not decode the records of a batch. It reads this header, checks the CRC, stamps the two fields that lie
outside the CRC (base offset and leader epoch), and stores and serves the same bytes. `docs/formats/record-batch.md` has
the layout with a worked example.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs

HEADER_SIZE = 61
# Base offset and length: the bytes that `batch_length` does not count.
LENGTH_PREFIX_SIZE = 12
MAGIC_V2 = 2
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_LEADER_EPOCH_POSITION = 12
_MAGIC_POSITION = 16
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_SMALLEST_RECORD_SIZE = 7

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_HAS_DELETE_HORIZON = 0x40


class Codec(IntEnum):
    """The compression of a batch's records, as numbered in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# A plain integer for the hot path: in Python 3.11 the lookup of an enum member takes ten times as long.
_LAST_CODEC = int(Codec.ZSTD)


class BatchHeader(NamedTuple):
    """The fields of a batch header, in wire order."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: TimestampMs
    max_timestamp_ms: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_SIZE

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def codec_id(self) -> int:
        """A `Codec`, unless the bytes are untrusted and not checked yet."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> TimestampMs | None:
        """When tombstones and markers of a cleaned batch may be dropped; stored as the base timestamp (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & _HAS_DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; sequence numbers wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. The caller has checked that 61 bytes are available."""
    # Like `_make`, without its length check and a call: this runs for every batch.
    return tuple.__new__(BatchHeader, _HEADER.unpack_from(data, position))


def write_header(header: BatchHeader) -> bytes:
    return _HEADER.pack(*header)


def make_attributes(
    codec: Codec,
    *,
    log_append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    return (
        codec
        | (_LOG_APPEND_TIME if log_append_time else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
        | (_HAS_DELETE_HORIZON if delete_horizon else 0)
    )


def seal(header: BatchHeader, payload: Buffer) -> bytearray:
    """Return a whole batch of `header` and `payload`, with the matching length and CRC."""
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload)
    batch = bytearray(write_header(header._replace(batch_length=length, magic=MAGIC_V2, crc=0)))
    batch += payload
    struct.pack_into(">I", batch, _CRC_POSITION, compute_crc(batch))
    return batch


def seal_header(header: BatchHeader, payload: Buffer) -> bytes:
    """Return the header bytes to send before `payload`: like `seal`, without a copy of the payload."""
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload)
    sealed = bytearray(_HEADER.pack(header.base_offset, length, header.leader_epoch, MAGIC_V2, 0, *header[5:]))
    crc = crc32c(payload, crc32c(memoryview(sealed)[_ATTRIBUTES_POSITION:]))
    _CRC.pack_into(sealed, _CRC_POSITION, crc)
    return bytes(sealed)


def batch_size_at(data: Buffer, position: int = 0) -> int:
    """Return the size of the batch that starts at `position`, from its first 12 bytes."""
    length: int = _LENGTH.unpack_from(data, position)[1]
    return length + LENGTH_PREFIX_SIZE


def compute_crc(batch: Buffer) -> int:
    """Return the CRC that the header of `batch` should have: over everything after the CRC field."""
    return int(crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:]))


def stamp(batch: bytearray | memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write the two fields that the leader assigns; both lie outside the CRC."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(batch: bytearray | memoryview, now_ms: TimestampMs) -> None:
    """Mark the batch as timestamped by the broker and update its CRC; readers ignore the records' own timestamps."""
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_POSITION)
    struct.pack_into(">h", batch, _ATTRIBUTES_POSITION, attributes | _LOG_APPEND_TIME)
    struct.pack_into(">q", batch, _MAX_TIMESTAMP_POSITION, now_ms)
    struct.pack_into(">I", batch, _CRC_POSITION, compute_crc(batch))


def check_batch(data: Buffer) -> BatchHeader:
    """Check one untrusted batch that should fill `data` exactly, without decoding it; the error codes are Kafka's."""
    size = len(data)
    if size < HEADER_SIZE or data[_MAGIC_POSITION] != MAGIC_V2:
        raise _not_a_batch(data)
    # `read_header` and `compute_crc`, inlined: this runs for every produced batch, and calls are most of the cost.
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(data))
    if header.batch_length != size - LENGTH_PREFIX_SIZE:
        raise InvalidBatchError(
            ErrorCode.INVALID_RECORD if header.size_bytes >= HEADER_SIZE else ErrorCode.CORRUPT_MESSAGE,
            f"the batch says it has {header.size_bytes} bytes, the request has {size}",
        )
    if crc32c(memoryview(data)[_ATTRIBUTES_POSITION:]) != header.crc:
        raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum does not match")
    count, codec = header.record_count, header.attributes & _CODEC_MASK
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidBatchError(
            ErrorCode.INVALID_RECORD, f"{count} records do not fit a last offset delta of {header.last_offset_delta}"
        )
    if codec > _LAST_CODEC:
        raise InvalidBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {codec}")
    if not codec and count * _SMALLEST_RECORD_SIZE > size - HEADER_SIZE:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, f"{size} bytes are too few for {count} records")
    return header


def _not_a_batch(data: Buffer) -> InvalidBatchError:
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] != MAGIC_V2:
        message = f"message format v{data[_MAGIC_POSITION]} is not supported, only v2 is"
    else:
        message = f"{len(data)} bytes are too few for a record batch"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message)


def iterate_headers(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch; a partial batch at the end is left out.

    Stops before bytes that are not a batch, such as those of a corrupt response.
    """
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        header = read_header(data, position)
        size = header.size_bytes
        if size < HEADER_SIZE or header.magic != MAGIC_V2 or position + size > end:
            return
        yield position, header
        position += size
