"""The shell of the quorum: the metadata log on its disk, and the core that decides what is committed.

The log is a partition's log like any other, `__cluster_metadata-0`, and recovers as one. The core (`core`) adds epochs,
votes and the meaning of "committed": synced by a majority of the voters. So far the voters are this node alone, so the
core elects it when the log is opened, and there is no other replica to talk to. What a crash left in the log and
recovery kept is committed too, though no response may have reported it. Damage to what was committed is never cut away:
see `committed`.

One append is one batch: its records survive together or not at all.

A start reads the newest snapshot (`snapshots`) and the log after it. `take_snapshot` writes one, at the end of a batch
and of committed records only; `clean` removes old ones, and the part of the log that the oldest one left replaces. The
order of its steps keeps the invariant that a start checks: if the log does not begin at offset 0, then there is a
snapshot from whose end on the log is whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError
from rookery.base.files import Files, replace_file
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events
from rookery.quorum.committed import CommittedOffsetFile, check_committed, first_offset
from rookery.quorum.core import QuorumCore
from rookery.quorum.election_state import STATE_FILE, ElectionState, decode_election_state, encode_election_state
from rookery.quorum.events import Effect
from rookery.quorum.log_view import NOTHING, LogPosition, LogView
from rookery.quorum.messages import leader_change_record
from rookery.quorum.snapshots import Snapshot, SnapshotFiles
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from rookery.records.batch import HEADER_SIZE, BatchHeader, iterate_headers, read_header
from rookery.records.record import Record, RecordSpan, build_batch, iterate_spans, open_batch
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

# Gets the offset of the first record and the records' values, in the order of the log.
CommitListener: TypeAlias = Callable[[Offset, Sequence[bytes]], Awaitable[None]]
Result = TypeVar("Result")


class QuorumDriver:
    """Made by `open`, which leaves it leading, with all `batches` of its log committed."""

    def __init__(
        self,
        core: QuorumCore,
        log: Log,
        *,
        files: Files,
        clock: Clock,
        committed: CommittedOffsetFile,
        snapshot: Snapshot | None = None,
        on_commit: CommitListener | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._core = core
        self._log = log
        self._files = files
        self._committed = committed
        self._on_commit = on_commit
        self._clock = clock
        self._executor = executor
        self._appending = False
        self._snapshots = SnapshotFiles(files, log.directory)
        self._loaded = snapshot
        self._newest = snapshot.position if snapshot is not None else NOTHING

    @classmethod
    def open(
        cls,
        files: Files,
        log_directory: LogDirectory,
        *,
        node_id: NodeId,
        clock: Clock,
        on_commit: CommitListener | None = None,
        executor: Executor | None = None,
        config: LogConfig = METADATA_LOG_CONFIG,
    ) -> "QuorumDriver":
        """Recover the log and begin a new epoch. Blocks; StorageError or CorruptionError if that cannot be done.

        `on_commit` is awaited with each batch that is appended and committed later. What is there already is in
        `take_loaded` and `batches`.

        DamagedLogError, with all files as they were, if something that was committed cannot be read.
        """
        directory = log_directory.path / str(METADATA_PARTITION)
        committed_file, snapshots = CommittedOffsetFile(files, log_directory.path), SnapshotFiles(files, directory)
        try:
            state, first = _read_state(files, directory), first_offset(files, directory)
            snapshot = snapshots.load_newest(first)
            covered = snapshot.position.offset if snapshot is not None else 0
            # A snapshot is taken of what is committed: it may be newer than that file, which is not synced.
            committed = max(committed_file.read(), covered)
            check_committed(files, log_directory.path, committed, covered=covered)
            start = next((at for at in snapshots.positions() if at.offset >= first), NOTHING) if first else NOTHING
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
        # Not through `Log.open`, which removes all segments below the start without a sync between two of them.
        log.advance_start_offset(start.offset)
        core = _sole_voter(node_id, state, log, start=start, snapshot=snapshot)
        driver = cls(
            core,
            log,
            files=files,
            clock=clock,
            committed=committed_file,
            snapshot=snapshot,
            on_commit=on_commit,
            executor=executor,
        )
        driver._blocking(snapshots.remove_parts)
        driver._carry_out(core.start(driver._now_ms()))
        driver._log.flush()
        driver._note_committed(synced=True)
        driver._carry_out(driver._synced())
        return driver

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._core.epoch

    @property
    def next_offset(self) -> Offset:
        """Where the next appended record will be."""
        return self._log.end_offset

    def take_loaded(self) -> Snapshot | None:
        """Return the snapshot that `open` has read, once: it is large, and no part of the driver needs it."""
        loaded, self._loaded = self._loaded, None
        return loaded

    def batches(self) -> Iterator[tuple[Offset, list[bytes]]]:
        """Yield the batches of records after the newest snapshot: the offset of the first record, and the values."""
        for batch in self._raw_batches():
            header, payload = open_batch(batch)
            if not header.is_control:
                yield header.base_offset, [_value(payload, span) for span in iterate_spans(payload, header)]

    async def append(self, values: Sequence[bytes]) -> None:
        """Append records as one batch; return when they are committed and `on_commit` has them. One call at a time."""
        assert not self._appending, "appends must be serialised"
        self._appending = True
        try:
            batch = await self._build(values)
            effects = self._core.step(events.Propose(self._core.epoch, len(values)), self._now_ms())
            self._carry_out(effects, proposal=batch)
            await flush_in_executor(self._log, self._executor)
            self._note_committed()
            self._carry_out(self._synced())
            assert self._core.high_watermark == self._log.end_offset, "the only voter has synced it"
            if self._on_commit is not None:
                await self._on_commit(self._log.end_offset - len(values), values)
        finally:
            self._appending = False

    @property
    def is_online(self) -> bool:
        """False after a failure of the disk: nothing can be appended until a restart."""
        return self._log.log_directory.is_online

    @property
    def snapshot_end(self) -> Offset:
        """The end of the newest snapshot that can be read; 0 if there is none."""
        return self._newest.offset

    def bytes_since_snapshot(self) -> int:
        """Return the size of the log after the newest snapshot."""
        size = 0
        for segment in reversed(self._log.segments):
            size += segment.size_bytes
            if segment.base_offset < self._newest.offset:
                return size - self._blocking(partial(segment.position_of, self._newest.offset))
        return size

    async def take_snapshot(self, end_offset: Offset, values: Iterable[bytes]) -> None:
        """Write a snapshot that replaces the log before `end_offset`, the end of a committed batch.

        `values` are iterated in a worker thread: encoding the records of ten thousand partitions takes long.
        """
        # A snapshot of what is not committed would keep it, although a crash may take it from the log.
        assert self._newest.offset < end_offset <= self._core.high_watermark, "only committed records, and new ones"
        last = self._blocking(lambda: self._header_at(end_offset - 1))
        assert last.last_offset == end_offset - 1, "a log that continues in the middle of a batch cannot be appended to"
        position = LogPosition(last.leader_epoch, end_offset)
        # So that `clean` can remove everything before the snapshot: segments are removed whole.
        self._log.roll()
        write = partial(self._snapshots.write, last_timestamp_ms=last.max_timestamp_ms, now_ms=self._clock.now_ms())
        await self._in_worker(lambda: write(position, values))
        self._newest = self._core.log.snapshot = position

    async def clean(self, *, retention_bytes: int, retention_ms: int) -> None:
        """Remove the oldest snapshots, and the log before the oldest that stays, while they are too large or too old.

        The newest snapshot that can be read stays. A negative limit is none.
        """
        positions = await self._in_worker(self._snapshots.positions)
        # A newer one is damaged: the log must not rely on it.
        kept = [position for position in positions if position.offset <= self._newest.offset]
        while kept and (len(kept) > 1 or self._log.start_offset < kept[0].offset):
            size = await self._in_worker(lambda: sum(map(self._snapshots.size_bytes, kept)))
            is_too_large = 0 <= retention_bytes < size + self._log.size_bytes
            if not is_too_large and not await self._in_worker(lambda: self._has_expired(kept[0], retention_ms)):
                break
            if self._log.start_offset >= kept[0].offset:
                kept.pop(0)
            await self._begin_log_at(kept[0])
        obsolete = [position for position in positions if position.offset < self._log.start_offset]
        await self._in_worker(lambda: self._snapshots.remove(obsolete))

    def _has_expired(self, position: LogPosition, retention_ms: int) -> bool:
        try:
            last_ms = self._snapshots.last_timestamp_ms(position)
        except CorruptionError:
            return True
        return 0 <= retention_ms < self._clock.now_ms() - last_ms

    async def _begin_log_at(self, position: LogPosition) -> None:
        """Remove the segments before the end of a snapshot, and let the log begin there."""
        # The name of the segment that stays must be synced before the one before it is removed.
        await flush_in_executor(self._log, self._executor)
        segments = self._log.segments
        while len(segments) > 1 and segments[1].base_offset <= position.offset:
            # One at a time, with a sync after each: if a crash could take a later one and leave an earlier one, the
            # log would have a hole, which the next start refuses as damage.
            self._log.advance_start_offset(segments[1].base_offset)
            self._log.apply_retention(self._clock.now_ms())
            paths = self._log.take_detached_files()
            await self._in_worker(partial(self._remove, paths))
        self._log.advance_start_offset(position.offset)
        self._core.log.start = position

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._files.remove(path)
        self._files.sync_directory(self._log.directory)

    def _header_at(self, offset: Offset) -> BatchHeader:
        part = self._log.read(offset, 1).slices[0]
        return read_header(part.file.read_at(part.position, HEADER_SIZE))

    def _blocking(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except OSError as error:
            raise self._log.log_directory.fail(error) from error

    async def _in_worker(self, call: Callable[[], Result]) -> Result:
        """Run `call` in a worker thread; returns or raises only when it has ended, also if this task is cancelled."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._blocking, call)
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            # The directory must not be released while a thread writes to it.
            await asyncio.gather(running, return_exceptions=True)
            raise
        return running.result()

    def close(self) -> None:
        self._log.close()
        if self._log.log_directory.is_online:
            self._note_committed(synced=True)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    async def _build(self, values: Sequence[bytes]) -> bytearray:
        now_ms = self._clock.now_ms()
        records = [Record(index, now_ms, None, value) for index, value in enumerate(values)]
        if len(records) <= METADATA_RECORDS_PER_SLICE:
            return build_batch(records)
        # To build a batch of thousands of records would hold up the event loop; it needs nothing but them.
        return await asyncio.get_running_loop().run_in_executor(self._executor, build_batch, records)

    def _synced(self) -> list[Effect]:
        return self._core.step(events.Synced(self._log.recovery_point), self._now_ms())

    def _carry_out(self, effects: Iterable[Effect], *, proposal: bytearray | None = None) -> None:
        for effect, following in pairwise([*effects, None]):
            match effect:
                case events.Save(state):
                    # Nothing depends on a state that the next effect replaces.
                    if not isinstance(following, events.Save):
                        self._write_state(state)
                case events.AppendLeaderChange(epoch, base_offset, granting):
                    self._append(self._leader_change(granting), epoch, base_offset)
                case events.AppendProposal(epoch, base_offset):
                    assert proposal is not None
                    self._append(proposal, epoch, base_offset)
                case events.Commit() | events.Lead():
                    pass
                case _:
                    raise AssertionError(f"a quorum of one has no use for {effect}")

    def _leader_change(self, granting: Sequence[ReplicaKey]) -> bytearray:
        key, value = leader_change_record(self._core.me.node_id, voters=self._core.voters.keys, granting=granting)
        return build_batch([Record(0, self._clock.now_ms(), key, value)], control=True)

    def _append(self, batch: bytearray, epoch: LeaderEpoch, base_offset: Offset) -> None:
        written = self._log.append(batch, read_header(batch), leader_epoch=epoch)
        assert written == base_offset, "the core knows where the log ends"

    def _note_committed(self, *, synced: bool = False) -> None:
        try:
            (self._committed.write_synced if synced else self._committed.write)(self._log.recovery_point)
        except OSError as error:
            raise self._log.log_directory.fail(error) from error

    def _write_state(self, state: ElectionState) -> None:
        try:
            replace_file(self._files, self._log.directory / STATE_FILE, encode_election_state(state))
        except OSError as error:
            raise self._log.log_directory.fail(error) from error

    def _raw_batches(self) -> Iterator[bytes]:
        offset = max(self._log.start_offset, self._newest.offset)
        while offset < self._log.end_offset:
            for part in self._log.read(offset, _READ_SIZE_BYTES).slices:
                data = part.file.read_at(part.position, part.size)
                for position, header in iterate_headers(data):
                    yield data[position : position + header.size_bytes]
                    offset = header.last_offset + 1


def _sole_voter(
    node_id: NodeId, state: ElectionState, log: Log, *, start: LogPosition, snapshot: Snapshot | None
) -> QuorumCore:
    me = ReplicaKey(node_id)
    newest = snapshot.position if snapshot is not None else NOTHING
    epochs = LeaderEpochs(log.epochs.entries())
    return QuorumCore(
        me,
        state=state,
        log=LogView(epochs, end_offset=log.end_offset, start=start, snapshot=newest),
        voters=VoterHistory(VoterSet([Voter(me, {})])),
        settings=QuorumSettings(),
        # It never waits for an election.
        jitter=lambda: 0.0,
    )


def _value(payload: bytes, span: RecordSpan) -> bytes:
    return payload[span.value_start : span.value_start + max(0, span.value_size)]


def _read_state(files: Files, directory: Path) -> ElectionState:
    path = directory / STATE_FILE
    return decode_election_state(files.read_file(path)) if files.exists(path) else ElectionState()
