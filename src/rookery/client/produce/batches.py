"""Batches on their way: records of one partition that travel together, from the first `append` to the answer.

A batch keeps its records as columns, packs them once when it is first sent, and seals the packed bytes with a header
for each attempt, since only the header's numbers may change. `SealedBatch` is one that came packed, from columns.

Who owns what: `producer` appends while a batch is open; `accumulator` owns its place, its numbers and its memory;
`sender` packs and seals it. `tokens` are opaque here: the shell's futures, one for each record.

Memory is granted in steps (`accumulator`): `reserved_bytes` is what the buffer counts for this batch, and `room_bytes`
is what is left of that for more records. `room_bytes` below zero says that the batch is closed, so `append` needs no
other test.

Pure.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import add
from typing import Generic, Protocol, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, Offset, TimestampMs, TopicPartition
from rookery.client.packed_batches import SealedBatch, Slab
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

# The varints around a record's key and value, at their usual size; batches need only be about as large as asked.
RECORD_OVERHEAD_BYTES = 14
_HEADER_OVERHEAD_BYTES = 4
_CLOSED = -1


class BatchGroup(Protocol):
    """Whom a sealed batch tells what became of it."""

    def expect(self) -> None: ...
    def delivered(self, metadata: BatchMetadata, /) -> None: ...
    def failed(self, error: ApiError, /) -> None: ...


class Columns(Protocol):
    """What `records.batch_reader` reads: the columns of a sealed batch that must be split."""

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
    """Records for one partition, with their senders' tokens.

    `tokens` has one entry for each record, or is empty for a sealed batch, whose `group` is told instead. Numbers are
    `NO_SEQUENCE` until the batch is first sent. `created_s` is when its first record came: linger and delivery time-out
    count from there. `ordinal` counts batches in the order in which they were opened; halves share it.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "callbacks",
        "created_s",
        "fate_is_unknown",
        "group",
        "headers",
        "identity",
        "is_on_wire",
        "is_settled",
        "key_sizes",
        "keys",
        "last_error",
        "ordinal",
        "partition",
        "payload",
        "record_size_max",
        "reserved_bytes",
        "retry_at_s",
        "room_bytes",
        "sealed",
        "size_bytes",
        "slab",
        "timestamps",
        "tokens",
        "value_sizes",
        "values",
        "written_behind",
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
        self.room_bytes = reserved_bytes
        self.size_bytes = 0
        self.record_size_max = 0
        self.identity: ProducerIdentity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at_s = 0.0
        self.is_on_wire = False
        self.is_settled = False
        self.last_error: ApiError | None = None
        # An attempt may have been written: its answer was lost.
        self.fate_is_unknown = False
        # How many batches are written already whose numbers follow, up to the next one that is not settled.
        self.written_behind = 0
        self.sealed: SealedBatch | None = None
        self.slab: Slab | None = None
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
        """Take a record in if there is room for it. The hot path: once for each record."""
        room_bytes = self.room_bytes - size_bytes
        if room_bytes < 0:
            return False
        self.room_bytes = room_bytes
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
        """For the record that was appended last."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((len(self.values) - 1, callback))

    @property
    def is_open(self) -> bool:
        return self.room_bytes >= 0

    @property
    def used_bytes(self) -> int:
        return self.reserved_bytes - self.room_bytes if self.room_bytes >= 0 else self.size_bytes

    @property
    def record_count(self) -> int:
        return len(self.values) if self.sealed is None else self.sealed.record_count

    @property
    def is_numbered(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def close(self) -> int:
        """No more records; returns how much of the reservation was not needed."""
        unused_bytes = max(0, self.room_bytes)
        if self.room_bytes >= 0:
            self.size_bytes = self.reserved_bytes - self.room_bytes
            self.reserved_bytes = self.size_bytes
            self.room_bytes = _CLOSED
        return unused_bytes

    def seal_with(self, sealed: SealedBatch, group: BatchGroup) -> None:
        """Be a batch that came packed."""
        self.sealed, self.group, self.payload = sealed._replace(payload=b"", slab=None), group, sealed.payload
        if sealed.slab is not None:
            self.slab = sealed.slab
            self.slab.enter(self, len(sealed.payload))
        self.record_size_max = sealed.record_size_max
        self.room_bytes = 0
        self.close()

    def move_out(self) -> None:
        """Have a payload of its own: it stays for longer than those that it was packed with."""
        if self.slab is not None:
            assert self.payload is not None, "sealed"
            self.payload = bytes(self.payload)
            self.leave_slab()

    def leave_slab(self) -> None:
        if self.slab is not None:
            slab, self.slab = self.slab, None
            slab.leave(self)

    def unseal(self, columns: Columns) -> None:
        """Back to columns, to be split."""
        self.leave_slab()
        self.timestamps = list(columns.timestamps_ms)
        self.keys, self.values, self.headers = columns.keys, columns.values, columns.headers
        self.sealed = None
        self.payload = None

    def number(self, identity: ProducerIdentity, base_sequence: int) -> None:
        self.identity, self.base_sequence = identity, base_sequence

    def pack(self, codec: Codec, level: int | None) -> int:
        """Make the payload, if it is not there yet; its size before compression."""
        if self.payload is None:
            self.key_sizes, self.value_sizes = _sizes(self.keys), _sizes(self.values)
            self.record_size_max = RECORD_OVERHEAD_BYTES + max(map(add, self.key_sizes, self.value_sizes))
            packed = pack_records(self.timestamps, self.keys, self.values, self.headers)
            self.payload = compress(codec, packed, level) if codec else packed
            return len(packed)
        return self.sealed.uncompressed_size if self.sealed is not None else len(self.payload)

    def parts(self, codec: Codec, *, transactional: bool) -> tuple[Buffer, Buffer]:
        """The batch as bytes: its header under today's numbers, and the packed records, which are not copied."""
        assert self.payload is not None, "packed before it is sent"
        count, sealed = self.record_count, self.sealed
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=make_attributes(codec, transactional=transactional),
            last_offset_delta=count - 1,
            base_timestamp_ms=self.timestamps[0] if sealed is None else sealed.base_timestamp_ms,
            max_timestamp_ms=max(self.timestamps) if sealed is None else sealed.max_timestamp_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=count,
        )
        return seal_header(header, self.payload), self.payload

    @property
    def wire_bytes(self) -> int:
        """What the batch takes in a request: exact once it is packed, else about."""
        return HEADER_SIZE + (self.used_bytes if self.payload is None else len(self.payload))

    def split(self) -> "list[Batch[Token]]":
        """Two batches in its place, with its age, its attempts and, if it has numbers, their share of those."""
        middle = self.record_count // 2
        parts = [self._slice(slice(None, middle)), self._slice(slice(middle, None))]
        # What the sizes were counted in does not divide evenly; the halves together keep the reservation.
        parts[0].size_bytes = parts[0].reserved_bytes = self.reserved_bytes // 2
        parts[1].size_bytes = parts[1].reserved_bytes = self.reserved_bytes - parts[0].reserved_bytes
        if self.is_numbered:
            parts[0].number(self.identity, self.base_sequence)
            parts[1].number(self.identity, sequence_after(self.base_sequence, middle))
            parts[1].written_behind = self.written_behind
        if self.callbacks is not None:
            parts[0].callbacks = [(index, callback) for index, callback in self.callbacks if index < middle]
            parts[1].callbacks = [(index - middle, callback) for index, callback in self.callbacks if index >= middle]
        return parts

    def _slice(self, part: slice) -> "Batch[Token]":
        batch: Batch[Token] = Batch(self.partition, self.ordinal, self.created_s, 0)
        batch.timestamps, batch.keys, batch.values = self.timestamps[part], self.keys[part], self.values[part]
        batch.headers = None if self.headers is None else self.headers[part]
        batch.tokens, batch.group = self.tokens[part], self.group
        batch.room_bytes = _CLOSED
        batch.attempts, batch.fate_is_unknown, batch.last_error = self.attempts, self.fate_is_unknown, self.last_error
        return batch

    def metadata_rows(self, base_offset: Offset, append_time_ms: TimestampMs) -> list[RecordMetadata]:
        """Where each record landed; the broker's time if it has one for the batch."""
        count = self.record_count
        timestamps = self.timestamps if append_time_ms < 0 else [append_time_ms] * count
        offsets = range(base_offset, base_offset + count) if base_offset >= 0 else [NO_OFFSET] * count
        topics, partitions = [self.partition.topic] * count, [self.partition.partition] * count
        rows = zip(topics, partitions, offsets, timestamps, self.key_sizes, self.value_sizes, strict=True)
        return list(map(_MAKE_METADATA, rows))


# What `RecordMetadata(*row)` does, without a call in Python for each record.
_MAKE_METADATA: Callable[[tuple[object, ...]], RecordMetadata] = partial(tuple.__new__, RecordMetadata)


def _sizes(column: list[bytes | None]) -> list[int]:
    if column[0] is None and column.count(None) == len(column):
        return [NO_SIZE] * len(column)
    try:
        return list(map(len, column))  # type: ignore[arg-type]  # a None among them is what the handler is for
    except TypeError:
        return [NO_SIZE if data is None else len(data) for data in column]
