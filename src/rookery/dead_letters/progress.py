"""Which dead letters of a partition were sent again, in the form in which a consumer group remembers it. Pure.

A redrive may choose among the dead letters, so an offset alone does not say what was done. A group commits for each
partition the first offset that was not sent again, and as the commit's metadata the runs behind it that were: the
lengths of what is open and what is done, in turn, the first open. `+3,2` behind offset 5 means: 5, 6 and 7 are open,
8 and 9 are done, and everything after is open. The transaction that sends a dead letter commits both.

Brokers take 4096 bytes of metadata (`offset.metadata.max.bytes`): selections that would leave more holes than fit are
refused before anything of them is sent. An offset that somebody reset has no metadata, and means what it says.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from rookery.base.types import Offset

METADATA_LENGTH_MAX: Final = 4096
_MARK: Final = "+"

# From the first offset up to the second, which does not belong to it.
Run: TypeAlias = tuple[Offset, Offset]


class TooManyHolesError(ValueError):
    """What was done lies scattered among more of what was not than a commit can describe."""


class Progress:
    """What was done in one partition: everything before `position`, and the runs behind it, which do not touch."""

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
        """Behind the last that was done."""
        return self._runs[-1][1] if self._runs else self.position

    def add(self, start: Offset, stop: Offset) -> None:
        """Everything from `start` up to `stop` is done."""
        start = max(start, self.position)
        if stop <= start:
            return
        first = bisect_left(self._runs, start, key=lambda run: run[1])
        behind = bisect_right(self._runs, stop, key=lambda run: run[0])
        if first < behind:
            start, stop = min(start, self._runs[first][0]), max(stop, self._runs[behind - 1][1])
        self._runs[first:behind] = [(start, stop)]
        if self._runs[0][0] == self.position:
            self.position = self._runs.pop(0)[1]

    def metadata(self) -> str:
        """Raises TooManyHolesError."""
        edges = [self.position, *(edge for run in self._runs for edge in run)]
        text = ",".join(str(stop - start) for start, stop in pairwise(edges))
        if len(text) >= METADATA_LENGTH_MAX:
            raise TooManyHolesError(f"{len(text)} bytes do not fit the {METADATA_LENGTH_MAX} of a commit's metadata")
        return _MARK + text if text else ""


def read_progress(position: Offset, metadata: str) -> Progress:
    """What a group committed. Metadata that is not ours counts as none."""
    words = metadata.removeprefix(_MARK).split(",")
    if not metadata.startswith(_MARK) or not all(word.isascii() and word.isdigit() for word in words):
        return Progress(position)
    return Progress(position, _runs(position, map(int, words)))


def _runs(position: Offset, lengths: Iterable[int]) -> Iterator[Run]:
    for index, length in enumerate(lengths):
        if index % 2:
            yield position, position + length
        position += length
