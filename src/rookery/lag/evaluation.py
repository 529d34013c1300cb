"""Burrow's rules: whether a consumer is fine, by its commits in a window of time, without any threshold of lag. Pure.

The rules, in this order, for one partition:

1. Nothing to read now: OK.
2. The last commit is longer ago than the commits of the window span: STOP.
3. The lag was zero at some commit of the window: OK.
4. A commit went back: REWIND.
5. All commits have the same offset: STALL.
6. The lag never fell from one commit to the next: WARNING. Otherwise OK.

A group's status is that of its worst partition.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise

from rookery.base.types import Offset, TimestampMs
from rookery.base.values import value_class


class Status(IntEnum):
    """Burrow's words, in the order of their severity."""

    OK = 0
    WARNING = 1
    REWIND = 2
    STALL = 3
    STOP = 4

    @property
    def word(self) -> str:
        return _WORDS[self]


_WORDS = {
    Status.OK: "fine",
    Status.WARNING: "falling behind",
    Status.REWIND: "rewound",
    Status.STALL: "stuck",
    Status.STOP: "stuck",
}


@value_class
class Commit:
    """A commit, and the lag that it left; None if the end of the log was not known."""

    at_ms: TimestampMs
    offset: Offset
    lag: int | None


def evaluate(commits: Sequence[Commit], *, is_caught_up: bool, now_ms: TimestampMs) -> Status:
    """Return the status of a partition by the commits of the window, oldest first. Without commits it is OK."""
    if is_caught_up or not commits:
        return Status.OK
    if now_ms - commits[-1].at_ms > commits[-1].at_ms - commits[0].at_ms:
        return Status.STOP
    if any(commit.lag == 0 for commit in commits):
        return Status.OK
    if any(after.offset < before.offset for before, after in pairwise(commits)):
        return Status.REWIND
    if all(commit.offset == commits[0].offset for commit in commits):
        return Status.STALL
    lags = [commit.lag for commit in commits if commit.lag is not None]
    return Status.OK if any(after < before for before, after in pairwise(lags)) else Status.WARNING


def worst(statuses: Iterable[Status | None]) -> Status | None:
    """Return the most severe status; None if all are unknown, or if none says more than OK and one is unknown."""
    found = list(statuses)
    known = [status for status in found if status is not None]
    severest = max(known, default=None)
    return None if severest == Status.OK and len(known) < len(found) else severest
