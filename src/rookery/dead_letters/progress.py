"""Which dead letters of a partition were sent again, as a committed offset with metadata. Pure.

A redrive may select some of the dead letters, so an offset alone does not say which of them were sent. For each
partition the redrive's group commits the first offset that is still open, and in the commit's metadata the later runs
that are done: run lengths, open and done in turn, beginning with an open run. Offset 5 with metadata `+3,2` means: 5, 6
and 7 are open, 8 and 9 are done, and everything from 10 on is open. The transaction that sends the dead letters commits
both.

Brokers accept 4096 bytes of metadata (`offset.metadata.max.bytes`). A batch of dead letters that would leave more holes
than fit is rejected before any of its records is sent. An offset that was reset with other tools has no metadata:
everything before it is done, everything from it on is open.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from rookery.base.types import Offset

METADATA_LENGTH_MAX: Final = 4096
_MARK: Final = "+"

# The half-open range [start, stop).
Run: TypeAlias = tuple[Offset, Offset]


class TooManyHolesError(ValueError):
    """The done offsets form more runs than the metadata of a commit can describe."""


class Progress:
    """The set of done offsets in one partition: all before `position`, and later runs, which are sorted and disjoint.

    Adjacent runs are merged, and a run that begins at `position` moves `position` forward.
    """

    def __init__(self, position: Offset = 0, runs: Iterable[Run] = ()) -> None:
        self.position = position
        self._runs: list[Run] = []
        for start, stop in runs:
            self.add(start, stop)

    def __contains__(self, offset: Offset) -> bool:
        index = bisect_right(self._runs, offset, key=lambda run: run[0])
        return offset < self.position or (index > 0 and offset < self._runs[index - 1][1])

    @property
    def end(self) -> Offset:
        """The offset after the last done one."""
        return self._runs[-1][1] if self._runs else self.position

    def add(self, start: Offset, stop: Offset) -> None:
        """Mark the offsets from `start` up to, but not including, `stop` as done."""
        start = max(start, self.position)
        if stop <= start:
            return
        first = bisect_left(self._runs, start, key=lambda run: run[1])
        end = bisect_right(self._runs, stop, key=lambda run: run[0])
        if first < end:
            start, stop = min(start, self._runs[first][0]), max(stop, self._runs[end - 1][1])
        self._runs[first:end] = [(start, stop)]
        if self._runs[0][0] == self.position:
            self.position = self._runs.pop(0)[1]

    def metadata(self) -> str:
        """Return the metadata to commit with `position`. Raises TooManyHolesError if it would be too long."""
        edges = [self.position, *(edge for run in self._runs for edge in run)]
        text = ",".join(str(stop - start) for start, stop in pairwise(edges))
        if len(text) >= METADATA_LENGTH_MAX:
            raise TooManyHolesError(f"{len(text)} bytes do not fit the {METADATA_LENGTH_MAX} of a commit's metadata")
        return _MARK + text if text else ""


def read_progress(position: Offset, metadata: str) -> Progress:
    """Read a committed offset and its metadata. Metadata in another format is ignored."""
    words = metadata.removeprefix(_MARK).split(",")
    if not metadata.startswith(_MARK) or not all(word.isascii() and word.isdigit() for word in words):
        return Progress(position)
    return Progress(position, _runs(position, map(int, words)))


def _runs(position: Offset, lengths: Iterable[int]) -> Iterator[Run]:
    for index, length in enumerate(lengths):
        if index % 2:
            yield position, position + length
        position += length
