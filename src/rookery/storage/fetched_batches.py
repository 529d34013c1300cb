"""The batches in a leader's fetch response, checked before a follower appends them. Pure.

A follower appends the leader's bytes as they are: offsets, epochs and checksums. A response may end in the middle of a
batch, which the next one repeats.
"""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from rookery.base.errors import CorruptionError
from rookery.base.types import Offset
from rookery.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, read_header

# The CRC covers everything from the attributes on.
_CRC_START = 21


class FetchedRun(NamedTuple):
    """Whole batches that lie back to back; `end` is the position after the last one."""

    headers: Sequence[BatchHeader]
    end: int


def read_fetched(data: memoryview, position: int, count: int, max_bytes: int) -> FetchedRun:
    """Return up to `count` batches from `position` on, at most one beyond `max_bytes`; empty if no whole one is left.

    Raises CorruptionError for a batch whose checksum is wrong, or whose offsets do not follow those of the one before:
    a follower that stored it would serve bytes that its leader does not have.
    """
    headers: list[BatchHeader] = []
    size_max, enough = len(data), position + max_bytes
    following: Offset = 0
    while len(headers) < count and position < enough and size_max - position >= HEADER_SIZE:
        header = read_header(data, position)
        size = header.size_bytes
        if size < HEADER_SIZE or header.magic != MAGIC_V2:
            raise CorruptionError(f"the response has no record batch at byte {position}")
        if position + size > size_max:
            break
        if header.base_offset < following or header.last_offset_delta < 0:
            raise CorruptionError(f"the batch at offset {header.base_offset} follows offset {following - 1}")
        if crc32c(data[position + _CRC_START : position + size]) != header.crc:
            raise CorruptionError(f"the checksum of the batch at offset {header.base_offset} does not match")
        headers.append(header)
        following = header.last_offset + 1
        position += size
    return FetchedRun(headers, position)
