"""The two sparse indexes of a segment, in Kafka's byte format.

An offset index maps the last offset of a batch to the batch's position in the log file: 8 bytes per entry, offset
relative to the segment's base offset, then position. A time index maps the largest timestamp so far to the last offset
of the first batch that has it: 12 bytes per entry, timestamp, then relative offset. All integers are big-endian.

Both are held in memory as packed arrays and searched by bisection. The files only save reading the log again: a file
that fails its checks is discarded, and the segment rebuilds the index from the log.
"""

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from rookery.base.errors import CorruptionError
from rookery.base.types import NO_TIMESTAMP, Buffer, Offset, TimestampMs

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
RELATIVE_OFFSET_MAX = 2**31 - 1

_TIME_ENTRY = struct.Struct(">qi")


class TimeIndexEntry(NamedTuple):
    timestamp_ms: TimestampMs
    offset: Offset


class OffsetIndex:
    """Last offset of a batch -> position of that batch; both increase from entry to entry."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        return len(self._offsets) * OFFSET_ENTRY_SIZE

    @property
    def last_position(self) -> int:
        """The position of the last entry, 0 if there is none: a search for the end of the log starts here."""
        return self._positions[-1] if self._positions else 0

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def append(self, last_offset: Offset, position: int) -> None:
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: Offset) -> int:
        """Return a position at or before the batch that holds `offset`."""
        slot = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[slot] if slot >= 0 else 0

    def first_from(self, position: int, *, default: Offset) -> Offset:
        """Return the offset of the first entry at or after `position`, else `default`. No earlier batch reaches it."""
        slot = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[slot] if slot < len(self._offsets) else default

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        slot = bisect_left(self._offsets, offset - self.base_offset)
        del self._offsets[slot:]
        del self._positions[slot:]

    def entries(self) -> list[tuple[Offset, int]]:
        return [
            (self.base_offset + offset, position)
            for offset, position in zip(self._offsets, self._positions, strict=True)
        ]

    def encode(self) -> bytes:
        pairs = array("i", bytes(self.size_bytes))
        pairs[::2], pairs[1::2] = self._offsets, self._positions
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, base_offset: Offset, data: Buffer) -> "OffsetIndex":
        """Decode an index file; raises CorruptionError unless offsets and positions increase from entry to entry."""
        if len(data) % OFFSET_ENTRY_SIZE:
            raise CorruptionError(f"an offset index of {len(data)} bytes does not consist of whole entries")
        pairs = array("i")
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index = cls(base_offset)
        index._offsets, index._positions = pairs[::2], pairs[1::2]
        if index._offsets and (index._offsets[0] < 0 or index._positions[0] <= 0):
            raise CorruptionError("the first entry of the offset index is out of range")
        if not (_increases(index._offsets) and _increases(index._positions)):
            raise CorruptionError("the offset index does not increase from entry to entry")
        return index


class TimeIndex:
    """Largest timestamp so far -> last offset of the first batch that has it; timestamps increase by entry."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def size_bytes(self) -> int:
        return len(self._timestamps) * TIME_ENTRY_SIZE

    @property
    def last(self) -> TimeIndexEntry:
        """The last entry; (-1, base offset) if there is none, as in Kafka."""
        if not self._timestamps:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        return TimeIndexEntry(self._timestamps[-1], self.base_offset + self._offsets[-1])

    def append_if_later(self, timestamp_ms: TimestampMs, offset: Offset) -> None:
        if timestamp_ms > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self.base_offset)

    def lookup(self, timestamp_ms: TimestampMs) -> Offset:
        """Return an offset such that every record before its batch has a timestamp below `timestamp_ms`."""
        slot = bisect_right(self._timestamps, timestamp_ms) - 1
        return self.base_offset + self._offsets[slot] if slot >= 0 else self.base_offset

    def truncate_to(self, offset: Offset) -> None:
        slot = bisect_left(self._offsets, offset - self.base_offset)
        del self._timestamps[slot:]
        del self._offsets[slot:]

    def entries(self) -> list[TimeIndexEntry]:
        pairs = zip(self._timestamps, self._offsets, strict=True)
        return [TimeIndexEntry(timestamp_ms, self.base_offset + offset) for timestamp_ms, offset in pairs]

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def decode(cls, base_offset: Offset, data: Buffer) -> "TimeIndex":
        """Decode an index file; raises CorruptionError unless timestamps and offsets increase from entry to entry."""
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptionError(f"a time index of {len(data)} bytes does not consist of whole entries")
        index = cls(base_offset)
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp_ms)
            index._offsets.append(offset)
        # A file of zeros, which a crash or a preallocating writer may leave, would be read as one entry with timestamp
        # 0.
        first = (index._timestamps[0], index._offsets[0]) if index._offsets else (1, 0)
        if first == (0, 0) or min(first) < 0:
            raise CorruptionError("the first entry of the time index is out of range")
        if not (_increases(index._timestamps) and _increases(index._offsets)):
            raise CorruptionError("the time index does not increase from entry to entry")
        return index


def _increases(values: "Sequence[int]") -> bool:
    return all(map(operator.lt, values, islice(values, 1, None)))
