"""Transactions on one partition: which are open, how far readers of committed records may go, which were aborted.

Pure: the producers' states report when a transaction begins and ends here, and the log writes the index files.

Theory of operation. A transaction is open from its producer's first transactional batch to its end marker. Readers of
committed records stop at the last stable offset: before the first record of any open transaction, and of any ended one
whose marker is not committed yet. Below it the outcome of every transaction is final. Data of aborted transactions
stays in the log, so a fetch response lists the producers whose records the reader must skip, and from which offset on.
The list comes from the aborted index of the segment that has the abort marker (`<base offset>.txnindex`, KIP-98), with
one entry of 34 bytes per transaction, in the order of the markers:

    version int16 (0) | producer id int64 | first offset int64 | marker's offset int64 | last stable offset int64

The last stable offset is the one right after the marker, if everything up to there were committed. It ends a search:
once it reaches the end of what is read, no later marker can concern that range. A segment without aborted transactions
has no file.
"""

import struct
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from rookery.base.errors import CorruptionError
from rookery.base.types import Buffer, Offset, ProducerId

ABORTED_ENTRY_SIZE = 34
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0

# (producer id, first offset) of aborted transactions, by first offset: what a fetch response reports.
AbortedStarts: TypeAlias = Sequence[tuple[ProducerId, Offset]]


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    # The offset of the abort marker.
    last_offset: Offset
    last_stable_offset: Offset


_FIELD_COUNT = len(AbortedTransaction._fields)


class AbortedIndex:
    """The transactions whose abort markers lie in one segment, in the order of the markers."""

    __slots__ = ("_fields", "_markers")

    def __init__(self) -> None:
        # Arrays, since there may be many entries: the markers' offsets, and all fields of all entries in sequence.
        self._markers = array("q")
        self._fields = array("q")

    def __len__(self) -> int:
        return len(self._markers)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._entry, range(len(self)))

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(*self._fields[slot * _FIELD_COUNT : (slot + 1) * _FIELD_COUNT])

    def append(self, entry: AbortedTransaction) -> None:
        assert not self._markers or entry.last_offset > self._markers[-1]
        self._markers.append(entry.last_offset)
        self._fields.extend(entry)

    def truncate_from(self, offset: Offset) -> None:
        """Drop the entries whose markers are at or after `offset`."""
        slot = bisect_left(self._markers, offset)
        del self._markers[slot:]
        del self._fields[slot * _FIELD_COUNT :]

    def collect(self, start: Offset, end: Offset, into: list[AbortedTransaction]) -> bool:
        """Append the transactions with records in [start, end) to `into`; True if no later segment can have any."""
        for slot in range(bisect_left(self._markers, start), len(self)):
            entry = self._entry(slot)
            if entry.first_offset < end:
                into.append(entry)
            if entry.last_stable_offset >= end:
                return True
        return False

    def encode(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self)

    @classmethod
    def decode(cls, base_offset: Offset, data: Buffer) -> "AbortedIndex":
        """Decode an index file; raises CorruptionError if it does not fit a segment that begins at `base_offset`."""
        if len(data) % ABORTED_ENTRY_SIZE:
            raise CorruptionError(f"an aborted index of {len(data)} bytes does not consist of whole entries")
        index, marker_before = cls(), base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != _VERSION:
                raise CorruptionError(f"unknown version {version} of an aborted index entry")
            if not marker_before < entry.last_offset or not 0 <= entry.first_offset < entry.last_offset:
                raise CorruptionError("the aborted index does not increase from marker to marker")
            index.append(entry)
            marker_before = entry.last_offset
        return index


class OpenTransactions:
    """The transactions that hold back the last stable offset; every operation takes constant time.

    Every fetch checks `open` and `ended` first: both are empty in most logs.
    """

    __slots__ = ("ended", "open")

    def __init__(self, transactions: Iterable[tuple[ProducerId, Offset]] = ()) -> None:
        # First offsets; they increase, because a transaction begins at the end of the log.
        self.open: dict[ProducerId, Offset] = dict(sorted(transactions, key=lambda item: item[1]))
        # (first offset, marker's offset) of ended transactions whose marker may not be committed. Both increase: a
        # transaction that began after another and ended before it does not matter.
        self.ended: deque[tuple[Offset, Offset]] = deque()

    def begin(self, producer_id: ProducerId, offset: Offset) -> None:
        self.open[producer_id] = offset

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> None:
        first_offset = self.open.pop(producer_id)
        ended = self.ended
        while ended and ended[-1][0] >= first_offset:
            ended.pop()
        ended.append((first_offset, marker_offset))

    def first_open(self, default: Offset) -> Offset:
        """Return the first offset of the oldest open transaction, `default` if there is none."""
        return next(iter(self.open.values()), default)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return where readers of committed records stop; drops ended transactions below the high watermark."""
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first = self.first_open(high_watermark)
        return min(first, high_watermark, ended[0][0] if ended else first)


def find_aborted(indexes: Iterable[AbortedIndex], start: Offset, end: Offset) -> AbortedStarts:
    """Return the aborted transactions with records in [start, end).

    `indexes` are those of the segments from the one that holds `start` on.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        if index.collect(start, end, found):
            break
    return sorted(((entry.producer_id, entry.first_offset) for entry in found), key=lambda pair: pair[1])
