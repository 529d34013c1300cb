"""The files of this node's replica of the metadata log: segments, snapshots, `quorum-state` and the synced end.

The log is a partition's log like any other, `__cluster_metadata-0`, and recovers as one; but damage to what was synced
is never cut away: see `committed`. A start reads the newest snapshot (`snapshots`) and the log after it.

Snapshots. `take_snapshot` writes one of committed records, at the end of a batch; `clean` removes old ones, and the
part of the log that the oldest one left replaces. The order of its steps keeps the invariant that a start checks: if
the log does not begin at offset 0, then there is a snapshot from whose end on the log is whole. `install` puts a
snapshot of the leader in the place of the whole log; a crash in the middle of it is completed at the next start.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError
from rookery.base.files import File, Files, replace_file
from rookery.base.types import LeaderEpoch, Offset
from rookery.quorum.committed import CommittedOffsetFile, check_committed, first_offset
from rookery.quorum.election_state import STATE_FILE, ElectionState, decode_election_state, encode_election_state
from rookery.quorum.log_view import NOTHING, LogPosition, LogView
from rookery.quorum.messages import voters_in
from rookery.quorum.snapshots import Snapshot, SnapshotFiles
from rookery.quorum.voters import VoterHistory, VoterSet
from rookery.records.batch import HEADER_SIZE, BatchHeader, iterate_headers, read_header
from rookery.storage.config import FOREVER_MS, UNLIMITED, LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.flush import flush_in_executor
from rookery.storage.log import Log
from rookery.storage.names import METADATA_PARTITION

_READ_SIZE_BYTES = 1 << 20
# Without a cleanup policy, only segments below the start offset are removed.
METADATA_LOG_CONFIG: Final = LogConfig(
    cleanup_policy=frozenset(), retention_ms=UNLIMITED, retention_bytes=UNLIMITED, segment_ms=FOREVER_MS
)

Result = TypeVar("Result")


class ReplicaLog:
    """Made by `open`. Methods that are not coroutines block; StorageError takes the log directory offline."""

    def __init__(
        self,
        log: Log,
        *,
        files: Files,
        clock: Clock,
        committed: CommittedOffsetFile,
        state: ElectionState,
        start: LogPosition,
        snapshot: Snapshot | None,
        executor: Executor | None,
    ) -> None:
        self.state = state
        self._log = log
        self._files = files
        self._clock = clock
        self._committed = committed
        self._start = start
        self._view: LogView | None = None
        self._executor = executor
        self._snapshots = SnapshotFiles(files, log.directory)
        self._loaded = snapshot
        self._is_loaded_taken = False
        self._loaded_voters = snapshot.voters if snapshot is not None else None
        self.newest = snapshot.position if snapshot is not None else NOTHING

    @classmethod
    def open(
        cls,
        files: Files,
        log_directory: LogDirectory,
        *,
        clock: Clock,
        executor: Executor | None,
        config: LogConfig,
    ) -> "ReplicaLog":
        """Recover the log. DamagedLogError, with all files as they were, if something that was synced is lost."""
        directory = log_directory.path / str(METADATA_PARTITION)
        committed_file, snapshots = CommittedOffsetFile(files, log_directory.path), SnapshotFiles(files, directory)
        try:
            snapshots.finish_install()
            state, first = _read_state(files, directory), first_offset(files, directory)
            snapshot = snapshots.load_newest(first)
            covered = snapshot.position.offset if snapshot is not None else 0
            # A snapshot is taken of what is synced: it may be newer than that file, which is not synced.
            committed = max(committed_file.read(), covered)
            check_committed(
                files,
                log_directory.path,
                committed,
                covered=covered,
                # The older format, without the file, synced each batch before it wrote the next one.
                is_in_order=not committed_file.exists(),
            )
            positions = snapshots.positions()
        except OSError as error:
            raise log_directory.fail(error) from error
        log = Log.open(
            files,
            directory,
            config,
            clock=clock,
            partition=METADATA_PARTITION,
            recovery_point=committed,
            log_directory=log_directory,
        )
        start = _find_start(log, first, positions)
        # Not through `Log.open`, which removes all segments below the start without a sync between two of them.
        log.advance_start_offset(start.offset)
        replica = cls(
            log,
            files=files,
            clock=clock,
            committed=committed_file,
            state=state,
            start=start,
            snapshot=snapshot,
            executor=executor,
        )
        # Bytes that recovery kept may never have been synced, and the core counts all of them.
        replica._log.flush()
        replica.note_synced(durable=True)
        replica._blocking(snapshots.remove_parts)
        return replica

    def view(self) -> LogView:
        """Return what the core has to know of the log. Snapshots that are taken here, and cleaning, change it."""
        epochs = LeaderEpochs(self._log.epochs.entries())
        self._view = LogView(epochs, end_offset=self._log.end_offset, start=self._start, snapshot=self.newest)
        return self._view

    def voter_history(self, configured: VoterSet | None) -> VoterHistory:
        """Return the sets of voters in the log and in the newest snapshot; before those, the ones with which the node
        was formatted, or else the `configured` ones.
        """
        formatted = self._blocking(self._snapshots.read_initial_voters)
        initial = self._loaded_voters or formatted or configured
        start = max(self._log.start_offset, self.newest.offset)
        found = [
            (header.base_offset, voters)
            for header, batch in self.batches(start, self._log.end_offset)
            if header.is_control and (voters := voters_in(batch)) is not None
        ]
        history = VoterHistory(
            initial or VoterSet(),
            is_dynamic=initial is not None and initial is not configured,
            is_recorded=initial is not formatted,
        )
        for offset, voters in found:
            history.append(offset, voters)
        return history

    @property
    def start_offset(self) -> Offset:
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        return self._log.end_offset

    @property
    def synced_offset(self) -> Offset:
        return self._log.recovery_point

    @property
    def log_directory(self) -> LogDirectory:
        return self._log.log_directory

    def take_loaded(self) -> Snapshot | None:
        """Return the snapshot that `open` has read, or that was installed since then, once: it is large."""
        loaded, self._loaded = self._loaded, None
        self._is_loaded_taken = True
        return loaded

    def close(self) -> None:
        self._log.close()
        if self._log.log_directory.is_online:
            self.note_synced(durable=True)

    # Writing

    def save(self, state: ElectionState) -> None:
        """Write the election state; it survives a crash when this returns."""
        self._blocking(
            lambda: replace_file(self._files, self._log.directory / STATE_FILE, encode_election_state(state))
        )
        self.state = state

    def append(self, batch: bytearray, epoch: LeaderEpoch, base_offset: Offset) -> None:
        """Append a batch as the leader of `epoch`."""
        written = self._log.append(batch, read_header(batch), leader_epoch=epoch)
        assert written == base_offset, "the core knows where the log ends"

    def append_fetched(self, batch: bytes, header: BatchHeader) -> None:
        assert header.base_offset == self._log.end_offset, "the core knows where the log ends"
        self._log.append_fetched(memoryview(batch), (header,))

    def truncate(self, end_offset: Offset) -> None:
        """Remove the batches from `end_offset` on, which another leader has never committed."""
        # Before the bytes are cut: a file that promises them would make the next start report damage.
        self._blocking(lambda: self._committed.write_synced(min(end_offset, self._log.recovery_point)))
        self._log.truncate_to(end_offset)
        assert self._log.end_offset == end_offset, "the core knows where a batch begins"

    async def flush(self) -> None:
        """Sync the log in a worker thread, and note how far it is synced."""
        await flush_in_executor(self._log, self._executor)
        self.note_synced()

    def note_synced(self, *, durable: bool = False) -> None:
        write = self._committed.write_synced if durable else self._committed.write
        self._blocking(lambda: write(self._log.recovery_point))

    # Reading

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Return about `max_bytes` of batches from `offset` on; the first one is whole, whatever its size."""
        if offset >= self._log.end_offset:
            return b""
        found = self._log.read(offset, max_bytes)
        return b"".join(self._blocking(partial(part.file.read_at, part.position, part.size)) for part in found.slices)

    def batches(self, offset: Offset, end_offset: Offset) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches from `offset` up to `end_offset`."""
        while offset < end_offset:
            data = self.read(offset, _READ_SIZE_BYTES)
            for position, header in iterate_headers(data):
                if header.base_offset >= end_offset:
                    return
                yield header, data[position : position + header.size_bytes]
                offset = header.last_offset + 1

    # Snapshots

    def bytes_since_snapshot(self) -> int:
        """Return the size of the log after the newest snapshot."""
        size = 0
        for segment in reversed(self._log.segments):
            size += segment.size_bytes
            if segment.base_offset < self.newest.offset:
                return size - self._blocking(partial(segment.position_of, self.newest.offset))
        return size

    async def take_snapshot(self, end_offset: Offset, values: Iterable[bytes], voters: VoterSet | None) -> None:
        """Write a snapshot that replaces the log before `end_offset`.

        `values` are iterated in a worker thread: encoding the records of ten thousand partitions takes long.
        """
        assert self.newest.offset < end_offset <= self._log.end_offset, "only committed records, and new ones"
        last = self._blocking(lambda: self._header_at(end_offset - 1))
        assert last.last_offset == end_offset - 1, "a log that continues in the middle of a batch cannot be appended to"
        if self._log.recovery_point < end_offset:
            # A start refuses a log that ends before a snapshot, because a part of it was lost.
            await self.flush()
        position = LogPosition(last.leader_epoch, end_offset)
        # So that `clean` can remove everything before the snapshot: segments are removed whole.
        self._log.roll()
        write = partial(
            self._snapshots.write,
            last_timestamp_ms=last.max_timestamp_ms,
            now_ms=self._clock.now_ms(),
            voters=voters,
        )
        await self.in_worker(lambda: write(position, values))
        # A snapshot of the leader may have been installed meanwhile.
        self.newest = max(self.newest, position, key=lambda at: at.offset)
        if self._view is not None:
            self._view.snapshot = self.newest

    async def clean(self, *, retention_bytes: int, retention_ms: int) -> None:
        """Remove the oldest snapshots, and the log before the oldest that stays, while they are too large or too old.

        The newest snapshot that can be read stays. A negative limit is none.
        """
        positions = await self.in_worker(self._snapshots.positions)
        # A newer one is damaged: the log must not rely on it.
        kept = [position for position in positions if position.offset <= self.newest.offset]
        while kept and (len(kept) > 1 or self._log.start_offset < kept[0].offset):
            size = await self.in_worker(lambda: sum(map(self._snapshots.size_bytes, kept)))
            is_too_large = 0 <= retention_bytes < size + self._log.size_bytes
            if not is_too_large and not await self.in_worker(lambda: self._has_expired(kept[0], retention_ms)):
                break
            if self._log.start_offset >= kept[0].offset:
                kept.pop(0)
            # A snapshot of the leader may have been installed meanwhile: then the log begins after all of these.
            if kept and self._log.start_offset < kept[0].offset:
                await self._begin_log_at(kept[0])
        obsolete = [position for position in positions if position.offset < self._log.start_offset]
        await self.in_worker(lambda: self._snapshots.remove(obsolete))

    def _has_expired(self, position: LogPosition, retention_ms: int) -> bool:
        try:
            last_ms = self._snapshots.last_timestamp_ms(position)
        except CorruptionError:
            return True
        return 0 <= retention_ms < self._clock.now_ms() - last_ms

    async def _begin_log_at(self, position: LogPosition) -> None:
        """Remove the segments before the end of a snapshot, and let the log begin there."""
        # First: the core would promise followers records that are being removed.
        self._start = position
        if self._view is not None:
            self._view.start = position
        # The name of the segment that stays must be synced before the one before it is removed.
        await flush_in_executor(self._log, self._executor)
        segments = self._log.segments
        while self._start == position and len(segments) > 1 and segments[1].base_offset <= position.offset:
            # One at a time, with a sync after each: if a crash could take a later one and leave an earlier one, the
            # log would have a hole, which the next start refuses as damage.
            self._log.advance_start_offset(segments[1].base_offset)
            self._log.apply_retention(self._clock.now_ms())
            paths = self._log.take_detached_files()
            await self.in_worker(partial(self._remove, paths))
        if self._start == position:
            self._log.advance_start_offset(position.offset)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._files.remove(path)
        self._files.sync_directory(self._log.directory)

    def _header_at(self, offset: Offset) -> BatchHeader:
        part = self._log.read(offset, 1).slices[0]
        return read_header(part.file.read_at(part.position, HEADER_SIZE))

    async def read_snapshot(self, position: LogPosition) -> Snapshot:
        """Read and check a whole snapshot; CorruptionError if it is damaged."""
        return await self.in_worker(lambda: self._snapshots.read(position))

    async def snapshot_piece(self, position: LogPosition, at: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the size of a snapshot and its bytes from `at` on; None if there is no such snapshot."""
        return await self.in_worker(lambda: self._snapshots.read_piece(position, at, max_bytes))

    async def begin_download(self, position: LogPosition) -> File:
        """Return an empty file for a snapshot of the leader; see `install`."""
        return await self.in_worker(lambda: self._snapshots.create_part(position))

    async def write_piece(self, file: File, data: bytes) -> None:
        await self.in_worker(lambda: file.append(data))

    async def install(self, file: File, position: LogPosition, is_wanted: Callable[[], bool]) -> Snapshot | None:
        """Put a downloaded snapshot in the place of the whole log, and return it; CorruptionError if it is damaged.

        None, with the log as it was, if it is not `is_wanted` any more when it has been checked.
        """
        snapshot = await self.in_worker(lambda: self._snapshots.check_part(file, position))
        if not is_wanted():
            return None
        # From here on without an await: the core and the log must agree at every step of the core.
        self._blocking(lambda: self._snapshots.begin_install(position))
        self._log.restart_at(position.offset)
        self._blocking(lambda: self._snapshots.end_install(position))
        self.newest = self._start = position
        if not self._is_loaded_taken:
            # The node replays the log after the newest snapshot: with an older one, records would be missing.
            self._loaded = snapshot
        return snapshot

    # Helpers

    def _blocking(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except OSError as error:
            raise self._log.log_directory.fail(error) from error

    async def in_worker(self, call: Callable[[], Result]) -> Result:
        """Run `call` in a worker thread; returns or raises only when it has ended, also if this task is cancelled."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._blocking, call)
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            # The directory must not be released while a thread writes to it.
            await asyncio.gather(running, return_exceptions=True)
            raise
        return running.result()


def _find_start(log: Log, first: Offset, positions: Sequence[LogPosition]) -> LogPosition:
    """Return the end of the snapshot that the log begins after; `first` is where its first segment begins."""
    # A crash during `clean` may leave segments whose epochs are forgotten already. A leader that believed to have these
    # records could not compare them with other logs, and would tell followers to truncate what is committed.
    earliest = log.epochs.earliest
    begin = max(first, earliest.start_offset if earliest is not None else 0)
    return next((at for at in positions if at.offset >= begin), NOTHING) if begin else NOTHING


def _read_state(files: Files, directory: Path) -> ElectionState:
    path = directory / STATE_FILE
    return decode_election_state(files.read_file(path)) if files.exists(path) else ElectionState()
