"""What the log knows of each idempotent producer: its epoch, its last five batches, and its transaction.

Pure: batch headers go in, verdicts come out; the log writes the snapshot files. A batch that repeats one of the last
five of its producer is a duplicate and answered with the old offset; a batch that does not continue the sequence is
refused. A producer that is not known may begin with any sequence number: its history may have been deleted (KIP-360).
A transactional batch is a duplicate only of a batch of the transaction that is open. One that repeats a sequence number
of an ended transaction is a `LateDuplicate` and never acknowledged (docs/transactions.md).

A transaction begins with its producer's first transactional batch and ends with a marker from its coordinator. So that
a late batch cannot begin one that nobody will end, the batch that begins it needs a `Verification`: its guard was
registered before the coordinator was asked, and a marker that comes in between makes it void (KIP-890).

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
# The transaction version (KIP-890) from which on the epoch grows with every transaction.
_EPOCH_PER_TRANSACTION = 2

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_SEQUENCE_MASK = 0x7FFFFFFF
# Longer than any request waits for its verification.
_GUARD_LIFE_MS = 600_000


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


class LateDuplicate(NamedTuple):
    """A transactional batch with a sequence number that a transaction used which has ended here.

    Its records are not in the log as part of the open transaction, and never will be. It is either a copy that the
    network delayed, whose sender has gone on, or other records under a used number: librdkafka reuses the numbers of
    batches that it gave up with their transaction. An acknowledgement would tear the transaction that is open now: it
    would commit without these records. Appending would bring records of an ended transaction into the next one.
    """

    first_sequence: int


class Verification(NamedTuple):
    """What the coordinator must confirm; then the leave for a batch to begin its producer's transaction here."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # None where verification is switched off.
    guard: object | None


class _Guard:
    """Stands for the verifications of one producer that are under way; void once it is no longer registered."""

    __slots__ = ("epoch", "idle_since_ms", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, sequence: int) -> None:
        self.epoch = epoch
        # No batch behind this one may be the first: the one before it may have failed its verification.
        self.lowest_sequence = sequence
        # When it was first seen to be no longer asked for.
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
        # Where the transaction that is under way began, -1 if there is none.
        self.current_transaction_offset = NO_OFFSET

    @property
    def is_in_transaction(self) -> bool:
        return self.current_transaction_offset != NO_OFFSET

    def has_in_transaction(self, batch: ProducerBatch) -> bool:
        """Whether a remembered batch is part of the transaction that is under way."""
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

    # Verdicts

    def check(self, header: BatchHeader) -> Duplicate | LateDuplicate | ErrorCode | None:
        """May a client's batch be appended? None: yes. Call before `Log.append`.

        A transactional batch must also have `check_transaction`'s consent.
        """
        state = self._states.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or state is None:
            return None
        if header.producer_epoch == state.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in state.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    if header.is_transactional and not state.has_in_transaction(batch):
                        return LateDuplicate(first)
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
        return _refusal(state, header)

    def verify(self, header: BatchHeader) -> Verification | None:
        """Register a guard if a transactional batch would begin a transaction; None if it need not be verified."""
        if self._is_in_transaction(header):
            return None
        known = self.check(header)
        if isinstance(known, (Duplicate, LateDuplicate)):
            # A late duplicate must not take a guard: because of its low sequence number `check_transaction` would
            # refuse the batch with which the producer really begins its next transaction.
            return None
        guard = self._guards.get(header.producer_id)
        if guard is None:
            guard = self._guards[header.producer_id] = _Guard(header.producer_epoch, header.base_sequence)
        guard.note(header.producer_epoch, header.base_sequence)
        return Verification(header.producer_id, header.producer_epoch, guard)

    def check_transaction(self, header: BatchHeader, verification: Verification | None) -> ErrorCode | None:
        """Whether a transactional batch continues its producer's transaction, or may begin one. None: yes."""
        if header.producer_id == NO_PRODUCER_ID:
            return ErrorCode.INVALID_TXN_STATE
        if self._is_in_transaction(header):
            return None
        if verification is None or verification.producer_id != header.producer_id:
            return ErrorCode.INVALID_TXN_STATE
        guard = self._guards.get(header.producer_id)
        if verification.guard is not None and verification.guard is not guard:
            return ErrorCode.INVALID_TXN_STATE
        if guard is not None and header.base_sequence > guard.lowest_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def guard(self, producer_id: ProducerId) -> object:
        """Void once the producer's transaction has ended: for a coordinator's batches, which have no sequence."""
        guard = self._guards.setdefault(producer_id, _Guard(NO_PRODUCER_EPOCH, NO_SEQUENCE))
        guard.idle_since_ms = None
        return guard

    def check_coordinated(self, header: BatchHeader, guard: object | None = None) -> ErrorCode | None:
        """Whether its producer may still write a coordinator's batch: not if it was fenced. None: yes.

        With a `guard`, the batch must not begin a transaction if another ended since that was taken.
        """
        state = self._states.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if guard is None or self._is_in_transaction(header) or self._guards.get(header.producer_id) is guard:
            return None
        return ErrorCode.INVALID_TXN_STATE

    def check_marker(self, marker: Marker) -> ErrorCode | None:
        """Whether a coordinator's marker may be written. None: yes, also if there is no transaction to end."""
        state = self._states.get(marker.producer_id)
        if state is None:
            return None
        # A marker has an epoch of its own since version 2: one of the data's belongs to the transaction before it.
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
        """Note a data batch that was appended, at `base_offset` if its header does not say so yet."""
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
        """Note a control batch that was appended; the answer is what must be entered into the aborted index.

        `marker` is None where compaction has emptied the batch: then nothing is left of its transaction either.
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
        last_stable_offset = self.transactions.first_open(otherwise=offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, last_stable_offset)

    def _adopt(self, header: BatchHeader) -> ProducerState:
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, header.producer_epoch)
        state.adopt_epoch(header.producer_epoch)
        state.last_timestamp_ms = header.max_timestamp_ms
        return state

    def expire(self, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Forget producers that were silent for so long and have no transaction under way; tells how many."""
        silent = [
            state.producer_id
            for state in self._states.values()
            if not state.is_in_transaction and now_ms - state.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._states[producer_id]
        self._expire_guards(now_ms)
        return len(silent)

    def _expire_guards(self, now_ms: TimestampMs) -> None:
        """Forget those whose requests were answered long ago."""
        for producer_id, guard in list(self._guards.items()):
            if guard.idle_since_ms is None:
                guard.idle_since_ms = now_ms
            elif now_ms - guard.idle_since_ms >= _GUARD_LIFE_MS:
                del self._guards[producer_id]

    # Snapshots

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


def _refusal(state: ProducerState, header: BatchHeader) -> LateDuplicate | ErrorCode | None:
    if header.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_new_epoch = header.producer_epoch > state.epoch
    if header.base_sequence != (0 if is_new_epoch else (state.last_sequence + 1) & _SEQUENCE_MASK):
        # Used numbers are recognized without the batch, too: a snapshot holds the last one only, and a producer that
        # reuses numbers need not cut its batches as before.
        if header.is_transactional and not is_new_epoch and not state.is_in_transaction and _is_used(state, header):
            return LateDuplicate(header.base_sequence)
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if state.is_in_transaction and not header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE
    return None


def _is_used(state: ProducerState, header: BatchHeader) -> bool:
    """Whether a sequence number lies before the next one; numbers wrap, so that half of them count as before."""
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
