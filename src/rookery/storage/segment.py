"""One segment of a log: a file of record batches, its two indexes, and the index of its aborted transactions.

A segment is *active* while it is the last of its log and is appended to, and *sealed* afterwards. Its file is opened
and its indexes are loaded when they are first needed, so that a node with thousands of partitions starts without
touching them. An offset or time index file that is missing or fails its checks is rebuilt from the log. Rebuilding the
aborted index requires the transactions that were open before the segment, so the log does it; most segments have none.

Invariants: batches lie back to back from position 0; offsets increase; `size_bytes` counts whole batches only.
Appends happen on the event loop; sealed segments may also be read by a worker thread (the cleaner).
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import File, Files
from rookery.base.types import NO_TIMESTAMP, Buffer, Offset, TimestampMs
from rookery.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2, BatchHeader, read_header
from rookery.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from rookery.storage.names import (
    ABORTED_INDEX_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    file_name,
)
from rookery.storage.transactions import AbortedIndex

logger = structlog.get_logger(__name__)

# Bytes per read in a search for one batch: about the distance between two index entries.
_WALK_SIZE = 4096
# Bytes per read in a pass over all headers of a segment, and in a pass over all its bytes.
_HEADER_SCAN_SIZE = 1 << 16
_SCAN_SIZE = 1 << 20

# A consumer that keeps up reads one of the last batches: their positions are kept in a list of bounded length.
_TAIL_LENGTH_MAX = 256
_TAIL_LENGTH_KEPT = 128

UNKNOWN_SIZE = -1

# What the indexes record of a batch: position, size, last offset and largest timestamp. A plain tuple, since recovery
# creates millions of them.
IndexedBatch: TypeAlias = tuple[int, int, Offset, TimestampMs]

# Base offset, length, magic and last offset delta of a batch header.
_SEARCH_FIELDS = struct.Struct(">qi4xb6xi")


class Segment:
    """Created by `create` for a new file; the constructor is for an existing one and touches no file."""

    __slots__ = (
        "_aborted",
        "_bytes_since_entry",
        "_file",
        "_first_timestamp_ms",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_offset_index",
        "_size",
        "_tail_offsets",
        "_tail_positions",
        "_time_index",
        "base_offset",
        "created_ms",
        "directory",
        "files",
        "has_aborted_file",
        "index_interval_bytes",
        "stage",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: Offset,
        *,
        index_interval_bytes: int,
        created_ms: TimestampMs,
        stage: str = "",
        size_bytes: int = UNKNOWN_SIZE,
        has_aborted_file: bool = False,
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        # ".cleaned" or ".swap" during a replacement, ".deleted" after one or after retention.
        self.stage = stage
        self.has_aborted_file = has_aborted_file
        self._size = size_bytes
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: AbortedIndex | None = None
        self._first_timestamp_ms: TimestampMs | None = None
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._bytes_since_entry = 0
        # Last offset and position of the latest batches; the first entry only marks from which offset on the list is
        # complete.
        self._tail_offsets: list[Offset] = []
        self._tail_positions: list[int] = []

    @classmethod
    def create(
        cls,
        files: Files,
        directory: Path,
        base_offset: Offset,
        *,
        index_interval_bytes: int,
        created_ms: TimestampMs,
        stage: str = "",
    ) -> "Segment":
        """Create an empty segment; existing files with its names are overwritten."""
        segment = cls(
            files,
            directory,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            created_ms=created_ms,
            stage=stage,
            size_bytes=0,
        )
        segment._file = files.open(segment.path(), create=True)
        if segment._file.size():
            segment._file.truncate(0)
        segment.reset_indexes()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path()}, size_bytes={self._size})"

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        return self.directory / (file_name(self.base_offset, suffix) + self.stage)

    def paths(self) -> list[Path]:
        """Return the log file and its index files; the offset and time index exist once they were written."""
        suffixes = SEGMENT_SUFFIXES if self.has_aborted_file else SEGMENT_SUFFIXES[:-1]
        return [self.path(suffix) for suffix in suffixes]

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.files.open(self.path())
        return self._file

    def open_file(self) -> File:
        """Return the open file, or open it for this caller only."""
        return self._file or self.files.open(self.path())

    def release(self) -> None:
        """Release the file until it is needed again: a node with thousands of idle partitions has few files open."""
        self._file = None

    @property
    def size_bytes(self) -> int:
        if self._size < 0:
            self._size = self.files.file_size(self.path())
        return self._size

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def has_aborted(self) -> bool:
        """Whether the aborted index may have entries."""
        return self.has_aborted_file if self._aborted is None else len(self._aborted) > 0

    @property
    def aborted(self) -> AbortedIndex:
        """The aborted index; raises CorruptionError if its file is damaged (`Segments.aborted_index` rebuilds it)."""
        if self._aborted is None:
            self._aborted = self._load_aborted()
        return self._aborted

    @aborted.setter
    def aborted(self, index: AbortedIndex) -> None:
        self._aborted = index

    def _load_aborted(self) -> AbortedIndex:
        if not self.has_aborted_file:
            return AbortedIndex()
        data = self.files.read_file(self.path(ABORTED_INDEX_SUFFIX))
        if not data:
            raise CorruptionError("the aborted index file is empty")
        return AbortedIndex.decode(self.base_offset, data)

    @property
    def max_timestamp_ms(self) -> TimestampMs:
        """The largest timestamp of all batches, -1 if there is none."""
        if self._time_index is None:
            self._load_indexes()
        return self._max_timestamp_ms

    @property
    def max_timestamp_offset(self) -> Offset:
        """The last offset of the first batch that has the largest timestamp."""
        if self._time_index is None:
            self._load_indexes()
        return self._max_timestamp_offset

    @property
    def first_timestamp_ms(self) -> TimestampMs:
        """The largest timestamp of the first batch, -1 if there is none: rolling by time counts from it."""
        if self._first_timestamp_ms is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self._first_timestamp_ms = next(self.headers())[1].max_timestamp_ms
        return self._first_timestamp_ms

    # Appending

    def append(self, data: Buffer, last_offset: Offset, max_timestamp_ms: TimestampMs) -> None:
        """Write one stamped batch at the end.

        After an OSError the segment is as it was before, unless undoing the write failed too.
        """
        offset_index = self._offset_index if self._offset_index is not None else self.offset_index
        position = self._size if self._size >= 0 else self.size_bytes
        file = self._file or self.file
        try:
            file.append(data)
        except OSError:
            self._undo_write(position)
            raise
        size = len(data)
        self._size = position + size
        self._note_batch(offset_index, position, size, last_offset, max_timestamp_ms)
        tail = self._tail_offsets
        tail.append(last_offset)
        self._tail_positions.append(position)
        if len(tail) > _TAIL_LENGTH_MAX:
            del tail[:-_TAIL_LENGTH_KEPT]
            del self._tail_positions[:-_TAIL_LENGTH_KEPT]

    def append_run(self, data: Buffer, batches: Sequence[tuple[Buffer, Offset, TimestampMs]]) -> None:
        """Write (batch, last offset, largest timestamp) for each, which fill `data`, in one call.

        After an OSError the segment is as it was before, unless undoing the write failed too.
        """
        position = self.size_bytes
        try:
            self.file.append(data)
        except OSError:
            self._undo_write(position)
            raise
        self._note_batches(position, batches)

    def append_batches(self, batches: Sequence[tuple[Buffer, Offset, TimestampMs]]) -> None:
        """Write (batch, last offset, largest timestamp) for each in one call; for segments that replace others."""
        position = self.size_bytes
        self.file.append_parts([data for data, _, _ in batches])
        self._note_batches(position, batches)

    def _note_batches(self, position: int, batches: Sequence[tuple[Buffer, Offset, TimestampMs]]) -> None:
        offset_index = self.offset_index
        for data, last_offset, max_timestamp_ms in batches:
            self._note_batch(offset_index, position, len(data), last_offset, max_timestamp_ms)
            self._tail_offsets, self._tail_positions = [last_offset], [position]
            position += len(data)
        self._size = position

    def _note_batch(
        self, offset_index: OffsetIndex, position: int, size: int, last_offset: Offset, max_timestamp_ms: TimestampMs
    ) -> None:
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if self._bytes_since_entry > self.index_interval_bytes:
            offset_index.append(last_offset, position)
            self.time_index.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def _undo_write(self, position: int) -> None:
        """Remove what a failed write may have left, so that the file ends with a whole batch."""
        try:
            self.file.truncate(position)
        except OSError as error:
            logger.warning("cannot undo a failed write; recovery will", path=str(self.path()), error=str(error))

    def fits(self, last_offset: Offset) -> bool:
        """Return whether the indexes can hold this offset, which they store in 31 bits relative to the base."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # Reading

    def position_of(self, offset: Offset) -> int:
        """Return the position of the first batch that ends at or after `offset`, else the size of the segment."""
        tail = self._tail_offsets
        if tail and offset > tail[0]:
            slot = bisect_left(tail, offset)
            return self._tail_positions[slot] if slot < len(tail) else self.size_bytes
        return self._walk_to(offset, self.offset_index.lookup(offset))

    def _walk_to(self, offset: Offset, position: int) -> int:
        """Search like `headers`, but decode only the fields needed: every fetch of older records comes here."""
        end, file = self.size_bytes, self.file
        chunk, chunk_start = b"", position
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = file.read_at(position, min(_WALK_SIZE, end - position)), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise CorruptionError(f"{self.path()} ends inside the batch header at {position}")
            base_offset, length, magic, last_offset_delta = _SEARCH_FIELDS.unpack_from(chunk, at)
            if base_offset + last_offset_delta >= offset:
                return position
            if magic != MAGIC_V2 or length < HEADER_SIZE - LENGTH_PREFIX_SIZE:
                raise CorruptionError(f"{self.path()} has no batch at {position}")
            position += length + LENGTH_PREFIX_SIZE
        return end

    def headers(
        self, position: int = 0, *, end: int | None = None, chunk_size: int = _WALK_SIZE
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from `position`, where a batch must begin, to `end`.

        Raises CorruptionError where there is no batch.
        """
        end = self.size_bytes if end is None else end
        chunk, chunk_start = b"", position
        while position < end:
            if position + HEADER_SIZE > chunk_start + len(chunk):
                chunk, chunk_start = self.file.read_at(position, min(chunk_size, end - position)), position
            header = self._header_at(position, chunk, chunk_start=chunk_start, end=end)
            yield position, header
            position += header.size_bytes

    def batches(self, position: int = 0, *, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, bytes) of each batch, read in large chunks: for passes over a whole segment."""
        end = self.size_bytes if end is None else end
        chunk, chunk_start = b"", position
        while position < end:
            if position + HEADER_SIZE > chunk_start + len(chunk):
                chunk, chunk_start = self.file.read_at(position, min(_SCAN_SIZE, end - position)), position
            header = self._header_at(position, chunk, chunk_start=chunk_start, end=end)
            size = header.size_bytes
            if position + size > chunk_start + len(chunk):
                chunk, chunk_start = self.file.read_at(position, min(max(_SCAN_SIZE, size), end - position)), position
            start = position - chunk_start
            yield position, header, memoryview(chunk)[start : start + size]
            position += size

    def _header_at(self, position: int, chunk: bytes, *, chunk_start: int, end: int) -> BatchHeader:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            raise CorruptionError(f"{self.path()} ends inside the batch header at {position}")
        header = read_header(chunk, position - chunk_start)
        size = header.size_bytes
        if header.magic != MAGIC_V2 or size < HEADER_SIZE or position + size > end:
            raise CorruptionError(f"{self.path()} has no batch at {position}")
        if not 0 <= header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
            raise CorruptionError(f"{self.path()} has offset {header.last_offset} at {position}")
        return header

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return self.file.read_at(position, header.size_bytes)

    def next_offset(self) -> Offset:
        """Return the offset after the last batch, found from the last index entry."""
        offset = self.base_offset
        for _, header in self.headers(self.offset_index.last_position):
            offset = header.last_offset + 1
        return offset

    def end_offset_before(self, position: int) -> Offset:
        """Return the offset after the last batch before `position`, where a batch begins or the file ends."""
        if position >= self.size_bytes:
            return self.next_offset()
        _, following = next(self.headers(position))
        offset = self.base_offset
        for found, header in self.headers(self.offset_index.lookup(following.base_offset - 1)):
            if found >= position:
                break
            offset = header.last_offset + 1
        return offset

    # Indexes

    def reset_indexes(self) -> None:
        """Replace the indexes by empty ones, as for an empty file."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._first_timestamp_ms = None
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_entry = 0
        self._tail_offsets = [self.base_offset - 1]
        self._tail_positions = [0]

    def index_batches(self, batches: Iterable[IndexedBatch]) -> None:
        """Enter existing batches into empty indexes, in file order after `reset_indexes`.

        If `batches` raises, the batches before the error are entered.
        """
        offset_index, time_index, interval = self.offset_index, self.time_index, self.index_interval_bytes
        largest_ms, largest_offset, since_entry = NO_TIMESTAMP, self.base_offset, 0
        position, last_offset = 0, self.base_offset - 1
        try:
            for position, size, last_offset, timestamp_ms in batches:
                if position == 0:
                    self._first_timestamp_ms = timestamp_ms
                if timestamp_ms > largest_ms:
                    largest_ms, largest_offset = timestamp_ms, last_offset
                if since_entry > interval:
                    offset_index.append(last_offset, position)
                    time_index.append_if_later(largest_ms, largest_offset)
                    since_entry = 0
                since_entry += size
        finally:
            self._max_timestamp_ms, self._max_timestamp_offset = largest_ms, largest_offset
            self._bytes_since_entry = since_entry
            self._tail_offsets, self._tail_positions = [last_offset], [position]

    def rebuild_indexes(self) -> None:
        self.reset_indexes()
        self.index_batches(
            (position, header.size_bytes, header.last_offset, header.max_timestamp_ms)
            for position, header in self.headers(chunk_size=_HEADER_SCAN_SIZE)
        )

    def _load_indexes(self) -> None:
        if not self.size_bytes:
            # A segment that was always empty is closed without index files.
            self.reset_indexes()
            return
        try:
            offset_index = OffsetIndex.decode(self.base_offset, self.files.read_file(self.path(OFFSET_INDEX_SUFFIX)))
            time_index = TimeIndex.decode(self.base_offset, self.files.read_file(self.path(TIME_INDEX_SUFFIX)))
            self._check_indexes(offset_index, time_index)
        except (CorruptionError, FileNotFoundError) as error:
            logger.warning("rebuilding an index from its log", path=str(self.path()), reason=str(error))
            self.rebuild_indexes()
            self.write_indexes()
            return
        self._max_timestamp_ms, self._max_timestamp_offset = time_index.last
        self._bytes_since_entry = self.size_bytes - offset_index.last_position
        # `_time_index` is assigned last: a thread that finds it set must also find the values above.
        self._offset_index, self._time_index = offset_index, time_index

    def _check_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        # An index that does not belong to this log file would send a search past its end: existing records would not be
        # found.
        if len(offset_index) and offset_index.last_position >= self.size_bytes:
            raise CorruptionError("the offset index points beyond the end of the log")
        if len(time_index) == 0 and self.size_bytes:
            # An empty time index would mean that no record has a timestamp: retention by time would never delete the
            # segment. Batches without timestamps are rare enough to read the log and find out.
            raise CorruptionError("the time index is empty, the log is not")

    def finish_time_index(self) -> None:
        """Add the segment's largest timestamp to the time index as its last entry, before the file is written."""
        self.time_index.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)

    def write_indexes(self) -> None:
        """Write the index files; the next flush syncs them."""
        self.finish_time_index()
        self.files.write_file(self.path(OFFSET_INDEX_SUFFIX), self.offset_index.encode())
        self.files.write_file(self.path(TIME_INDEX_SUFFIX), self.time_index.encode())
        if self._aborted is not None:
            self._write_aborted(self._aborted)

    def _write_aborted(self, index: AbortedIndex) -> None:
        path = self.path(ABORTED_INDEX_SUFFIX)
        if len(index):
            self.files.write_file(path, index.encode())
        elif self.has_aborted_file:
            self.files.remove(path)
        self.has_aborted_file = len(index) > 0

    # Changing

    def truncate_to_position(self, position: int) -> None:
        """Cut the file at a batch boundary, sync it, and rebuild the indexes."""
        self.cut(position)
        self.rebuild_indexes()

    def cut(self, position: int) -> None:
        """Cut the file after the last batch in the indexes, and sync it.

        Without the sync, a crash could bring the cut batches back after the recovery point or the leader has moved on:
        records that other replicas do not have.
        """
        self.file.truncate(position)
        self.file.sync()
        self._size = position

    def rename(self, stage: str, *, sync_between: bool = False) -> None:
        """Rename the files to those of another stage; the log file is last, so that its new name is the commit."""
        old_paths = self.paths()
        self.stage = stage
        log_move, *index_moves = zip(old_paths, self.paths(), strict=True)
        for old_path, new_path in index_moves:
            if self.files.exists(old_path):
                self.files.rename(old_path, new_path)
        if sync_between:
            self.files.sync_directory(self.directory)
        self.files.rename(*log_move)

    def remove(self) -> None:
        """Remove the files; a reader that holds the open file can continue to read it."""
        for path in self.paths():
            self.files.remove(path)
