"""Snapshots of the metadata log: files that replace its records up to an offset, in Kafka's format (KIP-630).

A snapshot's file is in the directory of the log. Its name holds the offset after the last record that it replaces and
the epoch of that record: `00000000000000000042-0000000003.checkpoint`. It holds record batches with their own offsets
from 0 on: a control batch with a header, batches of records, a control batch with a footer. A file without a footer is
incomplete. A file whose name ends in `.part` was being written, or downloaded, when the process ended. One that ends in
`.install` was downloaded from the leader and is whole: it is about to replace all of this node's log, and a start
completes that.

A snapshot is synced before it gets its name. What it replaces was committed before it was taken: so the end of a
snapshot is also proof of how far the log was committed (`committed`).
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from rookery.base.errors import CorruptionError, InvalidBatchError
from rookery.base.files import File, Files
from rookery.base.types import LeaderEpoch, Offset, TimestampMs
from rookery.protocol import structures
from rookery.quorum.log_view import LogPosition
from rookery.quorum.messages import (
    DYNAMIC_VOTERS,
    SnapshotFooter,
    SnapshotHeader,
    kraft_version_record,
    snapshot_footer_record,
    snapshot_header_record,
    voters_in,
    voters_record,
)
from rookery.quorum.voters import VoterSet
from rookery.records.batch import BatchHeader, check_batch, iterate_headers
from rookery.records.control import ControlType, control_type
from rookery.records.record import Record, build_batch, decode_records
from rookery.storage.checkpoints import LEADER_EPOCH_FILE
from rookery.storage.damage import Damage, DamagedLogError
from rookery.storage.names import LOG_SUFFIX, file_name, offset_of, suffix_of

logger = structlog.get_logger(__name__)

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
INSTALL_SUFFIX: Final = ".checkpoint.install"

_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
# A batch ends with the record that reaches this size.
_BATCH_BYTES = 1 << 20
_SNAPSHOT_SUFFIXES = (CHECKPOINT_SUFFIX, PART_SUFFIX, INSTALL_SUFFIX)
# The header batch is smaller.
_HEADER_READ_SIZE = 1024


class Snapshot(NamedTuple):
    """What replaces the log before `position.offset`: the values of metadata records.

    `voters` are those of the quorum at that offset, None if the configuration has them.
    """

    position: LogPosition
    values: Sequence[bytes]
    voters: VoterSet | None = None


class SnapshotFiles:
    """The snapshots in one directory. All methods may block, and none of them uses other state than the files."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory

    def positions(self) -> list[LogPosition]:
        """Return the ends of all snapshots, oldest first; whether they can be read is not checked."""
        return sorted((at for at in map(_position_of, self._names()) if at is not None), key=lambda at: at.offset)

    def path(self, position: LogPosition) -> Path:
        return self._directory / snapshot_name(position)

    def write(
        self,
        position: LogPosition,
        values: Iterable[bytes],
        *,
        last_timestamp_ms: TimestampMs,
        now_ms: TimestampMs,
        voters: VoterSet | None = None,
    ) -> None:
        """Write a snapshot of the log before `position`; it exists, and survives a crash, when this returns."""
        file = self.create_part(position)
        for batch in encode_snapshot(
            values, position.epoch, last_timestamp_ms=last_timestamp_ms, now_ms=now_ms, voters=voters
        ):
            file.append(batch)
        # Without this sync, the name could survive a crash and its bytes not.
        file.sync()
        self._rename(position, PART_SUFFIX, CHECKPOINT_SUFFIX)

    def read(self, position: LogPosition) -> Snapshot:
        """Read and check a whole snapshot; CorruptionError if it is damaged or incomplete."""
        return _load(position, self._files.read_file(self.path(position)))

    def read_piece(self, position: LogPosition, at: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the size of a snapshot and its bytes from `at` on; None if there is no such snapshot."""
        if not self._files.exists(self.path(position)):
            return None
        file = self._files.open(self.path(position))
        size = file.size()
        return size, file.read_at(at, min(max_bytes, size - at)) if 0 <= at < size else b""

    def read_initial_voters(self) -> VoterSet | None:
        """Return the voters with which this node was formatted; None if the configuration has them."""
        path = self.path(LogPosition(0, 0))
        return _load(LogPosition(0, 0), self._files.read_file(path)).voters if self._files.exists(path) else None

    # A snapshot of the leader

    def create_part(self, position: LogPosition) -> File:
        """Return an empty file for a snapshot that is not whole yet."""
        part = self._directory / snapshot_name(position, PART_SUFFIX)
        # Bytes of an earlier attempt would come before those of this one.
        self._files.remove(part)
        return self._files.open(part, create=True)

    def check_part(self, file: File, position: LogPosition) -> Snapshot:
        """Read and sync a downloaded snapshot; CorruptionError if it is damaged or incomplete."""
        snapshot = _load(position, file.read_at(0, file.size()))
        file.sync()
        return snapshot

    def begin_install(self, position: LogPosition) -> None:
        """Decide that a downloaded snapshot replaces the log; a crash from here on does not undo that."""
        self._rename(position, PART_SUFFIX, INSTALL_SUFFIX)

    def end_install(self, position: LogPosition) -> None:
        """Give the snapshot its name, after the log begins where it ends."""
        self._rename(position, INSTALL_SUFFIX, CHECKPOINT_SUFFIX)

    def finish_install(self) -> None:
        """Complete what a crash interrupted between `begin_install` and `end_install`."""
        for name in self._names():
            position = _position_of(name, INSTALL_SUFFIX)
            if position is not None:
                self._empty_log(position.offset)
                self.end_install(position)

    def _empty_log(self, offset: Offset) -> None:
        """Remove all segments, and begin an empty one at `offset`."""
        for name in self._names():
            if offset_of(name) is not None and suffix_of(name) not in _SNAPSHOT_SUFFIXES:
                self._files.remove(self._directory / name)
        self._files.remove(self._directory / LEADER_EPOCH_FILE)
        # The old segments must be gone for good before there is a new one: with both, the log would have a hole.
        self._files.sync_directory(self._directory)
        self._files.open(self._directory / file_name(offset, LOG_SUFFIX), create=True).sync()

    def _rename(self, position: LogPosition, before: str, after: str) -> None:
        source, target = (self._directory / snapshot_name(position, suffix) for suffix in (before, after))
        self._files.rename(source, target)
        self._files.sync_directory(self._directory)

    # The files

    def last_timestamp_ms(self, position: LogPosition) -> TimestampMs:
        """Return the time of the last log record that a snapshot replaces; CorruptionError if it cannot be read."""
        start = self._files.open(self.path(position)).read_at(0, _HEADER_READ_SIZE)
        for at, header in iterate_headers(start):
            return _read_header(start[at : at + header.size_bytes])
        raise CorruptionError("the snapshot has no header")

    def size_bytes(self, position: LogPosition) -> int:
        return self._files.file_size(self.path(position))

    def remove(self, positions: Iterable[LogPosition]) -> None:
        """Remove snapshots, in this order."""
        for position in positions:
            self._files.remove(self.path(position))
            self._files.sync_directory(self._directory)

    def remove_parts(self) -> None:
        """Remove what an interrupted `write` has left."""
        for name in self._names():
            if name.endswith(PART_SUFFIX):
                self._files.remove(self._directory / name)

    def load_newest(self, log_start: Offset) -> Snapshot | None:
        """Return the newest snapshot that can be read, None if there is none and the log has all its records.

        `log_start` is the first offset that the log has: only a snapshot at or after it can be continued by the log.
        DamagedLogError if the log has no records from its beginning and no snapshot replaces them.
        """
        reason, damaged = "there is no snapshot", self._directory
        for position in reversed(self.positions()):
            if position.offset < log_start:
                break
            try:
                return self.read(position)
            except CorruptionError as error:
                logger.error(
                    "a metadata snapshot is damaged and not used",
                    path=str(self.path(position)),
                    reason=str(error),
                    instead="an older snapshot, or the log from its beginning",
                )
                reason, damaged = str(error), self.path(position)
        if log_start > 0:
            reason = f"{reason}, and the log before offset {log_start} was removed because a snapshot replaces it"
            raise DamagedLogError(Damage(damaged, 0, 0, log_start, reason))
        return None

    def _names(self) -> list[str]:
        try:
            return self._files.list_directory(self._directory)
        except FileNotFoundError:
            return []


def snapshot_name(position: LogPosition, suffix: str = CHECKPOINT_SUFFIX) -> str:
    return f"{position.offset:020d}-{position.epoch:010d}{suffix}"


def _load(position: LogPosition, data: bytes) -> Snapshot:
    return Snapshot(position, decode_snapshot(data), read_snapshot_voters(data))


def _position_of(name: str, suffix: str = CHECKPOINT_SUFFIX) -> LogPosition | None:
    stem = name.removesuffix(suffix)
    offset, dash, epoch = stem.partition("-")
    is_snapshot = (
        stem != name
        and dash
        and (len(offset), len(epoch)) == (_OFFSET_DIGITS, _EPOCH_DIGITS)
        and (offset + epoch).isascii()
        and (offset + epoch).isdigit()
    )
    # Kafka's snapshot at offset 0 is what a node was formatted with: it replaces nothing.
    return LogPosition(int(epoch), int(offset)) if is_snapshot and int(offset) > 0 else None


def encode_snapshot(
    values: Iterable[bytes],
    epoch: LeaderEpoch,
    *,
    last_timestamp_ms: TimestampMs,
    now_ms: TimestampMs,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """Yield the batches of a snapshot. `voters` are those of the log; None if the configuration has them."""
    control = [snapshot_header_record(last_timestamp_ms)]
    if voters is not None:
        control += [kraft_version_record(DYNAMIC_VOTERS), voters_record(voters)]
    header = [Record(offset, now_ms, *record) for offset, record in enumerate(control)]
    yield build_batch(header, leader_epoch=epoch, control=True)
    offset, size, records = len(header), 0, list[Record]()
    for value in values:
        records.append(Record(offset, now_ms, None, value))
        offset, size = offset + 1, size + len(value)
        if size >= _BATCH_BYTES:
            yield build_batch(records, base_offset=records[0].offset, leader_epoch=epoch)
            size, records = 0, []
    if records:
        yield build_batch(records, base_offset=records[0].offset, leader_epoch=epoch)
    footer = Record(offset, now_ms, *snapshot_footer_record())
    yield build_batch([footer], base_offset=offset, leader_epoch=epoch, control=True)


def decode_snapshot(data: bytes) -> list[bytes]:
    """Return the values of the records in a snapshot; CorruptionError unless it is whole."""
    values: list[bytes] = []
    position, expected, kinds = 0, 0, list[int | None]()
    for position, header in iterate_headers(data):
        batch = data[position : position + header.size_bytes]
        _check(batch, header, expected)
        expected = header.last_offset + 1
        if header.is_control:
            kinds.append(control_type(batch))
            _check_version(batch, kinds[-1])
        else:
            kinds.append(None)
            values.extend(record.value or b"" for record in decode_records(batch))
        position += header.size_bytes
    if kinds[:1] != [ControlType.SNAPSHOT_HEADER]:
        raise CorruptionError("the snapshot has no header")
    if position != len(data):
        raise CorruptionError(f"byte {position} of the snapshot does not begin a batch")
    if kinds[-1] != ControlType.SNAPSHOT_FOOTER or ControlType.SNAPSHOT_FOOTER in kinds[:-1]:
        raise CorruptionError("the snapshot does not end with a footer")
    return values


def read_snapshot_voters(data: bytes) -> VoterSet | None:
    """Return the voters in the first batch of a checked snapshot, None if it has none."""
    _, header = next(iterate_headers(data))
    return voters_in(data[: header.size_bytes])


def _check(batch: bytes, header: BatchHeader, expected: Offset) -> None:
    try:
        check_batch(batch)
    except InvalidBatchError as error:
        raise CorruptionError(f"offset {expected} of the snapshot: {error}") from error
    if header.base_offset != expected:
        raise CorruptionError(f"offset {header.base_offset} of the snapshot comes where {expected} should")


def _check_version(batch: bytes, kind: int | None) -> None:
    if kind == ControlType.SNAPSHOT_HEADER:
        _read_header(batch)
    elif kind == ControlType.SNAPSHOT_FOOTER:
        _require_known(structures.decode(SnapshotFooter, decode_records(batch)[0].value or b"").version)


def _read_header(batch: bytes) -> TimestampMs:
    try:
        check_batch(batch)
        if control_type(batch) != ControlType.SNAPSHOT_HEADER:
            raise CorruptionError("the snapshot has no header")
        header = structures.decode(SnapshotHeader, decode_records(batch)[0].value or b"")
    except InvalidBatchError as error:
        raise CorruptionError(f"the header of the snapshot: {error}") from error
    _require_known(header.version)
    return header.last_contained_log_timestamp


def _require_known(version: int) -> None:
    if version != 0:
        raise CorruptionError(f"version {version} of the snapshot's format is not known")
