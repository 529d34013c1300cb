"""The log of one partition: segments in a directory, appended at the end, read anywhere, deleted from the start.

All methods run on the event loop, and none of the frequent ones syncs: `append` writes to the page cache, and `flush`
(in three steps, see the module `flush`) makes the bytes survive a crash. Everything below `recovery_point` has been
synced; after an unclean stop only what lies beyond it is checked again. Readers see [start_offset, end_offset).

An OSError anywhere takes the whole log directory offline: the method raises StorageError, and so does every later call
on any log of that directory.

Crash safety depends on the order of a few steps; `tests/storage/test_crash_points.py` enumerates the crash points:
- at most the newest segment's name may be unsynced, so that a crash cannot leave a hole between segments;
- the recovery point moves only after log, indexes, snapshots, epochs and names below it were synced;
- `truncate_to` lowers the recovery point on disk first, then cuts from the newest segment backwards;
- files of segments below the start offset are removed after the start offset was checkpointed (`take_detached_files`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from rookery.base.clock import Clock
from rookery.base.files import Files
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    Buffer,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from rookery.records.batch import BatchHeader, stamp
from rookery.records.control import EndMarker
from rookery.storage import recovery, replacement, retention, timestamps
from rookery.storage.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory, guarded
from rookery.storage.log_reader import LogRead, read_end_offset, read_segments
from rookery.storage.log_state import LogState
from rookery.storage.manifest import ListedLog
from rookery.storage.segment import Segment
from rookery.storage.segment_check import read_end_marker
from rookery.storage.timestamps import TimestampOffset
from rookery.storage.transactions import AbortedStarts


class Log(LogState):
    """One partition's log; `Log.open` is the constructor to use."""

    @classmethod
    def open(
        cls,
        files: Files,
        directory: Path,
        config: LogConfig,
        *,
        clock: Clock,
        partition: TopicPartition,
        topic_id: TopicId = NO_TOPIC_ID,
        recovery_point: Offset = 0,
        start_offset: Offset = 0,
        clean: bool = False,
        log_directory: LogDirectory | None = None,
        listed: ListedLog | None = None,
    ) -> "Log":
        """Open or create a log; after an unclean stop everything beyond `recovery_point` is checked and repaired.

        `clean` means that the log was closed and that `recovery_point` was taken after that. Raises DamagedLogError,
        and changes nothing, if bytes below the recovery point or segments that the manifest has `listed` are missing or
        damaged.
        """
        log_directory = log_directory or LogDirectory(directory.parent)
        log_directory.check()
        try:
            loaded = recovery.load(
                files,
                directory,
                config,
                now_ms=clock.now_ms(),
                recovery_point=recovery_point,
                start_offset=start_offset,
                clean=clean,
                listed=listed,
            )
            if loaded.is_new or loaded.is_dirty:
                metadata_path = directory / PARTITION_METADATA_FILE
                if topic_id != NO_TOPIC_ID and (loaded.is_new or not files.exists(metadata_path)):
                    files.write_file(metadata_path, encode_partition_metadata(topic_id))
        except OSError as error:
            raise log_directory.fail(error) from error
        log = cls(
            files,
            directory,
            config,
            clock=clock,
            partition=partition,
            topic_id=topic_id,
            log_directory=log_directory,
            loaded=loaded,
        )
        if log.needs_flush:
            # A killed process may have left bytes that were never synced: they must be synced before a reader sees
            # them, or a power failure could take back what a consumer has already processed.
            log.flush()
        return log

    # Appending

    def append(self, data: bytearray | memoryview, header: BatchHeader, *, leader_epoch: LeaderEpoch) -> Offset:
        """Append one checked batch as the leader: stamps offset and epoch into `data` and writes these bytes.

        Returns the base offset. The caller has called `producers.check` before.
        """
        base_offset = self.end_offset
        stamp(data, base_offset, leader_epoch)
        self._write(data, header, base_offset, leader_epoch)
        return base_offset

    def append_fetched(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append batches that fill `data` as the leader stamped them; `read_fetched` has checked them.

        Batches of one segment are written with one call. Compaction on the leader may have left gaps between batches.
        """
        if self.log_directory.failure is not None or self.is_closed:
            raise self.unavailable_error()
        if headers[0].base_offset < self.end_offset:
            self._begin_inside(headers[0])
        run: list[BatchHeader] = []
        start = position = 0
        for header in headers:
            segment = self._segments.active
            if run and (not segment.size_bytes or self._rolling.counts_entries):
                # Whether the next batch needs a new segment depends on what is noted when this one is written.
                self._write_run(data[start:position], run)
                start, run = position, []
            following = position + header.size_bytes
            if self._rolling.must_roll(segment, following - start, header.last_offset, header.max_timestamp_ms):
                if run:
                    self._write_run(data[start:position], run)
                    start, run = position, []
                self._check_fits(self.roll(), header.last_offset)
            run.append(header)
            position = following
        self._write_run(data[start:position], run)

    def _begin_inside(self, header: BatchHeader) -> None:
        """Let an empty log begin with a batch that contains its start offset; after DeleteRecords the leader's does."""
        start_offset = self.start_offset
        if not (start_offset == self.end_offset <= header.last_offset):
            raise ValueError(f"batch at {header.base_offset} does not follow {self.end_offset} in {self.partition}")
        self.restart_at(header.base_offset)
        self.start_offset = start_offset

    @guarded
    def _write_run(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Write batches of the active segment, and note their epochs, producers and transactions."""
        producers, segment = self.producers, self._segments.active
        markers: dict[Offset, EndMarker | None] = {}
        batches: list[tuple[Buffer, Offset, TimestampMs]] = []
        position = 0
        for header in headers:
            batch = data[position : position + header.size_bytes]
            position += len(batch)
            batches.append((batch, header.last_offset, header.max_timestamp_ms))
            if header.producer_id >= 0 and header.is_control:
                # As in `_write`: both before the write.
                markers[header.base_offset] = read_end_marker(batch)
                self._segments.aborted_index(segment)
        segment.append_run(data, batches)
        self._is_dirty = True
        for header in headers:
            if header.leader_epoch != self._latest_epoch and header.leader_epoch != NO_LEADER_EPOCH:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            if header.base_offset in markers:
                aborted = producers.end_transaction(header, markers[header.base_offset])
                if aborted is not None:
                    segment.aborted.append(aborted)
            elif header.producer_id >= 0:
                producers.update(header)
        self._unflushed_messages += headers[-1].last_offset + 1 - self.end_offset
        self.end_offset = headers[-1].last_offset + 1

    def _write(
        self, data: bytearray | memoryview | bytes, header: BatchHeader, base_offset: Offset, leader_epoch: LeaderEpoch
    ) -> None:
        if self.log_directory.failure is not None or self.is_closed:
            raise self.unavailable_error()
        # Loaded before the write: loading after it would replay this batch from the file, and `update` would add it
        # twice.
        producers = self._producers if self._producers is not None else self.producers
        segment = self._segments.active
        last_offset = base_offset + header.last_offset_delta
        is_marker = header.producer_id >= 0 and header.is_control
        # A marker that cannot be read must not be written: a later recovery would end the log at it.
        marker = read_end_marker(data) if is_marker else None
        try:
            if is_marker:
                # A rebuild after the write would find this marker in the file, and the entry would be added twice.
                self._segments.aborted_index(segment)
            if self._rolling.must_roll(segment, len(data), last_offset, header.max_timestamp_ms):
                segment = self.roll()
                self._check_fits(segment, last_offset)
            segment.append(data, last_offset, header.max_timestamp_ms)
        except OSError as error:
            raise self.log_directory.fail(error) from error
        self._is_dirty = True
        if leader_epoch != self._latest_epoch and leader_epoch != NO_LEADER_EPOCH:
            self._assign_epoch(leader_epoch, base_offset)
        self.end_offset = last_offset + 1
        self._unflushed_messages += header.last_offset_delta + 1
        if is_marker:
            aborted = producers.end_transaction(header, marker, base_offset)
            if aborted is not None:
                segment.aborted.append(aborted)
        elif header.producer_id >= 0:
            producers.update(header, base_offset)

    def _check_fits(self, segment: Segment, last_offset: Offset) -> None:
        if not segment.fits(last_offset):
            raise ValueError(f"offset {last_offset} is too far from the end of {self.partition}")

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Let the epoch of a new leader begin at the end of the log, before it has written anything."""
        if epoch > self.epochs.latest:
            self._assign_epoch(epoch, self.end_offset)

    def _assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, start_offset)
            self._is_dirty = True
        self._latest_epoch = epoch

    @guarded
    def roll(self) -> Segment:
        """Seal the active segment and begin a new one at the end of the log; an empty active segment stays."""
        if not self._segments.active.size_bytes:
            return self._segments.active
        if self._unsynced.has_names:
            # At most one segment's name may be unsynced. With two, a crash could lose the older one and keep the newer:
            # a hole, at which recovery ends the log, although the records after it were acknowledged.
            self.files.sync_directory(self.directory)
            self._unsynced.names_synced()
        self._segments.active.write_indexes()
        self._unsynced.sealed.append(self._segments.active)
        self._write_snapshot()
        self._add_segment(self.end_offset)
        return self._segments.active

    def _add_segment(self, base_offset: Offset) -> None:
        interval = self.config.index_interval_bytes
        self._segments.begin(base_offset, index_interval_bytes=interval, created_ms=self.clock.now_ms())
        self._unsynced.name_created()
        self._is_dirty = True

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, *, end_offset: Offset | None = None, at_least_one: bool = True
    ) -> LogRead:
        """Return file ranges from the batch that holds `offset`, about `max_bytes` long, all below `end_offset`.

        With `at_least_one` the first batch is returned whole even if it is larger; the last one may be cut short.
        """
        if self.log_directory.failure is not None or self.is_closed:
            raise self.unavailable_error()
        try:
            return read_segments(
                self._segments.all,
                self._segments.bases,
                offset=offset,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                limit=end_offset,
                max_bytes=max_bytes,
                at_least_one=at_least_one,
            )
        except OSError as error:
            raise self.log_directory.fail(error) from error

    @guarded
    def offset_for_timestamp(
        self, timestamp_ms: TimestampMs, end_offset: Offset | None = None
    ) -> TimestampOffset | None:
        """Return the first record below `end_offset` that is not older than `timestamp_ms`."""
        limit = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        return timestamps.first_at_or_after(
            self._segments.all, timestamp_ms, start_offset=self.start_offset, end_offset=limit
        )

    @guarded
    def max_timestamp_offset(self, end_offset: Offset | None = None) -> TimestampOffset | None:
        """Return the first record below `end_offset` that has the largest timestamp (ListOffsets -3)."""
        limit = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        return timestamps.latest(self._segments.all, start_offset=self.start_offset, end_offset=limit)

    def epoch_end_offset(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch up to `leader_epoch` and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    # Transactions

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return where readers of committed records stop, with everything below `high_watermark` committed."""
        transactions = (self._producers if self._producers is not None else self.producers).transactions
        if not transactions.open and not transactions.ended:
            return high_watermark
        stable = transactions.last_stable_offset(high_watermark)
        # DeleteRecords or retention may have moved the start past the first record of an open transaction.
        return stable if stable >= self.start_offset else self.start_offset

    @guarded
    def find_aborted(self, offset: Offset, found: LogRead, limit: Offset) -> AbortedStarts:
        """Return the aborted transactions with records in what was read from `offset`."""
        return self._segments.find_aborted(offset, read_end_offset(found, limit))

    @guarded
    def find_aborted_across(self, offset: Offset) -> AbortedStarts:
        """Return the aborted transactions that began before `offset` and ended at or after it."""
        return self._segments.find_aborted(offset, offset)

    # Truncation

    @guarded
    def truncate_to(self, offset: Offset) -> None:
        """Remove all records from the batch that holds `offset` to the end."""
        if offset < self.end_offset:
            (self._truncate_to if offset > self.start_offset else self._restart_at)(offset)
        else:
            # An epoch in which this node led and wrote nothing begins at the end of the log. If it stayed, the next
            # leader, which does not know it, would ask for the same truncation for ever.
            self.epochs.truncate_from_end(self.end_offset)
            self._latest_epoch = None

    @guarded
    def restart_at(self, offset: Offset) -> None:
        """Remove all records and continue with an empty log at `offset`."""
        self._restart_at(offset)

    def _truncate_to(self, offset: Offset) -> None:
        kept = max(1, bisect_left(self._segments.bases, offset))
        last = self._segments.all[kept - 1]
        position = last.position_of(offset)
        # Batches are removed whole, so the log may end below `offset`. A recovery point between the two would make the
        # next start quarantine the log after a crash: it would miss records that were never there.
        self.end_offset = last.end_offset_before(position)
        self._prepare_truncation(self.end_offset)
        self._segments.drop_from(kept)
        last.truncate_to_position(position)
        if last.has_aborted:
            # An entry whose marker was cut would make readers skip the records of a transaction that commits later.
            self._segments.aborted_index(last).truncate_from(self.end_offset)
        if self.end_offset < self.start_offset:
            # The batch that held the start offset was removed whole: no record at or after the start is left.
            self._restart_at(self.start_offset)
        else:
            self._finish_truncation()

    def _restart_at(self, offset: Offset) -> None:
        self._prepare_truncation(0)
        # Detached segments still have their old names: the new segment may get the same name, and would be removed in
        # the place of the detached one.
        for path in self.take_detached_files():
            self.files.remove(path)
        self._segments.drop_from(0)
        self._add_segment(offset)
        self.start_offset = self.end_offset = self.recovery_point = offset
        # The epochs of the removed records: a leader would be asked for the end of one that its own log no longer has,
        # and report a divergence that no truncation of an empty log can resolve.
        self.epochs.clear()
        self._finish_truncation()

    def _prepare_truncation(self, offset: Offset) -> None:
        # A flush in progress must not move the recovery point: it synced bytes that are cut now.
        self._unsynced.generation += 1
        self._lower_recovery_point(offset)
        # Removed for good before the batches are cut: a snapshot that came back after a crash would restore sequence
        # numbers of batches that are gone, and a retry of such a batch would be acknowledged and its records lost.
        self._segments.remove_snapshots(lambda snapshot: snapshot > offset)
        self.files.sync_directory(self.directory)
        self._unsynced.names_synced()

    def _lower_recovery_point(self, offset: Offset) -> None:
        """Lower the recovery point in memory and on disk, before any byte above it is cut or written again.

        With a higher one on disk, a crash would leave a log that ends below its recovery point, which the next start
        refuses as damaged; and batches that replace the cut ones would count as synced and not be checked.
        """
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self.checkpoint_recovery_point is not None:
                self.checkpoint_recovery_point()

    def _finish_truncation(self) -> None:
        self._unsynced.keep_only(self._segments.all[:-1], self._segments.snapshots)
        self.epochs.truncate_from_end(self.end_offset)
        self._latest_epoch = None
        # Loaded again from snapshot and log. The old states would acknowledge a retry of a batch that was cut.
        self._producers = None
        self._is_dirty = True

    # Deletion from the start

    @guarded
    def advance_start_offset(self, offset: Offset) -> bool:
        """Let the log begin at `offset` (DeleteRecords); the next retention run removes the segments below."""
        if offset > self.end_offset:
            raise ValueError(f"{offset} is beyond the end of {self}")
        if offset <= self.start_offset:
            return False
        self.epochs.truncate_from_start(offset)
        self.start_offset = offset
        self._is_dirty = True
        return True

    @guarded
    def apply_retention(self, now_ms: TimestampMs, stable_offset: Offset | None = None) -> list[Segment]:
        """Detach expired segments that end at or below `stable_offset` (the high watermark).

        Readers no longer see them. Their files stay until `take_detached_files`, which must wait until the new start
        offset is checkpointed: otherwise a crash leaves a start offset whose segments are missing, and the next start
        reports them as damage.
        """
        count = retention.count_expired(
            self._segments.all,
            self.config,
            start_offset=self.start_offset,
            stable_offset=self.end_offset if stable_offset is None else stable_offset,
            end_offset=self.end_offset,
            now_ms=now_ms,
        )
        if count == len(self._segments.all):
            self.roll()
        expired = self._segments.all[:count]
        if expired:
            self._detach_oldest(count)
        return expired

    def _detach_oldest(self, count: int) -> None:
        # First, because loading the epochs may fail: then nothing may have been detached.
        self.advance_start_offset(self._segments.bases[count])
        self._segments.detach_oldest(count)
        self._unsynced.forget_below(self._segments.bases[0])
        self._is_dirty = True

    @property
    def has_detached(self) -> bool:
        return self._segments.has_detached

    @guarded
    def take_detached_files(self) -> list[Path]:
        """Rename the files of detached segments to names that are never reused, and return the new paths, oldest first.

        The caller removes them in a worker thread, since removing large files takes long.
        """
        return self._segments.take_detached_files()

    # Replacement by the cleaner

    @guarded
    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Put `new`, which the cleaner has built and sealed, in place of `old`; see the module `replacement`.

        The caller removes the files of `old` before it replaces more segments, preferably in a worker thread.
        """
        slots = self._segments.slots_of(old)
        if slots is None:
            raise ValueError(f"{old} are not neighbouring sealed segments of {self}")
        if self.recovery_point < self._segments.bases[slots.stop]:
            # Recovery accepts a gap between segments below the recovery point, where only compaction can have left it,
            # and ends the log at a gap beyond. Without this flush, the gap that this swap leaves would end the log
            # after a crash.
            self.flush()
        # The manifest on disk must not promise the sizes of `old` during the swap: a crash in the middle of it would
        # leave a segment of another size, which the next start would refuse as damaged.
        self.replaced = old
        if self.checkpoint_recovery_point is not None:
            self.checkpoint_recovery_point()
        replacement.swap_in(old, new)
        self._segments.replace(slots, new)
        self.replaced = ()
        self._unsynced.keep_only(self._segments.all[:-1], self._segments.snapshots)
        self._is_dirty = True
