"""The pass over a segment after a crash: finds where its valid batches end.

Gigabytes go through this loop before the broker can serve requests, so it reads in large chunks and does little per
batch: one `unpack`, comparisons, and the CRC of batches that were not flushed. Below the recovery point only headers
are checked.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from rookery.base.errors import CorruptionError, InvalidBatchError
from rookery.base.types import NO_PRODUCER_ID, Buffer, Offset
from rookery.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2, Codec, make_attributes, read_header
from rookery.records.control import EndMarker, read_marker
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.index import RELATIVE_OFFSET_MAX
from rookery.storage.producers import ProducerStates
from rookery.storage.segment import IndexedBatch, Segment

# Base offset, length, epoch, magic, CRC, attributes, last offset delta, largest timestamp and producer id of a header.
_CHECK_FIELDS = struct.Struct(">qiibIhi8xqq")
_CONTROL = make_attributes(Codec.NONE, control=True)
# The CRC covers everything from the attributes on.
_CRC_START = 21

# Bytes per read while headers are enough, and while whole batches are needed.
_HEADERS_SIZE = 1 << 16
_BATCHES_SIZE = 1 << 20

_NOTHING = memoryview(b"")


class CheckedWalk:
    """One pass over a segment.

    `valid_size` and `end_offset` say how far the batches are valid, also after an error. Offsets must lie in [the
    segment's base offset, `limit`) and increase from batch to batch.
    """

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        *,
        recovery_point: Offset,
        limit: Offset,
    ) -> None:
        self._segment = segment
        self._epochs = epochs
        self._producers = producers
        self._recovery_point = recovery_point
        self._limit = min(limit, segment.base_offset + RELATIVE_OFFSET_MAX + 1)
        self.valid_size = 0
        self.end_offset = segment.base_offset

    def batches(self) -> Iterator[IndexedBatch]:
        """Yield the valid batches and note their epochs and producers; raises CorruptionError at the first bad one."""
        size_bytes, position, expected = self._segment.size_bytes, 0, self.end_offset
        limit, recovery_point = self._limit, self._recovery_point
        latest_epoch, unpack = self._epochs.latest, _CHECK_FIELDS.unpack_from
        chunk, chunk_start, chunk_end, read_size = _NOTHING, 0, 0, _HEADERS_SIZE
        try:
            while position < size_bytes:
                if position + HEADER_SIZE > chunk_end:
                    chunk, chunk_start = self._read(position, read_size), position
                    chunk_end = position + len(chunk)
                at = position - chunk_start
                base_offset, length, epoch, magic, crc, attributes, delta, timestamp_ms, producer_id = unpack(chunk, at)
                size = length + LENGTH_PREFIX_SIZE
                last_offset = base_offset + delta
                if magic != MAGIC_V2 or size < HEADER_SIZE or position + size > size_bytes:
                    raise CorruptionError(f"there is no whole batch at {position}")
                if base_offset < expected or delta < 0 or last_offset >= limit:
                    raise CorruptionError(f"offsets {base_offset}..{last_offset} do not follow {expected}")
                if last_offset >= recovery_point:
                    if position + size > chunk_end:
                        read_size = max(_BATCHES_SIZE, size)
                        chunk, chunk_start, at = self._read(position, read_size), position, 0
                        chunk_end = position + len(chunk)
                    if crc32c(chunk[at + _CRC_START : at + size]) != crc:
                        raise CorruptionError(f"the checksum of the batch at {position} does not match")
                if epoch > latest_epoch:
                    self._epochs.assign(epoch, base_offset)
                    latest_epoch = epoch
                if producer_id != NO_PRODUCER_ID:
                    if attributes & _CONTROL:
                        self._note_marker(position, chunk[at : at + size])
                    else:
                        self._producers.update(read_header(chunk, at))
                yield position, size, last_offset, timestamp_ms
                position += size
                expected = last_offset + 1
        finally:
            self.valid_size, self.end_offset = position, expected

    def _note_marker(self, position: int, batch: memoryview) -> None:
        """Note a control batch.

        `batch` may be cut short, since below the recovery point only headers are read.
        """
        header = read_header(batch)
        if len(batch) < header.size_bytes:
            batch = self._read(position, header.size_bytes)
        aborted = self._producers.end_transaction(header, read_end_marker(batch))
        if aborted is not None:
            self._segment.aborted.append(aborted)

    def _read(self, position: int, size: int) -> memoryview:
        chunk = self._segment.file.read_at(position, min(size, self._segment.size_bytes - position))
        if len(chunk) < HEADER_SIZE:
            raise CorruptionError(f"the file ends inside the batch header at {position}")
        return memoryview(chunk)


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """Return what a control batch says of its producer's transaction; raises CorruptionError if it cannot be read."""
    try:
        return read_marker(batch)
    except InvalidBatchError as error:
        raise CorruptionError(f"a control batch cannot be read: {error}") from error
