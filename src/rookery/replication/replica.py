"""One hosted partition: its replication state and its log, and the leader's operations on the two.

Every outcome that a client can cause is a value with an `ErrorCode`; a disk failure becomes KAFKA_STORAGE_ERROR here.
`ReplicaManager` creates the replicas; the handlers of Produce, Fetch, ListOffsets, DeleteRecords and
OffsetForLeaderEpoch call them. All methods run on the event loop and none of them blocks: an append is one write to the
page cache, and a read returns ranges of files, not bytes.

`flush.messages`: when the log reports that it needs an fsync, the new records do not count for the high watermark until
`Flusher` reports that they are on disk. Until then consumers do not see them and acknowledgements wait.
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
from rookery.replication.isr import UNKNOWN_BROKER_EPOCH
from rookery.replication.offset_search import EARLIEST_PENDING_UPLOAD, LATEST_TIERED, OffsetFound, search
from rookery.replication.partition import Partition
from rookery.storage.config import LogConfig
from rookery.storage.log import Log
from rookery.storage.producers import Duplicate, LateDuplicate, Verification
from rookery.telemetry.traffic import TopicTraffic

logger = structlog.get_logger(__name__)

ACKS_ALL = -1
ACKS_NONE = 0
CONSUMER_NODE_ID: NodeId = -1
DEBUGGING_NODE_ID: NodeId = -2

# In DeleteRecords: delete everything before the high watermark.
HIGH_WATERMARK: Offset = -1


class Appended(NamedTuple):
    """The outcome of one append. With `acks=all` it is acknowledged when the high watermark reaches `end_offset`."""

    error_code: ErrorCode
    base_offset: Offset = NO_OFFSET
    end_offset: Offset = NO_OFFSET
    log_append_time_ms: TimestampMs = NO_TIMESTAMP
    log_start_offset: Offset = NO_OFFSET
    message: str | None = None
    # (index, message) of each invalid record.
    record_errors: Sequence[tuple[int, str]] = ()


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch; both fields are -1 if it is unknown."""

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
    # (producer id, first offset), sorted by first offset; None unless the read is `read_committed`.
    aborted_transactions: Sequence[tuple[ProducerId, Offset]] | None = None
    # The follower that a consumer should read from instead; -1 if it should read here.
    preferred_read_replica: NodeId = -1


class RecordsDeleted(NamedTuple):
    """The outcome of DeleteRecords. It is complete when `low_watermark`, over all replicas, reaches `offset`."""

    error_code: ErrorCode
    low_watermark: Offset = NO_OFFSET
    offset: Offset = NO_OFFSET


# A module-level name for the hot path: in Python 3.11 the lookup of an enum member takes ten times as long.
_OK = ErrorCode.NONE
_STORAGE_APPENDED = Appended(ErrorCode.KAFKA_STORAGE_ERROR)
# The outcome of an append that wrote nothing because the batch has to be inspected first. Compared by identity: its
# error code is never sent.
NOT_INSPECTED = Appended(ErrorCode.UNKNOWN_SERVER_ERROR)
_STORAGE_FETCHED = Fetched(ErrorCode.KAFKA_STORAGE_ERROR)


class Replica:
    """A partition with a log on this node.

    `changed(replica)` is called after every change that may complete a waiting request; `flush(replica)` requests an
    fsync, whose end the callee reports with `flushed` or `notify_failure`; `propose(replica)` sends the proposal of a
    new ISR, whose answer the callee reports with `isr_settled`.
    """

    __slots__ = ("_changed", "_flush", "_propose", "is_flushing", "log", "policy", "state", "traffic")

    def __init__(
        self,
        state: Partition,
        log: Log,
        *,
        changed: Callable[["Replica"], None],
        flush: Callable[["Replica"], None],
        propose: Callable[["Replica"], None] = lambda _: None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.state = state
        self.traffic = traffic or TopicTraffic()
        self.log = log
        self.policy = ProducePolicy.of(log.config, has_record_check=log.config.schema_rules is not None)
        self.is_flushing = False
        self._changed = changed
        self._flush = flush
        self._propose = propose
        state.configure(log.config.min_insync_replicas, 0.0)

    def configure(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self.policy = ProducePolicy.of(config, has_record_check=config.schema_rules is not None)
        if self.state.configure(config.min_insync_replicas, self.log.clock.monotonic()):
            self._changed(self)

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
        """Append one produced batch to the log. `verification` is the result of `needed_verification`, confirmed.

        Returns `NOT_INSPECTED` if the batch must be inspected first: the caller inspects it and calls `append` again
        with the resulting batch and `is_inspected`.
        """
        state, log = self.state, self.log
        # A follower's log is a copy of its leader's. A record that is appended here would be truncated as a divergence,
        # although it was acknowledged.
        if not state.is_leader:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # Checked before the write: an append that is rejected afterwards stays in the log, and the producer's retry
        # would store its records twice.
        if acks == ACKS_ALL and not self.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            prepared = prepare(data, self.policy, now_ms=now_ms, zstd_allowed=zstd_allowed, is_inspected=is_inspected)
            if prepared is None:
                return NOT_INSPECTED
            header, batch = prepared
            if header.producer_id >= 0 or header.is_transactional:
                obstacle = log.producers.check(header)
                # A duplicate belongs to the open transaction, and a late one is rejected in any case. Any other batch
                # outside its producer's transaction would begin one that no marker ends, and `read_committed` readers
                # would never get past it.
                if header.is_transactional and (obstacle is None or isinstance(obstacle, ErrorCode)):
                    obstacle = log.producers.check_transaction(header, verification) or obstacle
                if obstacle is not None:
                    return self._not_written(obstacle)
            base_offset = log.append(batch, header, leader_epoch=state.leader_epoch)
        except InvalidBatchError as error:
            return self.reject(error)
        except (StorageError, CorruptionError) as error:
            self._report_failure(error)
            return _STORAGE_APPENDED
        self._appended()
        append_time_ms = now_ms if self.policy.log_append_time else NO_TIMESTAMP
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(_OK, base_offset, end_offset, append_time_ms, log.start_offset)

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Return whether `append` would write nothing because the batch is a duplicate.

        True also if the producers' state cannot be read: `append` then returns an error, so that no inspection of the
        batch is needed either.
        """
        try:
            return isinstance(self.log.producers.check(header), (Duplicate, LateDuplicate))
        except (StorageError, CorruptionError):
            return True

    def needed_verification(self, records: Buffer) -> Verification | None:
        """Return what the transaction coordinator must confirm before a batch is appended, None if nothing.

        Nothing has to be confirmed if the batch is not transactional, is a duplicate, belongs to a transaction that is
        open on this partition, or is so malformed that `append` will reject it.
        """
        if len(records) < HEADER_SIZE:
            return None
        header = read_header(records)
        if header.magic != MAGIC_V2 or not header.is_transactional or header.producer_id < 0:
            return None
        try:
            return self.log.producers.verify(header)
        except (StorageError, CorruptionError):
            # The append fails for the same reason and reports it.
            return None

    def guard(self, producer_id: ProducerId) -> object | None:
        """Return a guard for `append_coordinated`, to be taken before the producer's transaction is verified.

        The end of that transaction invalidates the guard.
        """
        try:
            return self.log.producers.guard(producer_id)
        except (StorageError, CorruptionError):
            # The append fails for the same reason and reports it.
            return None

    def append_coordinated(
        self, data: bytearray | memoryview, *, now_ms: TimestampMs, guard: object | None = None
    ) -> Appended:
        """Append a batch that a coordinator built, with the checks of `acks=all`.

        It may be part of a producer's transaction (offsets of a transaction); then `guard` protects it.
        """
        return self._append_own(
            lambda: prepare_own(data, self.policy, now_ms=now_ms),
            lambda header: self.log.producers.check_coordinated(header, guard),
        )

    def append_marker(self, marker: Marker, *, now_ms: TimestampMs) -> Appended:
        """End a producer's transaction on this partition. The marker is written even if no transaction is open."""
        appended = self._append_own(
            lambda: self._marker_batch(marker, now_ms), lambda _: self.log.producers.check_marker(marker)
        )
        if appended.error_code is _OK:
            # The call drops the ended transactions below the high watermark. Reads do the same, but a partition that no
            # consumer reads would keep one entry per transaction for ever.
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
        """Append a batch that the broker builds with `make`, unless `check` returns an error."""
        if not self.state.is_leader:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            header, batch = make()
            error_code = check(header)
            if error_code is not None:
                return Appended(error_code, log_start_offset=self.log.start_offset)
            base_offset = self.log.append(batch, header, leader_epoch=self.state.leader_epoch)
        except InvalidBatchError as error:
            return self.reject(error)
        except (StorageError, CorruptionError) as error:
            self._report_failure(error)
            return _STORAGE_APPENDED
        self._appended()
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(_OK, base_offset, end_offset, log_start_offset=self.log.start_offset)

    @property
    def has_enough_replicas(self) -> bool:
        """Whether as many replicas are in sync as `min.insync.replicas` demands."""
        return len(self.state.isr) >= self.state.needed_in_sync

    @property
    def had_enough_replicas(self) -> bool:
        """Whether as many replicas as `min.insync.replicas` demands have what the high watermark has passed."""
        return len(self.state.maximal_isr) >= self.state.needed_in_sync

    def is_acknowledged(self, end_offset: Offset, acks: int) -> bool:
        """Return whether the records before `end_offset` are stored as safely as `acks` demands."""
        reached = self.state.high_watermark if acks == ACKS_ALL else self.state.local_end_offset
        return reached >= end_offset

    def reject(self, error: InvalidBatchError) -> Appended:
        """Return the outcome of an append whose batch is invalid."""
        start_offset = self.log.start_offset
        return Appended(
            error.code, log_start_offset=start_offset, message=str(error), record_errors=error.record_errors
        )

    def _not_written(self, obstacle: Duplicate | LateDuplicate | ErrorCode) -> Appended:
        """Return the outcome of an append that the checks of the producer's state stopped.

        A duplicate counts as appended, with the offsets of the first copy.
        """
        if isinstance(obstacle, LateDuplicate):
            # The response leaves out the log start offset. Older clients compare it with the last offset that they
            # know: if it is not lower, they conclude that retention has deleted their records, and retry for ever.
            reason = f"A transaction that has ended used sequence number {obstacle.first_sequence}: abort this one."
            return Appended(ErrorCode.TRANSACTION_ABORTABLE, message=reason)
        if obstacle is ErrorCode.INVALID_TXN_STATE:
            message = "The batch is not part of its producer's transaction."
            return Appended(obstacle, log_start_offset=self.log.start_offset, message=message)
        if isinstance(obstacle, ErrorCode):
            return Appended(obstacle, log_start_offset=self.log.start_offset)
        return Appended(
            _OK,
            obstacle.base_offset,
            obstacle.last_offset + 1,
            obstacle.timestamp_ms if self.policy.log_append_time else NO_TIMESTAMP,
            self.log.start_offset,
        )

    def _appended(self) -> None:
        """Advance the local end offset after an append, or request the fsync that must come first."""
        state, log = self.state, self.log
        # Followers read up to the end of the log: an append can complete their long polls before it is committed.
        may_complete = len(state.replicas) > 1
        if log.needs_flush:
            self._flush(self)
        # While an fsync runs, the local end offset stays: the new records follow unsynced ones, and the high watermark
        # would pass records that a power loss can still remove. `flushed` moves it.
        elif not self.is_flushing:
            may_complete |= state.local_end_moved(log.end_offset, log.clock.monotonic() if may_complete else 0.0)
        if may_complete:
            self._changed(self)

    def notify_failure(self) -> None:
        """Wake the waiting requests after a disk failure, so that they return an error."""
        self._changed(self)

    def _report_failure(self, error: StorageError | CorruptionError) -> None:
        """Log a damaged log and wake the waiting requests. A log directory that fails logs that itself."""
        if isinstance(error, CorruptionError):
            logger.error("the log is damaged", partition=str(self.state.topic_partition), error=str(error))
        self._changed(self)

    def flushed(self, end_offset: Offset) -> None:
        """Handle the end of an fsync: the records before `end_offset` are on disk.

        Records that were appended meanwhile count as well, unless `flush.messages` demands another fsync for them.
        """
        if self.log.needs_flush:
            self._flush(self)
        else:
            end_offset = self.log.end_offset
        # A follower's next fetch waited for the fsync.
        if not self.state.is_leader or self.state.local_end_moved(end_offset, self.log.clock.monotonic()):
            self._changed(self)

    def copied(self) -> None:
        """Handle a change of a follower's log: request the fsync that `flush.messages` demands, wake readers."""
        if self.log.needs_flush:
            self._flush(self)
        self._changed(self)

    def check_high_watermark(self) -> None:
        """Compute the high watermark again, in case that followers outside the ISR no longer hold it back."""
        state = self.state
        if state.may_be_held_back and state.advance(self.log.clock.monotonic()):
            self._changed(self)

    def isr_settled(self, high_watermark_moved: bool) -> None:
        """Handle the controller's answer to a proposal, which may have led to another one."""
        if self.state.proposal is not None:
            self._propose(self)
        if high_watermark_moved:
            self._changed(self)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        node_id: NodeId = CONSUMER_NODE_ID,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        start_offset: Offset = NO_OFFSET,
        read_committed: bool = False,
        at_least_one: bool = True,
        needs_leader: bool = True,
        is_repeated: bool = False,
    ) -> Fetched:
        """Return the batches from `offset` on that the reader may see.

        `node_id` is below 0 for consumers. For followers, `broker_epoch` is that of the fetching process and
        `start_offset` the start of their log. Without `needs_leader`, a follower serves consumers too (KIP-392).
        `is_repeated` is for a request that was read before and has waited: what it says of a follower is not new.
        """
        state = self.state
        error = (state.check_leader if needs_leader else state.check_epoch)(current_leader_epoch)
        # Without this check, a node that is not a replica could read uncommitted records.
        if error is _OK and node_id >= 0:
            error = state.check_follower(node_id, current_leader_epoch, broker_epoch)
        if error is not _OK:
            return Fetched(error)
        try:
            if last_fetched_epoch != NO_LEADER_EPOCH:
                diverged = self._check_divergence(offset, last_fetched_epoch)
                # Return before `follower_fetched`: the follower has other records below `offset`. If they counted, the
                # high watermark would pass records that only this node has, and they would be acknowledged.
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
        if node_id >= 0 and found.error_code is _OK and not is_repeated:
            self._note_fetch(node_id, offset, start_offset, broker_epoch)
            if state.high_watermark != found.high_watermark:
                found = found._replace(high_watermark=state.high_watermark)
        return found

    def _note_fetch(self, node_id: NodeId, offset: Offset, start_offset: Offset, broker_epoch: int) -> None:
        """Record a follower's position, which may move the high watermark, and let the follower join the ISR."""
        state = self.state
        proposal, start_before = state.proposal, state.follower_start(node_id)
        moved = state.follower_fetched(
            node_id, offset, start_offset=start_offset, broker_epoch=broker_epoch, now_s=self.log.clock.monotonic()
        )
        if state.proposal is not proposal:
            self._propose(self)
        # DeleteRecords waits for the start offsets of followers.
        if moved or start_offset != start_before:
            self._changed(self)

    def refer_to(self, node: NodeId) -> Fetched:
        """Return the answer that refers a consumer to another replica: the offsets of this one, and no records."""
        try:
            stable = self.last_stable_offset
        except (StorageError, CorruptionError):
            stable = self.state.high_watermark
        offsets = self.state.high_watermark, stable, self.log.start_offset
        return Fetched(_OK, *offsets, preferred_read_replica=node)

    @property
    def last_stable_offset(self) -> Offset:
        """The end offset for `read_committed` readers. Raises StorageError or CorruptionError: see `Log.producers`."""
        return self.log.last_stable_offset(self.state.high_watermark)

    def _read_log(self, offset: Offset, max_bytes: int, node_id: NodeId, at_least_one: bool) -> Fetched:
        log, high_watermark = self.log, self.state.high_watermark
        # A consumer must not see records above the high watermark: the next leader may not have them.
        end_offset = high_watermark if node_id < 0 else log.end_offset
        found = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        if found.error_code is not _OK:
            return Fetched(found.error_code)
        try:
            stable = log.last_stable_offset(high_watermark)
        except CorruptionError:
            # The producers' state cannot be rebuilt because another part of the log is damaged. This read does not
            # depend on it, so the partition stays readable.
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
        """Read up to the last stable offset, and list the aborted transactions that the reader must skip."""
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
        """Return the outcome for a reader whose log diverges from this one: where to truncate (KIP-595).

        None if the reader's last epoch and `offset` agree with this log.
        """
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
        # Enter the current epoch even if it has no record yet: it starts and ends at the end of the log. Without the
        # entry, a reader that asks for this epoch would be reported as diverged.
        if self.state.is_leader:
            self.log.assign_epoch(self.state.leader_epoch)
        return EpochEnd(*self.log.epoch_end_offset(leader_epoch))

    def find_epoch_end(
        self, leader_epoch: LeaderEpoch, *, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    ) -> tuple[ErrorCode, EpochEnd]:
        """Return the end offset of `leader_epoch`, or of the newest known epoch before it (OffsetForLeaderEpoch)."""
        error = self.state.check_leader(current_leader_epoch)
        if error is not _OK:
            return error, EpochEnd()
        try:
            return _OK, self._find_epoch_end(leader_epoch)
        except (StorageError, CorruptionError) as failure:
            self._report_failure(failure)
            return ErrorCode.KAFKA_STORAGE_ERROR, EpochEnd()

    def find_offset(
        self,
        timestamp_ms: TimestampMs,
        *,
        current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        node_id: NodeId = CONSUMER_NODE_ID,
        read_committed: bool = False,
    ) -> OffsetFound:
        """Return the first offset at or after a timestamp, or the offset that a negative `timestamp_ms` stands for."""
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
            return search(self.log, self.state, timestamp_ms, end_offset, is_client=is_client)
        except StorageError:
            self._changed(self)
            return OffsetFound(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptionError as damage:
            logger.error("cannot search", partition=str(state.topic_partition), error=str(damage))
            return OffsetFound(ErrorCode.CORRUPT_MESSAGE)

    def _visible_end(self, read_committed: bool) -> Offset:
        return self.last_stable_offset if read_committed else self.state.high_watermark

    def delete_records(self, before: Offset) -> RecordsDeleted:
        """Move the start of the log to `before`, or to the high watermark if `before` is -1. Followers do so later."""
        state, log = self.state, self.log
        if not state.is_leader:
            return RecordsDeleted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.config.deletes:
            return RecordsDeleted(ErrorCode.POLICY_VIOLATION)
        offset = state.high_watermark if before == HIGH_WATERMARK else before
        # Records above the high watermark are not committed: their producers still wait for the acknowledgement.
        if not 0 <= offset <= state.high_watermark:
            return RecordsDeleted(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            if offset > log.start_offset:
                log.advance_start_offset(offset)
        except (StorageError, CorruptionError) as error:
            self._report_failure(error)
            return RecordsDeleted(ErrorCode.KAFKA_STORAGE_ERROR)
        self._changed(self)
        return RecordsDeleted(_OK, self.low_watermark, offset)

    @property
    def low_watermark(self) -> Offset:
        """The smallest start offset among the replicas that are alive: no reader finds older records."""
        return self.state.low_watermark(self.log.start_offset)
