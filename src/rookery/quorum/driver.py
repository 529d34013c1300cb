"""The shell of the quorum: the metadata log on its disk, and the core that decides what is committed.

The log is a partition's log like any other, `__cluster_metadata-0`, and recovers as one. The core (`core`) adds epochs,
votes and the meaning of "committed": synced by a majority of the voters. So far the voters are this node alone, so the
core elects it when the log is opened, and there is no other replica to talk to. What a crash left in the log and
recovery kept is committed too, though no response may have reported it. Damage to what was committed is never cut away:
see `committed`.

One append is one batch: its records survive together or not at all. The whole log is read at the start; it is never
cleaned up, since there are no snapshots of metadata so far.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.files import Files, replace_file
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events
from rookery.quorum.committed import CommittedOffsetFile, check_committed
from rookery.quorum.core import QuorumCore
from rookery.quorum.election_state import STATE_FILE, ElectionState, decode_election_state, encode_election_state
from rookery.quorum.events import Effect
from rookery.quorum.log_view import LogView
from rookery.quorum.messages import leader_change_record
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from rookery.records.batch import iterate_headers, read_header
from rookery.records.record import Record, RecordSpan, build_batch, iterate_spans, open_batch
from rookery.storage.config import FOREVER_MS, UNLIMITED, LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.flush import flush_in_executor
from rookery.storage.log import Log
from rookery.storage.names import METADATA_PARTITION

_READ_SIZE_BYTES = 1 << 20
_CONFIG = LogConfig(
    cleanup_policy=frozenset(), retention_ms=UNLIMITED, retention_bytes=UNLIMITED, segment_ms=FOREVER_MS
)

# Gets the offset of the first record and the records' values, in the order of the log.
CommitListener: TypeAlias = Callable[[Offset, Sequence[bytes]], Awaitable[None]]


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
    ) -> "QuorumDriver":
        """Recover the log and begin a new epoch. Blocks; StorageError or CorruptionError if that cannot be done.

        `on_commit` is awaited with each batch that is appended and committed later. What the log holds already is in
        `batches`.

        DamagedLogError, with all files as they were, if something that was committed cannot be read.
        """
        directory = log_directory.path / str(METADATA_PARTITION)
        committed_file = CommittedOffsetFile(files, log_directory.path)
        try:
            state, committed = _read_state(files, directory), committed_file.read()
            check_committed(files, log_directory.path, committed)
        except OSError as error:
            raise log_directory.fail(error) from error
        log = Log.open(
            files,
            directory,
            _CONFIG,
            clock=clock,
            partition=METADATA_PARTITION,
            recovery_point=committed,
            log_directory=log_directory,
        )
        core = _sole_voter(node_id, state, log)
        driver = cls(
            core, log, files=files, clock=clock, committed=committed_file, on_commit=on_commit, executor=executor
        )
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

    def batches(self) -> Iterator[tuple[Offset, list[bytes]]]:
        """All batches of records in the log: the offset of the first record, and the records' values."""
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
        offset = self._log.start_offset
        while offset < self._log.end_offset:
            for part in self._log.read(offset, _READ_SIZE_BYTES).slices:
                data = part.file.read_at(part.position, part.size)
                for position, header in iterate_headers(data):
                    yield data[position : position + header.size_bytes]
                    offset = header.last_offset + 1


def _sole_voter(node_id: NodeId, state: ElectionState, log: Log) -> QuorumCore:
    me = ReplicaKey(node_id)
    return QuorumCore(
        me,
        state=state,
        log=LogView(LeaderEpochs(log.epochs.entries()), end_offset=log.end_offset),
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
