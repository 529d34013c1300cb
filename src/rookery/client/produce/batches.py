"""Batches: records of one partition that are sent together, from the first `append` to the response.

A batch stores its records as columns, packs them once when it is first sent, and seals the packed bytes with a header
for each attempt, because only the numbers in the header may change. The payload of a `PackedBatch` exists from the
start.

Ownership: `producer` appends while a batch is open; `accumulator` owns its position, its numbers and its memory;
`sender` packs and seals it. `tokens` are opaque here: the futures of the records.

Memory is granted in steps (`accumulator`): `reserved_bytes` is the memory that the buffer counts for this batch, and
`free_bytes` the part of it that is left for more records. A negative `free_bytes` means that the batch is closed, so
that `append` needs no other check.

Pure.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import add
from typing import Generic, Protocol, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, Offset, TimestampMs, TopicPartition
from rookery.client.packed_batches import PackedBatch, SharedBuffer
from rookery.client.produce.records import NO_SIZE, BatchMetadata, DeliveryCallback, RecordMetadata
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity, sequence_after
from rookery.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    make_attributes,
    seal_header,
)
from rookery.records.batch_writer import pack_records
from rookery.records.compression import compress
from rookery.records.record import Headers

Token = TypeVar("Token")

# The usual size of the varints around a record's key and value. An estimate: `batch.size` need not be met exactly.
RECORD_OVERHEAD_BYTES = 14
_HEADER_OVERHEAD_BYTES = 4
_CLOSED = -1


class BatchGroup(Protocol):
    """Receives the results of packed batches."""

    def expect(self) -> None: ...
    def delivered(self, metadata: BatchMetadata, /) -> None: ...
    def failed(self, error: ApiError, /) -> None: ...


class Columns(Protocol):
    """The columns that `records.batch_reader` reads from a packed batch that must be split."""

    @property
    def timestamps_ms(self) -> Sequence[int]: ...
    @property
    def keys(self) -> list[bytes | None]: ...
    @property
    def values(self) -> list[bytes | None]: ...
    @property
    def headers(self) -> list[Headers] | None: ...


def headers_size(headers: Headers) -> int:
    return sum([len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in headers])


class Batch(Generic[Token]):
    """Records for one partition, with their tokens.

    `tokens` has one entry for each record; it is empty for a packed batch, whose results go to `group`. `base_sequence`
    is `NO_SEQUENCE` until the batch is first sent. `created_s` is the time of its first record: linger and the delivery
    time-out count from it. `ordinal` counts batches in the order in which they were opened; halves share it.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "callbacks",
        "created_s",
        "free_bytes",
        "group",
        "headers",
        "identity",
        "is_on_wire",
        "is_settled",
        "key_sizes",
        "keys",
        "last_error",
        "may_be_written",
        "ordinal",
        "packed",
        "partition",
        "payload",
        "record_size_max",
        "reserved_bytes",
        "retry_at_s",
        "shared_buffer",
        "size_bytes",
        "timestamps",
        "tokens",
        "value_sizes",
        "values",
        "written_after",
    )

    def __init__(self, partition: TopicPartition, ordinal: int, created_s: float, reserved_bytes: int) -> None:
        self.partition = partition
        self.ordinal = ordinal
        self.created_s = created_s
        self.timestamps: list[TimestampMs] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] | None = None
        self.tokens: list[Token] = []
        self.callbacks: list[tuple[int, DeliveryCallback]] | None = None
        self.group: BatchGroup | None = None
        self.reserved_bytes = reserved_bytes
        self.free_bytes = reserved_bytes
        self.size_bytes = 0
        self.record_size_max = 0
        self.identity: ProducerIdentity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at_s = 0.0
        self.is_on_wire = False
        self.is_settled = False
        self.last_error: ApiError | None = None
        # An attempt may have been written, because its response was lost.
        self.may_be_written = False
        # The number of written batches between this one and the next unsettled one.
        self.written_after = 0
        self.packed: PackedBatch | None = None
        self.shared_buffer: SharedBuffer | None = None
        self.key_sizes: list[int] = []
        self.value_sizes: list[int] = []
        self.payload: Buffer | None = None

    def append(
        self,
        timestamp_ms: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size_bytes: int,
        token: Token,
    ) -> bool:
        """Append a record and return True, or return False if the memory does not suffice. Called for each record."""
        free_bytes = self.free_bytes - size_bytes
        if free_bytes < 0:
            return False
        self.free_bytes = free_bytes
        self.timestamps.append(timestamp_ms)
        self.keys.append(key)
        self.values.append(value)
        if headers or self.headers is not None:
            self._append_headers(headers)
        self.tokens.append(token)
        return True

    def _append_headers(self, headers: Headers) -> None:
        if self.headers is None:
            self.headers = [()] * (len(self.values) - 1)
        self.headers.append(headers)

    def call_back(self, callback: DeliveryCallback) -> None:
        """Add a delivery callback for the record that was appended last."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((len(self.values) - 1, callback))

    @property
    def is_open(self) -> bool:
        return self.free_bytes >= 0

    @property
    def used_bytes(self) -> int:
        return self.reserved_bytes - self.free_bytes if self.free_bytes >= 0 else self.size_bytes

    @property
    def record_count(self) -> int:
        return len(self.values) if self.packed is None else self.packed.record_count

    @property
    def is_numbered(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def close(self) -> int:
        """Accept no more records; return the unused bytes of the reservation."""
        unused_bytes = max(0, self.free_bytes)
        if self.free_bytes >= 0:
            self.size_bytes = self.reserved_bytes - self.free_bytes
            self.reserved_bytes = self.size_bytes
            self.free_bytes = _CLOSED
        return unused_bytes

    def set_packed(self, packed: PackedBatch, group: BatchGroup) -> None:
        """Make this new batch a closed one with the payload of `packed`."""
        self.packed, self.group, self.payload = packed._replace(payload=b"", shared_buffer=None), group, packed.payload
        if packed.shared_buffer is not None:
            self.shared_buffer = packed.shared_buffer
            self.shared_buffer.add(self, len(packed.payload))
        self.record_size_max = packed.record_size_max
        self.free_bytes = 0
        self.close()

    def copy_payload(self) -> None:
        """Copy the payload out of its shared buffer, because this batch stays longer than the others in it."""
        if self.shared_buffer is not None:
            assert self.payload is not None, "packed"
            self.payload = bytes(self.payload)
            self.release_shared_buffer()

    def release_shared_buffer(self) -> None:
        if self.shared_buffer is not None:
            shared_buffer, self.shared_buffer = self.shared_buffer, None
            shared_buffer.remove(self)

    def unpack(self, columns: Columns) -> None:
        """Replace the packed payload by its columns, so that the batch can be split."""
        self.release_shared_buffer()
        self.timestamps = list(columns.timestamps_ms)
        self.keys, self.values, self.headers = columns.keys, columns.values, columns.headers
        self.packed = None
        self.payload = None

    def number(self, identity: ProducerIdentity, base_sequence: int) -> None:
        self.identity, self.base_sequence = identity, base_sequence

    def pack(self, codec: Codec, level: int | None) -> int:
        """Create the payload if there is none; return its size before compression."""
        if self.payload is None:
            self.key_sizes, self.value_sizes = _sizes(self.keys), _sizes(self.values)
            self.record_size_max = RECORD_OVERHEAD_BYTES + max(map(add, self.key_sizes, self.value_sizes))
            packed = pack_records(self.timestamps, self.keys, self.values, self.headers)
            self.payload = compress(codec, packed, level) if codec else packed
            return len(packed)
        return self.packed.uncompressed_size if self.packed is not None else len(self.payload)

    def parts(self, codec: Codec, *, transactional: bool) -> tuple[Buffer, Buffer]:
        """Return the batch as bytes: a header with its current numbers, and the payload, which is not copied."""
        assert self.payload is not None, "packed before it is sent"
        count, packed = self.record_count, self.packed
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=make_attributes(codec, transactional=transactional),
            last_offset_delta=count - 1,
            base_timestamp_ms=self.timestamps[0] if packed is None else packed.base_timestamp_ms,
            max_timestamp_ms=max(self.timestamps) if packed is None else packed.max_timestamp_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=count,
        )
        return seal_header(header, self.payload), self.payload

    @property
    def wire_bytes(self) -> int:
        """The size of the batch in a request: exact once it is packed, an estimate before."""
        return HEADER_SIZE + (self.used_bytes if self.payload is None else len(self.payload))

    def split(self) -> "list[Batch[Token]]":
        """Return two halves with the age and the attempts of this batch and, if it has numbers, their part of those."""
        middle = self.record_count // 2
        parts = [self._slice(slice(None, middle)), self._slice(slice(middle, None))]
        # The sizes are estimates and do not divide evenly; the halves together keep the reservation.
        parts[0].size_bytes = parts[0].reserved_bytes = self.reserved_bytes // 2
        parts[1].size_bytes = parts[1].reserved_bytes = self.reserved_bytes - parts[0].reserved_bytes
        if self.is_numbered:
            parts[0].number(self.identity, self.base_sequence)
            parts[1].number(self.identity, sequence_after(self.base_sequence, middle))
            parts[1].written_after = self.written_after
        if self.callbacks is not None:
            parts[0].callbacks = [(index, callback) for index, callback in self.callbacks if index < middle]
            parts[1].callbacks = [(index - middle, callback) for index, callback in self.callbacks if index >= middle]
        return parts

    def _slice(self, part: slice) -> "Batch[Token]":
        batch: Batch[Token] = Batch(self.partition, self.ordinal, self.created_s, 0)
        batch.timestamps, batch.keys, batch.values = self.timestamps[part], self.keys[part], self.values[part]
        batch.headers = None if self.headers is None else self.headers[part]
        batch.tokens, batch.group = self.tokens[part], self.group
        batch.free_bytes = _CLOSED
        batch.attempts, batch.may_be_written, batch.last_error = self.attempts, self.may_be_written, self.last_error
        return batch

    def metadata_rows(self, base_offset: Offset, append_time_ms: TimestampMs) -> list[RecordMetadata]:
        """Return the offset and timestamp of each record; the broker's timestamp if it set one."""
        count = self.record_count
        timestamps = self.timestamps if append_time_ms < 0 else [append_time_ms] * count
        offsets = range(base_offset, base_offset + count) if base_offset >= 0 else [NO_OFFSET] * count
        topics, partitions = [self.partition.topic] * count, [self.partition.partition] * count
        rows = zip(topics, partitions, offsets, timestamps, self.key_sizes, self.value_sizes, strict=True)
        return list(map(_MAKE_METADATA, rows))


# The same as `RecordMetadata(*row)`, without a Python call for each record.
_MAKE_METADATA: Callable[[tuple[object, ...]], RecordMetadata] = partial(tuple.__new__, RecordMetadata)


def _sizes(column: list[bytes | None]) -> list[int]:
    if column[0] is None and column.count(None) == len(column):
        return [NO_SIZE] * len(column)
    try:
        return list(map(len, column))  # type: ignore[arg-type]  # the handler is for a column with None
    except TypeError:
        return [NO_SIZE if data is None else len(data) for data in column]
