"""Waits for the effects of other threads and processes, with a useful message on a time-out."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.02


def eventually(condition: Callable[[], bool], what: str | Callable[[], str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until `condition` is true. `what` describes it, or, as a function, returns the state for the message."""
    _poll(condition, bool, lambda _: what if isinstance(what, str) else what(), timeout_s)


def expect(read: Callable[[], T], expected: T, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until `read` returns `expected`."""
    _poll(read, lambda found: found == expected, lambda found: f"{found} instead of {expected}", timeout_s)


def _poll(
    read: Callable[[], T], is_wanted: Callable[[T], bool], complaint: Callable[[T], str], timeout_s: float
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_wanted(found := read()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {complaint(found)}"
        time.sleep(_POLL_INTERVAL_S)
