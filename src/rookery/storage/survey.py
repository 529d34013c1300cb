"""Reads a whole segment with all checks and without changing it, also after damage.

Recovery stops at the first bad batch. A survey continues: after a bad range it searches for the next position where a
whole batch with a matching checksum begins. Used for the metadata log, which is small, at every start, and for all logs
by `rookery log repair`.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rookery.base.errors import CorruptionError
from rookery.base.files import Files
from rookery.base.types import Offset
from rookery.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, compute_crc, read_header
from rookery.storage.index import RELATIVE_OFFSET_MAX
from rookery.storage.names import LOG_SUFFIX, file_name, offset_of, suffix_of

_READ_SIZE = 1 << 20
_NO_LIMIT = 2**63
_MAGIC_POSITION = 16
_MAGIC = struct.pack("b", MAGIC_V2)


def find_segments(files: Files, directory: Path) -> list[tuple[Path, Offset, Offset]]:
    """Return the log files of a partition's directory, each with its base offset and that of the next."""
    try:
        names = files.list_directory(directory)
    except FileNotFoundError:
        return []
    found = [(offset_of(name), suffix_of(name)) for name in names]
    bases = [offset for offset, suffix in found if offset is not None and suffix == LOG_SUFFIX]
    return [(directory / file_name(base, LOG_SUFFIX), base, limit) for base, limit in pairwise([*bases, _NO_LIMIT])]


class ValidBatch(NamedTuple):
    position: int
    header: BatchHeader


class BadRange(NamedTuple):
    """Bytes that are not a valid batch, up to the next valid one or the end of the file."""

    position: int
    size_bytes: int
    # The first offset that these bytes may have held.
    offset: Offset
    reason: str


class SegmentSurvey:
    """One pass over the file of a segment, whose offsets lie in [`base_offset`, `limit`).

    `is_gapless` if each batch must begin where the one before it ended: a compacted log is not gapless.
    """

    def __init__(
        self, files: Files, path: Path, base_offset: Offset, *, limit: Offset, is_gapless: bool = False
    ) -> None:
        self._file = files.open(path)
        self.size_bytes = self._file.size()
        self._base_offset = base_offset
        self._limit = min(limit, base_offset + RELATIVE_OFFSET_MAX + 1)
        self._is_gapless = is_gapless
        self._chunk, self._chunk_start = b"", 0

    def parts(self) -> Iterator[ValidBatch | BadRange]:
        """Yield all parts of the file, in order."""
        position, expected, is_gapless = 0, self._base_offset, self._is_gapless
        while position < self.size_bytes:
            try:
                header = self._check(position, expected, is_gapless=is_gapless)
            except CorruptionError as error:
                end = self._find_valid(position + 1, expected)
                yield BadRange(position, end - position, expected, str(error))
                # The contents of the bad range are unknown, so the next batch may have any later offset.
                position, is_gapless = end, False
                continue
            yield ValidBatch(position, header)
            position += header.size_bytes
            expected, is_gapless = header.last_offset + 1, self._is_gapless

    def read(self, position: int, size: int) -> bytes:
        start = position - self._chunk_start
        if start < 0 or start + size > len(self._chunk):
            self._chunk = self._file.read_at(position, max(size, _READ_SIZE))
            self._chunk_start, start = position, 0
        return self._chunk[start : start + size]

    def _check(self, position: int, expected: Offset, *, is_gapless: bool) -> BatchHeader:
        header = self._header_at(position)
        if header is None:
            raise CorruptionError("there is no whole batch")
        if header.base_offset < expected or header.last_offset_delta < 0 or header.last_offset >= self._limit:
            raise CorruptionError(f"offsets {header.base_offset}..{header.last_offset} do not follow {expected}")
        if header.base_offset > expected:
            if is_gapless:
                raise CorruptionError(f"offset {header.base_offset} comes where {expected} should")
            self._check_jump(position, header, expected)
        if compute_crc(self.read(position, header.size_bytes)) != header.crc:
            raise CorruptionError("the checksum of the batch does not match")
        return header

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header of a batch that fits at `position`, else None."""
        if position + HEADER_SIZE > self.size_bytes:
            return None
        header = read_header(self.read(position, HEADER_SIZE))
        size = header.size_bytes
        return header if header.magic == MAGIC_V2 and HEADER_SIZE <= size <= self.size_bytes - position else None

    def _check_jump(self, position: int, header: BatchHeader, expected: Offset) -> None:
        """Check a base offset, which the checksum does not cover: if it is too high, the next batch contradicts it."""
        following = self._header_at(position + header.size_bytes)
        if following is not None and expected <= following.base_offset <= header.last_offset:
            raise CorruptionError(f"offset {header.base_offset} is followed by {following.base_offset}")

    def _find_valid(self, position: int, expected: Offset) -> int:
        """Return the position of the next valid batch, or the end of the file."""
        while position + HEADER_SIZE <= self.size_bytes:
            chunk = self._file.read_at(position, _READ_SIZE)
            at = chunk.find(_MAGIC, _MAGIC_POSITION)
            while at >= 0:
                candidate = position + at - _MAGIC_POSITION
                try:
                    self._check(candidate, expected, is_gapless=False)
                    return candidate
                except CorruptionError:
                    at = chunk.find(_MAGIC, at + 1)
            position += max(1, len(chunk) - _MAGIC_POSITION)
        return self.size_bytes
