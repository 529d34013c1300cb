"""The state of each idempotent producer in a log: its epoch, its last five batches, and its transaction.

Pure: the input is batch headers, the output is the results of checks; the log writes the snapshot files. A batch that
repeats one of its producer's last five is a duplicate and acknowledged with the old offset; a batch that does not
continue the sequence is rejected. An unknown producer may begin with any sequence number: its history may have been
deleted (KIP-360). A transactional batch can only be a duplicate of a batch of the open transaction. A batch that
repeats a sequence number of an ended transaction is a `LateDuplicate` and never acknowledged (docs/transactions.md).

A transaction begins with its producer's first transactional batch and ends with a marker from its coordinator. A late
batch could begin a transaction that no marker will ever end. So the batch that begins one needs a `Verification`: its
guard is registered before the coordinator is asked, and a marker that arrives in between invalidates it (KIP-890).

A snapshot (`<offset>.snapshot`) is the state just before that offset, with the last batch of each producer: version,
CRC-32C of everything after it, and an array of entries (Kafka's `ProducerSnapshot`, version 1). A snapshot that fails
its checks is discarded, and an older one, or the log itself, is read instead.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from rookery.base.errors import CorruptionError, ErrorCode
from rookery.base.types import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from rookery.records.batch import NO_SEQUENCE, BatchHeader
from rookery.records.control import EndMarker, Marker
from rookery.storage.transactions import AbortedTransaction, OpenTransactions

BATCHES_KEPT = 5
NO_COORDINATOR_EPOCH = -1
# The transaction version (KIP-890) from which on the epoch is incremented with every transaction.
_EPOCH_PER_TRANSACTION = 2

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_SEQUENCE_MASK = 0x7FFFFFFF
# Longer than any request waits for its verification.
_GUARD_LIFE_MS = 600_000


class ProducerBatch(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: TimestampMs

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class Duplicate(NamedTuple):
    """The batch is already in the log, at these offsets."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs


class LateDuplicate(NamedTuple):
    """A transactional batch with a sequence number that an ended transaction used on this partition.

    Its records are not in the log as part of the open transaction, and never will be. It is either a copy that the
    network delayed, whose sender has moved on, or other records under a used number: librdkafka reuses the numbers of
    batches that it dropped with their transaction. An acknowledgement would break the transaction that is open now: it
    would commit without these records. An append would put records of an ended transaction into the next one.
    """

    first_sequence: int


class Verification(NamedTuple):
    """A claim that, once the coordinator has confirmed it, allows a batch to begin its producer's transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # None if verification is disabled.
    guard: object | None


class _Guard:
    """The verifications of one producer that are in progress; invalid once it is no longer registered."""

    __slots__ = ("epoch", "idle_since_ms", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, sequence: int) -> None:
        self.epoch = epoch
        # The transaction must not begin with a higher sequence number: the batch with this one may have failed its
        # verification and would be missing from the transaction.
        self.lowest_sequence = sequence
        # The time of the first expiry run since the guard was last used.
        self.idle_since_ms: TimestampMs | None = None

    def note(self, epoch: ProducerEpoch, sequence: int) -> None:
        self.idle_since_ms = None
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence = epoch, sequence


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
        # The first offset of the open transaction, -1 if there is none.
        self.current_transaction_offset = NO_OFFSET

    @property
    def is_in_transaction(self) -> bool:
        return self.current_transaction_offset != NO_OFFSET

    def has_in_transaction(self, batch: ProducerBatch) -> bool:
        """Return whether one of the last batches is part of the open transaction."""
        return self.is_in_transaction and batch.first_offset >= self.current_transaction_offset

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
    __slots__ = ("_guards", "_states", "transactions")

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}
        self.transactions = OpenTransactions(
            (state.producer_id, state.current_transaction_offset) for state in self if state.is_in_transaction
        )
        self._guards: dict[ProducerId, _Guard] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        return self._states.get(producer_id)

    # Checks

    def check(self, header: BatchHeader) -> Duplicate | LateDuplicate | ErrorCode | None:
        """Return None if a client's batch may be appended, else the reason why not. Call before `Log.append`.

        A transactional batch must also pass `check_transaction`.
        """
        state = self._states.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or state is None:
            return None
        if header.producer_epoch == state.epoch:
            first, last = header.base_sequence, header.last_sequence
            # A retry whose first attempt was appended: to append it again would store its records twice.
            for batch in state.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    if header.is_transactional and not state.has_in_transaction(batch):
                        return LateDuplicate(first)
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
        return _check_sequence(state, header)

    def verify(self, header: BatchHeader) -> Verification | None:
        """Register a guard if a transactional batch would begin a transaction; None if no verification is needed."""
        if self._is_in_transaction(header):
            return None
        known = self.check(header)
        if isinstance(known, (Duplicate, LateDuplicate)):
            # A late duplicate must not register a guard: because of its low sequence number `check_transaction` would
            # reject the batch with which the producer really begins its next transaction.
            return None
        guard = self._guards.get(header.producer_id)
        if guard is None:
            guard = self._guards[header.producer_id] = _Guard(header.producer_epoch, header.base_sequence)
        guard.note(header.producer_epoch, header.base_sequence)
        return Verification(header.producer_id, header.producer_epoch, guard)

    def check_transaction(self, header: BatchHeader, verification: Verification | None) -> ErrorCode | None:
        """Return None if a transactional batch continues its producer's transaction or may begin one, else an error."""
        if header.producer_id == NO_PRODUCER_ID:
            return ErrorCode.INVALID_TXN_STATE
        if self._is_in_transaction(header):
            return None
        if verification is None or verification.producer_id != header.producer_id:
            return ErrorCode.INVALID_TXN_STATE
        guard = self._guards.get(header.producer_id)
        # The guard was registered before the coordinator was asked. If a marker has removed it since, the coordinator's
        # reply is about a transaction that has ended: the batch would begin one that no marker ends.
        if verification.guard is not None and verification.guard is not guard:
            return ErrorCode.INVALID_TXN_STATE
        if guard is not None and header.base_sequence > guard.lowest_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def guard(self, producer_id: ProducerId) -> object:
        """Return a guard for a coordinator's batches, which have no sequence; an end marker invalidates it."""
        guard = self._guards.setdefault(producer_id, _Guard(NO_PRODUCER_EPOCH, NO_SEQUENCE))
        guard.idle_since_ms = None
        return guard

    def check_coordinated(self, header: BatchHeader, guard: object | None = None) -> ErrorCode | None:
        """Return None if the producer may still write a coordinator's batch, an error if it was fenced.

        With a `guard`, the batch must not begin a transaction if another one ended since the guard was taken.
        """
        state = self._states.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if guard is None or self._is_in_transaction(header) or self._guards.get(header.producer_id) is guard:
            return None
        return ErrorCode.INVALID_TXN_STATE

    def check_marker(self, marker: Marker) -> ErrorCode | None:
        """Return an error if a coordinator's marker must not be written; None also if no transaction is open."""
        state = self._states.get(marker.producer_id)
        if state is None:
            return None
        # Since version 2 the coordinator increments the epoch for the marker. A marker with the epoch of the open
        # transaction's data belongs to the transaction before, and would end the open one in its place.
        is_stale = marker.transaction_version >= _EPOCH_PER_TRANSACTION and state.is_in_transaction
        if marker.producer_epoch < state.epoch or (is_stale and marker.producer_epoch == state.epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < state.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def _is_in_transaction(self, header: BatchHeader) -> bool:
        state = self._states.get(header.producer_id)
        return state is not None and state.is_in_transaction and state.epoch == header.producer_epoch

    # Changes

    def update(self, header: BatchHeader, base_offset: Offset | None = None) -> None:
        """Record a data batch that was appended, at `base_offset` if its header does not have it yet."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        if base_offset is None:
            base_offset = header.base_offset
        state = self._adopt(header)
        state.batches.append(_batch_of(header, base_offset))
        if header.is_transactional:
            self._guards.pop(header.producer_id, None)
            if not state.is_in_transaction:
                state.current_transaction_offset = base_offset
                self.transactions.begin(header.producer_id, base_offset)

    def end_transaction(
        self, header: BatchHeader, marker: EndMarker | None, base_offset: Offset | None = None
    ) -> AbortedTransaction | None:
        """Record a control batch that was appended; returns the entry for the aborted index, if any.

        `marker` is None if compaction has emptied the batch: then nothing is left of its transaction either.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        state = self._adopt(header)
        if marker is None:
            return None
        self._guards.pop(header.producer_id, None)
        state.coordinator_epoch = marker.coordinator_epoch
        first_offset, state.current_transaction_offset = state.current_transaction_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        offset = (header.base_offset if base_offset is None else base_offset) + header.last_offset_delta
        self.transactions.end(header.producer_id, offset)
        if marker.committed:
            return None
        last_stable_offset = self.transactions.first_open(default=offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, last_stable_offset)

    def _adopt(self, header: BatchHeader) -> ProducerState:
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, header.producer_epoch)
        state.adopt_epoch(header.producer_epoch)
        state.last_timestamp_ms = header.max_timestamp_ms
        return state

    def expire(self, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Drop producers that were idle for that long and have no open transaction; returns how many."""
        # A producer with an open transaction stays: without its state the marker would not end the transaction, and the
        # last stable offset would never advance again.
        idle = [
            state.producer_id
            for state in self._states.values()
            if not state.is_in_transaction and now_ms - state.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self._states[producer_id]
        self._expire_guards(now_ms)
        return len(idle)

    def _expire_guards(self, now_ms: TimestampMs) -> None:
        """Drop the guards whose requests were answered long ago."""
        for producer_id, guard in list(self._guards.items()):
            if guard.idle_since_ms is None:
                guard.idle_since_ms = now_ms
            elif now_ms - guard.idle_since_ms >= _GUARD_LIFE_MS:
                del self._guards[producer_id]

    # Snapshots

    def encode(self) -> bytes:
        """Return the bytes of a snapshot file."""
        body = b"".join(map(_encode_state, self._states.values()))
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._states))
        crc = crc32c(head[_CRC_START:] + body)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc, len(self._states)) + body

    @classmethod
    def decode(cls, data: Buffer) -> "ProducerStates":
        """Decode a snapshot; raises CorruptionError for anything that is not a whole snapshot with the right CRC."""
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


def _check_sequence(state: ProducerState, header: BatchHeader) -> LateDuplicate | ErrorCode | None:
    if header.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_new_epoch = header.producer_epoch > state.epoch
    if header.base_sequence != (0 if is_new_epoch else (state.last_sequence + 1) & _SEQUENCE_MASK):
        # A used number is recognized even if its batch is not among the last five: a snapshot holds only the last one,
        # and a producer that reuses numbers may divide its records into batches differently.
        if header.is_transactional and not is_new_epoch and not state.is_in_transaction and _is_used(state, header):
            return LateDuplicate(header.base_sequence)
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if state.is_in_transaction and not header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE
    return None


def _is_used(state: ProducerState, header: BatchHeader) -> bool:
    """Return whether a sequence number was used; numbers wrap, so the half before the last one counts as used."""
    distance = (state.last_sequence - header.base_sequence) & _SEQUENCE_MASK
    return bool(state.batches) and distance <= _SEQUENCE_MASK // 2


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
