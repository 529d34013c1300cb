"""What the log knows of each idempotent producer: its epoch and its last five batches.

Pure: batch headers go in, verdicts come out; the log writes the snapshot files. A batch that repeats one of the last
five of its producer is a duplicate and answered with the old offset; a batch that does not continue the sequence is
refused. A producer that is not known may begin with any sequence number: its history may have been deleted (KIP-360).

A snapshot (`<offset>.snapshot`) is the state just before that offset, with the last batch of each producer: version,
CRC-32C of all that follows, and an array of entries (Kafka's `ProducerSnapshot`, version 1). A snapshot that fails its
checks is thrown away and an older one, or the log itself, is read instead.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from rookery.base.errors import CorruptionError, ErrorCode
from rookery.base.types import (
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from rookery.records.batch import NO_SEQUENCE, BatchHeader

BATCHES_KEPT = 5
NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_SEQUENCE_MASK = 0x7FFFFFFF


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: TimestampMs

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class Duplicate(NamedTuple):
    """The batch is in the log already: the answer is where."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs


class ProducerState:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp_ms = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        # Where the transaction that is under way began, -1 if there is none.
        self.current_transaction_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def adopt_epoch(self, epoch: ProducerEpoch) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    __slots__ = ("_states",)

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        return self._states.get(producer_id)

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """May a client's batch be appended? None: yes. Call before `Log.append`."""
        state = self._states.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or state is None:
            return None
        if header.producer_epoch == state.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in state.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
        return _refusal(state, header)

    def update(self, header: BatchHeader, base_offset: Offset | None = None) -> None:
        """Note a batch that was appended, at `base_offset` if its header does not say so yet."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        if base_offset is None:
            base_offset = header.base_offset
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, header.producer_epoch)
        state.adopt_epoch(header.producer_epoch)
        state.last_timestamp_ms = header.max_timestamp_ms
        if header.is_control:
            state.current_transaction_offset = NO_OFFSET
            return
        state.batches.append(_batch_of(header, base_offset))
        if header.is_transactional and state.current_transaction_offset == NO_OFFSET:
            state.current_transaction_offset = base_offset

    def expire(self, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Forget producers that were silent for so long and have no transaction under way; tells how many."""
        silent = [
            state.producer_id
            for state in self._states.values()
            if state.current_transaction_offset == NO_OFFSET and now_ms - state.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._states[producer_id]
        return len(silent)

    def encode(self) -> bytes:
        """A snapshot file's bytes."""
        body = b"".join(map(_encode_state, self._states.values()))
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._states))
        crc = crc32c(head[_CRC_START:] + body)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc, len(self._states)) + body

    @classmethod
    def decode(cls, data: Buffer) -> "ProducerStates":
        """Raises CorruptionError for anything that is not a whole snapshot with the right CRC."""
        if len(data) < _SNAPSHOT_HEAD.size:
            raise CorruptionError(f"{len(data)} bytes are too few for a producer snapshot")
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise CorruptionError(f"unknown version {version} of a producer snapshot")
        if crc != crc32c(memoryview(data)[_CRC_START:]):
            raise CorruptionError("the producer snapshot's checksum does not match")
        if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            raise CorruptionError(f"{len(data)} bytes do not fit {count} producers")
        return cls(map(_decode_state, _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :])))


def _refusal(state: ProducerState, header: BatchHeader) -> ErrorCode | None:
    if header.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if header.producer_epoch > state.epoch:
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if header.base_sequence != 0 else None
    expected = (state.last_sequence + 1) & _SEQUENCE_MASK
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if header.base_sequence != expected else None


def _batch_of(header: BatchHeader, base_offset: Offset) -> ProducerBatch:
    return ProducerBatch(
        header.base_sequence,
        header.last_sequence,
        base_offset + header.last_offset_delta,
        header.last_offset_delta,
        header.max_timestamp_ms,
    )


def _encode_state(state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else None
    return _SNAPSHOT_ENTRY.pack(
        state.producer_id,
        state.epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.offset_delta if last else 0,
        state.last_timestamp_ms,
        state.coordinator_epoch,
        state.current_transaction_offset,
    )


def _decode_state(fields: tuple[int, ...]) -> ProducerState:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, transaction = fields
    state = ProducerState(producer_id, epoch)
    state.last_timestamp_ms = timestamp_ms
    state.coordinator_epoch = coordinator_epoch
    state.current_transaction_offset = max(transaction, NO_OFFSET)
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & _SEQUENCE_MASK
        state.batches.append(ProducerBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp_ms))
    return state
