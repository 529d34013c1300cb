"""One hosted partition: its replication state together with its log, and what a leader does with the two.

Every outcome that a client may cause is a value with an `ErrorCode`; a failing disk becomes KAFKA_STORAGE_ERROR here.
`ReplicaManager` makes replicas, the handlers of Produce, Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch
call them. All of it runs on the event loop and none of it waits: an append is one write to the page cache, and a read
gives ranges of files, not bytes.

`flush.messages`: when the log says that it needs an fsync, the new records do not count for the high watermark until
`Flusher` reports that they are on disk. Consumers do not see them and acknowledgements wait for them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from rookery.base.errors import CorruptionError, ErrorCode, InvalidBatchError, StorageError
from rookery.base.files import FileSlice
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerId,
    TimestampMs,
)
from rookery.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, read_header, stamp_log_append_time
from rookery.records.control import Marker, build_marker
from rookery.records.policy import ProducePolicy
from rookery.records.produce import prepare, prepare_own
from rookery.replication.partition import Partition
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.producers import Duplicate, LateDuplicate, Verification

logger = structlog.get_logger(__name__)

ACKS_ALL = -1
ACKS_NONE = 0
CONSUMER_NODE_ID: NodeId = -1
DEBUGGING_NODE_ID: NodeId = -2

# What ListOffsets asks for by a timestamp below zero.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

HIGH_WATERMARK: Offset = -1


class Appended(NamedTuple):
    """The outcome of one append. `end_offset` is what the high watermark must reach for `acks=all`."""

    error_code: ErrorCode
    base_offset: Offset = NO_OFFSET
    end_offset: Offset = NO_OFFSET
    log_append_time_ms: TimestampMs = NO_TIMESTAMP
    log_start_offset: Offset = NO_OFFSET
    message: str | None = None
    # (index, message) of the records at fault.
    record_errors: Sequence[tuple[int, str]] = ()


class EpochEnd(NamedTuple):
    """Where a leader epoch ended; both -1 where that is not known."""

    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    end_offset: Offset = NO_OFFSET


class Fetched(NamedTuple):
    """The outcome of one partition's read."""

    error_code: ErrorCode
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    slices: Sequence[FileSlice] = ()
    size_bytes: int = 0
    diverging_epoch: EpochEnd | None = None
    # (producer id, first offset) by first offset; None unless the reader wants committed records only.
    aborted_transactions: Sequence[tuple[ProducerId, Offset]] | None = None


class OffsetFound(NamedTuple):
    """The outcome of a search for an offset; offset -1 and no error where there is none."""

    error_code: ErrorCode
    offset: Offset = NO_OFFSET
    timestamp_ms: TimestampMs = NO_TIMESTAMP
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class RecordsDeleted(NamedTuple):
    error_code: ErrorCode
    low_watermark: Offset = NO_OFFSET


# A name of its own for the hot path: Python 3.11 takes ten times as long to look up an enum's member.
_OK = ErrorCode.NONE
_STORAGE_APPENDED = Appended(ErrorCode.KAFKA_STORAGE_ERROR)
# Nothing was appended: the topic wants the batch to be inspected first, which may take too long to be done here.
NOT_INSPECTED = Appended(ErrorCode.UNKNOWN_SERVER_ERROR)
_STORAGE_FETCHED = Fetched(ErrorCode.KAFKA_STORAGE_ERROR)


class Replica:
    """A partition whose log this node has."""

    __slots__ = ("_changed", "_flush", "is_flushing", "log", "policy", "state")

    def __init__(
        self,
        state: Partition,
        log: Log,
        *,
        changed: Callable[["Replica"], None],
        flush: Callable[["Replica"], None],
    ) -> None:
        self.state = state
        self.log = log
        self.policy = ProducePolicy.of(log.config, has_record_check=log.config.schema_rules is not None)
        self.is_flushing = False
        self._changed = changed
        self._flush = flush

    def configure(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self.policy = ProducePolicy.of(config, has_record_check=config.schema_rules is not None)

    # Appending

    def append(
        self,
        data: bytearray | memoryview,
        *,
        acks: int,
        now_ms: TimestampMs,
        zstd_allowed: bool = True,
        is_inspected: bool = False,
        verification: Verification | None = None,
    ) -> Appended:
        """Take one produced batch into the log. `verification` is what `verification_of` asked for.

        `NOT_INSPECTED`: the caller has to inspect the batch and come again, with `is_inspected` and what came of it.
        """
        state, log = self.state, self.log
        if not state.is_leader:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and not self.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            prepared = prepare(data, self.policy, now_ms=now_ms, zstd_allowed=zstd_allowed, is_inspected=is_inspected)
            if prepared is None:
                return NOT_INSPECTED
            header, batch = prepared
            if header.producer_id >= 0 or header.is_transactional:
                known = log.producers.check(header)
                if header.is_transactional and (known is None or isinstance(known, ErrorCode)):
                    known = log.producers.check_transaction(header, verification) or known
                if known is not None:
                    return self._answer_known(known)
            base_offset = log.append(batch, header, leader_epoch=state.leader_epoch)
        except InvalidBatchError as error:
            return self.refuse(error)
        except (StorageError, CorruptionError) as error:
            self._failed(error)
            return _STORAGE_APPENDED
        self._appended()
        append_time_ms = now_ms if self.policy.log_append_time else NO_TIMESTAMP
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(_OK, base_offset, end_offset, append_time_ms, log.start_offset)

    def is_known(self, header: BatchHeader) -> bool:
        """Whether `append` answers and writes nothing: a duplicate, or a log whose producers cannot be read."""
        try:
            return isinstance(self.log.producers.check(header), (Duplicate, LateDuplicate))
        except (StorageError, CorruptionError):
            return True

    def verification_of(self, records: Buffer) -> Verification | None:
        """What the coordinator must confirm before a batch is appended.

        None if there is nothing to confirm: the batch is not transactional, a duplicate, part of a transaction that is
        open here, or so malformed that `append` will refuse it.
        """
        if len(records) < HEADER_SIZE:
            return None
        header = read_header(records)
        if header.magic != MAGIC_V2 or not header.is_transactional or header.producer_id < 0:
            return None
        try:
            return self.log.producers.verify(header)
        except (StorageError, CorruptionError):
            # The append meets the same trouble and tells of it.
            return None

    def guard(self, producer_id: ProducerId) -> object | None:
        """What `append_coordinated` wants if a producer's transaction is verified before; void when that ends."""
        try:
            return self.log.producers.guard(producer_id)
        except (StorageError, CorruptionError):
            # The append meets the same trouble and tells of it.
            return None

    def append_coordinated(
        self, data: bytearray | memoryview, *, now_ms: TimestampMs, guard: object | None = None
    ) -> Appended:
        """Take a coordinator's own batch, which may be part of a producer's transaction, as safely as `acks=all`."""
        return self._append_own(
            lambda: prepare_own(data, self.policy, now_ms=now_ms),
            lambda header: self.log.producers.check_coordinated(header, guard),
        )

    def append_marker(self, marker: Marker, *, now_ms: TimestampMs) -> Appended:
        """End a producer's transaction here; a marker is written even if no transaction is open."""
        appended = self._append_own(
            lambda: self._marker_batch(marker, now_ms), lambda _: self.log.producers.check_marker(marker)
        )
        if appended.error_code is _OK:
            # Lets go of the ended transactions that are committed by now, even if nobody ever reads.
            self.log.last_stable_offset(self.state.high_watermark)
        return appended

    def _marker_batch(self, marker: Marker, now_ms: TimestampMs) -> tuple[BatchHeader, bytearray]:
        batch = build_marker(marker, now_ms)
        if self.policy.log_append_time:
            stamp_log_append_time(batch, now_ms)
        return read_header(batch), batch

    def _append_own(
        self,
        make: Callable[[], tuple[BatchHeader, bytearray | memoryview]],
        check: Callable[[BatchHeader], ErrorCode | None],
    ) -> Appended:
        """Append what the broker itself made."""
        if not self.state.is_leader:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            header, batch = make()
            refusal = check(header)
            if refusal is not None:
                return Appended(refusal, log_start_offset=self.log.start_offset)
            base_offset = self.log.append(batch, header, leader_epoch=self.state.leader_epoch)
        except InvalidBatchError as error:
            return self.refuse(error)
        except (StorageError, CorruptionError) as error:
            self._failed(error)
            return _STORAGE_APPENDED
        self._appended()
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(_OK, base_offset, end_offset, log_start_offset=self.log.start_offset)

    @property
    def has_enough_replicas(self) -> bool:
        needed = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        return len(self.state.isr) >= needed

    def is_acknowledged(self, end_offset: Offset, acks: int) -> bool:
        """Whether records before `end_offset` are as safe as `acks` asks for."""
        reached = self.state.high_watermark if acks == ACKS_ALL else self.state.local_end_offset
        return reached >= end_offset

    def refuse(self, error: InvalidBatchError) -> Appended:
        start_offset = self.log.start_offset
        return Appended(
            error.code, log_start_offset=start_offset, message=str(error), record_errors=error.record_errors
        )

    def _answer_known(self, known: Duplicate | LateDuplicate | ErrorCode) -> Appended:
        if isinstance(known, LateDuplicate):
            # Without the log's start, as if unknown: older clients compare it with the last offset that they know. If
            # it is not before that, they take the refusal for retention's work and send the batch again for ever.
            reason = f"A transaction that has ended used sequence number {known.first_sequence}: abort this one."
            return Appended(ErrorCode.TRANSACTION_ABORTABLE, message=reason)
        if known is ErrorCode.INVALID_TXN_STATE:
            message = "The batch is not part of its producer's transaction."
            return Appended(known, log_start_offset=self.log.start_offset, message=message)
        if isinstance(known, ErrorCode):
            return Appended(known, log_start_offset=self.log.start_offset)
        return Appended(
            _OK,
            known.base_offset,
            known.last_offset + 1,
            known.timestamp_ms if self.policy.log_append_time else NO_TIMESTAMP,
            self.log.start_offset,
        )

    def _appended(self) -> None:
        state, log = self.state, self.log
        # Followers read up to the end of the log, so an append is news to them before it is committed.
        is_news = len(state.replicas) > 1
        if log.needs_flush:
            self._flush(self)
        elif not self.is_flushing:
            is_news |= state.local_end_moved(log.end_offset)
        if is_news:
            self._changed(self)

    def failed(self) -> None:
        """The disk failed: whoever waits must hear of it."""
        self._changed(self)

    def _failed(self, error: StorageError | CorruptionError) -> None:
        """A directory that fails has told so itself; a damaged log is told here."""
        if isinstance(error, CorruptionError):
            logger.error("the log is damaged", partition=str(self.state.topic_partition), error=str(error))
        self._changed(self)

    def flushed(self, end_offset: Offset) -> None:
        """Records before `end_offset` are on disk; those behind count too unless they want a flush of their own."""
        if self.log.needs_flush:
            self._flush(self)
        else:
            end_offset = self.log.end_offset
        if self.state.local_end_moved(end_offset):
            self._changed(self)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        node_id: NodeId = CONSUMER_NODE_ID,
        read_committed: bool = False,
        at_least_one: bool = True,
    ) -> Fetched:
        """The batches from `offset` on that the reader may see."""
        state = self.state
        error = state.check_leader(current_leader_epoch)
        if error is _OK and node_id >= 0:
            error = state.check_follower(node_id, current_leader_epoch)
        if error is not _OK:
            return Fetched(error)
        try:
            if last_fetched_epoch != NO_LEADER_EPOCH:
                diverged = self._check_divergence(offset, last_fetched_epoch)
                if diverged is not None:
                    return diverged
            if read_committed and node_id < 0:
                found = self._read_committed(offset, max_bytes, at_least_one)
            else:
                found = self._read_log(offset, max_bytes, node_id, at_least_one)
        except StorageError:
            self._changed(self)
            return _STORAGE_FETCHED
        except CorruptionError as damage:
            logger.error("cannot read", partition=str(state.topic_partition), offset=offset, error=str(damage))
            return Fetched(ErrorCode.CORRUPT_MESSAGE)
        if node_id >= 0 and found.error_code is _OK and state.follower_fetched(node_id, offset):
            self._changed(self)
        return found

    @property
    def last_stable_offset(self) -> Offset:
        """Where a `read_committed` reader stops. May raise StorageError or CorruptionError: see `Log.producers`."""
        return self.log.last_stable_offset(self.state.high_watermark)

    def _read_log(self, offset: Offset, max_bytes: int, node_id: NodeId, at_least_one: bool) -> Fetched:
        log, high_watermark = self.log, self.state.high_watermark
        end_offset = high_watermark if node_id < 0 else log.end_offset
        found = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        if found.error_code is not _OK:
            return Fetched(found.error_code)
        try:
            stable = log.last_stable_offset(high_watermark)
        except CorruptionError:
            # Damage elsewhere in the log: this reader does not look at it.
            stable = high_watermark
        return Fetched(
            _OK,
            high_watermark,
            stable,
            log.start_offset,
            found.slices,
            found.size_bytes,
        )

    def _read_committed(self, offset: Offset, max_bytes: int, at_least_one: bool) -> Fetched:
        """Up to the last stable offset, with what the reader must skip."""
        log, stable = self.log, self.last_stable_offset
        found = log.read(offset, max_bytes, end_offset=stable, at_least_one=at_least_one)
        if found.error_code is not _OK:
            return Fetched(found.error_code)
        aborted = log.find_aborted(offset, found, stable) if found.slices else ()
        return Fetched(
            _OK,
            self.state.high_watermark,
            stable,
            log.start_offset,
            found.slices,
            found.size_bytes,
            aborted_transactions=aborted,
        )

    def _check_divergence(self, offset: Offset, last_fetched_epoch: LeaderEpoch) -> Fetched | None:
        """Tell a reader whose log has left ours where to truncate to (KIP-595)."""
        epoch_end = self._find_epoch_end(last_fetched_epoch)
        if NO_OFFSET in epoch_end or offset < self.log.start_offset:
            return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch_end.leader_epoch >= last_fetched_epoch and epoch_end.end_offset >= offset:
            return None
        state = self.state
        return Fetched(
            _OK,
            state.high_watermark,
            self.last_stable_offset,
            self.log.start_offset,
            diverging_epoch=epoch_end,
        )

    def _find_epoch_end(self, leader_epoch: LeaderEpoch) -> EpochEnd:
        # An epoch that has not written anything yet begins, and ends, at the end of the log.
        self.log.assign_epoch(self.state.leader_epoch)
        return EpochEnd(*self.log.epoch_end_offset(leader_epoch))

    def find_epoch_end(
        self, leader_epoch: LeaderEpoch, *, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    ) -> tuple[ErrorCode, EpochEnd]:
        """Where `leader_epoch`, or the newest known before it, ends in this log (OffsetForLeaderEpoch)."""
        error = self.state.check_leader(current_leader_epoch)
        if error is not _OK:
            return error, EpochEnd()
        try:
            return _OK, self._find_epoch_end(leader_epoch)
        except (StorageError, CorruptionError) as failure:
            self._failed(failure)
            return ErrorCode.KAFKA_STORAGE_ERROR, EpochEnd()

    def find_offset(
        self,
        timestamp_ms: TimestampMs,
        *,
        current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        node_id: NodeId = CONSUMER_NODE_ID,
        read_committed: bool = False,
    ) -> OffsetFound:
        """The first offset at or after a timestamp, or one of the places that negative timestamps name."""
        state = self.state
        is_debugging = node_id == DEBUGGING_NODE_ID
        error = (state.check_epoch if is_debugging else state.check_leader)(current_leader_epoch)
        if error is not _OK:
            return OffsetFound(error)
        is_client = node_id == CONSUMER_NODE_ID
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return OffsetFound(_OK)
        try:
            end_offset = self._visible_end(read_committed) if is_client else self.log.end_offset
            return self._search(timestamp_ms, end_offset, is_client)
        except StorageError:
            self._changed(self)
            return OffsetFound(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptionError as damage:
            logger.error("cannot search", partition=str(state.topic_partition), error=str(damage))
            return OffsetFound(ErrorCode.CORRUPT_MESSAGE)

    def _visible_end(self, read_committed: bool) -> Offset:
        return self.last_stable_offset if read_committed else self.state.high_watermark

    def _search(self, timestamp_ms: TimestampMs, end_offset: Offset, is_client: bool) -> OffsetFound:
        state = self.state
        if timestamp_ms == LATEST:
            if is_client and state.is_catching_up:
                return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
            return OffsetFound(_OK, end_offset, leader_epoch=state.leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return OffsetFound(_OK, self.log.start_offset, leader_epoch=self._earliest_epoch())
        if timestamp_ms == MAX_TIMESTAMP:
            found = self.log.max_timestamp_offset(end_offset)
        else:
            found = self.log.offset_for_timestamp(timestamp_ms, end_offset)
        if found is None:
            if is_client and state.is_catching_up:
                return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
            return OffsetFound(_OK)
        return OffsetFound(_OK, found.offset, found.timestamp_ms, found.leader_epoch)

    def _earliest_epoch(self) -> LeaderEpoch:
        earliest = self.log.epochs.earliest
        if earliest is None or earliest.start_offset > self.log.start_offset:
            return NO_LEADER_EPOCH
        return earliest.epoch

    def delete_records(self, before: Offset) -> RecordsDeleted:
        """Move the log's start to `before`, or to the high watermark for -1."""
        state, log = self.state, self.log
        if not state.is_leader:
            return RecordsDeleted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.config.deletes:
            return RecordsDeleted(ErrorCode.POLICY_VIOLATION)
        offset = state.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= offset <= state.high_watermark:
            return RecordsDeleted(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            if offset > log.start_offset:
                log.advance_start_offset(offset)
        except (StorageError, CorruptionError) as error:
            self._failed(error)
            return RecordsDeleted(ErrorCode.KAFKA_STORAGE_ERROR)
        self._changed(self)
        return RecordsDeleted(_OK, log.start_offset)
