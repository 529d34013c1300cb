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
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
)
from rookery.records.produce import ProducePolicy, prepare
from rookery.replication.partition import Partition
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.producers import Duplicate

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
    record_index: int | None = None


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
        self.policy = ProducePolicy.of(log.config)
        self.is_flushing = False
        self._changed = changed
        self._flush = flush

    def configure(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self.policy = ProducePolicy.of(config)

    def append(
        self, data: bytearray | memoryview, *, acks: int, now_ms: TimestampMs, zstd_allowed: bool = True
    ) -> Appended:
        """Take one produced batch into the log."""
        state, log = self.state, self.log
        if not state.is_leader:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and not self.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            header, batch = prepare(data, self.policy, now_ms=now_ms, zstd_allowed=zstd_allowed)
            if header.producer_id >= 0 or header.is_transactional:
                if header.is_transactional:
                    return self._refuse(ErrorCode.INVALID_TXN_STATE, "The partition was not added to a transaction.")
                known = log.producers.check(header)
                if known is not None:
                    return self._answer_known(known)
            base_offset = log.append(batch, header, leader_epoch=state.leader_epoch)
        except InvalidBatchError as error:
            return self._refuse(error.code, str(error), error.record_index)
        except (StorageError, CorruptionError) as error:
            self._failed(error)
            return _STORAGE_APPENDED
        self._appended()
        append_time_ms = now_ms if self.policy.log_append_time else NO_TIMESTAMP
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(_OK, base_offset, end_offset, append_time_ms, log.start_offset)

    @property
    def has_enough_replicas(self) -> bool:
        needed = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        return len(self.state.isr) >= needed

    def is_acknowledged(self, end_offset: Offset, acks: int) -> bool:
        """Whether records before `end_offset` are as safe as `acks` asks for."""
        reached = self.state.high_watermark if acks == ACKS_ALL else self.state.local_end_offset
        return reached >= end_offset

    def _refuse(self, code: ErrorCode, message: str, record_index: int | None = None) -> Appended:
        return Appended(code, log_start_offset=self.log.start_offset, message=message, record_index=record_index)

    def _answer_known(self, known: Duplicate | ErrorCode) -> Appended:
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
            found = self._read_log(offset, max_bytes, self._visible_end(node_id, read_committed), at_least_one)
        except StorageError:
            self._changed(self)
            return _STORAGE_FETCHED
        except CorruptionError as damage:
            logger.error("cannot read", partition=str(state.topic_partition), offset=offset, error=str(damage))
            return Fetched(ErrorCode.CORRUPT_MESSAGE)
        if node_id >= 0 and found.error_code is _OK and state.follower_fetched(node_id, offset):
            self._changed(self)
        return found

    def _visible_end(self, node_id: NodeId, read_committed: bool) -> Offset:
        if node_id >= 0:
            return self.log.end_offset
        return self.state.last_stable_offset if read_committed else self.state.high_watermark

    def _read_log(self, offset: Offset, max_bytes: int, end_offset: Offset, at_least_one: bool) -> Fetched:
        log, state = self.log, self.state
        found = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        if found.error_code is not _OK:
            return Fetched(found.error_code)
        return Fetched(
            _OK,
            state.high_watermark,
            state.last_stable_offset,
            log.start_offset,
            found.slices,
            found.size_bytes,
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
            state.last_stable_offset,
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
        end_offset = self._visible_end(CONSUMER_NODE_ID, read_committed) if is_client else self.log.end_offset
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return OffsetFound(_OK)
        if timestamp_ms == LATEST:
            if is_client and state.is_catching_up:
                return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
            return OffsetFound(_OK, end_offset, leader_epoch=state.leader_epoch)
        try:
            return self._search(timestamp_ms, end_offset, is_client)
        except StorageError:
            self._changed(self)
            return OffsetFound(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptionError as damage:
            logger.error("cannot search", partition=str(state.topic_partition), error=str(damage))
            return OffsetFound(ErrorCode.CORRUPT_MESSAGE)

    def _search(self, timestamp_ms: TimestampMs, end_offset: Offset, is_client: bool) -> OffsetFound:
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return OffsetFound(_OK, self.log.start_offset, leader_epoch=self._earliest_epoch())
        if timestamp_ms == MAX_TIMESTAMP:
            found = self.log.max_timestamp_offset(end_offset)
        else:
            found = self.log.offset_for_timestamp(timestamp_ms, end_offset)
        if found is None:
            if is_client and self.state.is_catching_up:
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
