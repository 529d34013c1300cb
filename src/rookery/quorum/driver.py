"""The metadata log and its quorum, which has one voter so far: this node.

The log is a partition's log like any other, `__cluster_metadata-0`, and recovers as one; the quorum adds an epoch per
start (`quorum-state`, then a leader-change batch) and what "committed" means: synced by a majority, here by this node.
What a crash left in the log and recovery kept is committed too, though no answer may have told of it. Damage to what
was committed is never cut away: see `committed`.

One append is one batch: its records survive together or not at all. The whole log is read at the start; it is never
cleaned up, since there are no snapshots of metadata so far.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeAlias

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.files import Files, replace_file
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum.committed import CommittedNote, check_committed
from rookery.quorum.messages import QuorumState, decode_state, encode_state, leader_change_record
from rookery.records.batch import iterate_headers, read_header
from rookery.records.record import Record, RecordSpan, build_batch, iterate_spans, open_batch
from rookery.storage.config import FOREVER_MS, UNLIMITED, LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.flush import flush_in_executor
from rookery.storage.log import Log
from rookery.storage.names import METADATA_PARTITION

STATE_FILE = "quorum-state"
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
        log: Log,
        *,
        clock: Clock,
        leader_epoch: LeaderEpoch,
        committed: CommittedNote,
        on_commit: CommitListener | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._log = log
        self._committed = committed
        self._on_commit = on_commit
        self._clock = clock
        self._executor = executor
        self._appending = False
        self.leader_epoch = leader_epoch

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
        note = CommittedNote(files, log_directory.path)
        try:
            state, committed = _read_state(files, directory), note.read()
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
        leader_epoch = max(state.leader_epoch, log.epochs.latest) + 1
        _write_state(files, directory, log_directory, QuorumState(node_id, leader_epoch, node_id))
        driver = cls(
            log, clock=clock, leader_epoch=leader_epoch, committed=note, on_commit=on_commit, executor=executor
        )
        driver._begin_epoch(node_id)
        return driver

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
            now_ms = self._clock.now_ms()
            records = [Record(index, now_ms, None, value) for index, value in enumerate(values)]
            if len(records) > METADATA_RECORDS_PER_SLICE:
                # To build a batch of thousands of records would hold up the event loop; it needs nothing but them.
                batch = await asyncio.get_running_loop().run_in_executor(self._executor, build_batch, records)
            else:
                batch = build_batch(records)
            base_offset = self._append(batch)
            await flush_in_executor(self._log, self._executor)
            self._note_committed()
            if self._on_commit is not None:
                await self._on_commit(base_offset, values)
        finally:
            self._appending = False

    def close(self) -> None:
        self._log.close()
        if self._log.log_directory.is_online:
            self._note_committed(synced=True)

    def _note_committed(self, *, synced: bool = False) -> None:
        try:
            (self._committed.write_synced if synced else self._committed.write)(self._log.recovery_point)
        except OSError as error:
            raise self._log.log_directory.fail(error) from error

    def _begin_epoch(self, node_id: NodeId) -> None:
        key, value = leader_change_record(node_id)
        self._write([Record(0, self._clock.now_ms(), key, value)], control=True)
        self._log.flush()
        self._note_committed(synced=True)

    def _write(self, records: Sequence[Record], *, control: bool = False) -> Offset:
        return self._append(build_batch(records, control=control))

    def _append(self, batch: bytearray) -> Offset:
        return self._log.append(batch, read_header(batch), leader_epoch=self.leader_epoch)

    def _raw_batches(self) -> Iterator[bytes]:
        offset = self._log.start_offset
        while offset < self._log.end_offset:
            for part in self._log.read(offset, _READ_SIZE_BYTES).slices:
                data = part.file.read_at(part.position, part.size)
                for position, header in iterate_headers(data):
                    yield data[position : position + header.size_bytes]
                    offset = header.last_offset + 1


def _value(payload: bytes, span: RecordSpan) -> bytes:
    return payload[span.value_start : span.value_start + max(0, span.value_size)]


def _read_state(files: Files, directory: Path) -> QuorumState:
    path = directory / STATE_FILE
    return decode_state(files.read_file(path)) if files.exists(path) else QuorumState()


def _write_state(files: Files, directory: Path, log_directory: LogDirectory, state: QuorumState) -> None:
    try:
        replace_file(files, directory / STATE_FILE, encode_state(state))
    except OSError as error:
        raise log_directory.fail(error) from error
