"""Waiting for what other threads and processes bring about, and saying what there was instead."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.02


def eventually(condition: Callable[[], bool], what: str | Callable[[], str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Until it holds. `what` should hold; or, as a function, what is to be said about how it is."""
    _poll(condition, bool, lambda _: what if isinstance(what, str) else what(), timeout_s)


def expect(read: Callable[[], T], expected: T, *, timeout_s: float = TIMEOUT_S) -> None:
    """Until that is read."""
    _poll(read, lambda found: found == expected, lambda found: f"{found} instead of {expected}", timeout_s)


def _poll(
    read: Callable[[], T], is_wanted: Callable[[T], bool], complaint: Callable[[T], str], timeout_s: float
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_wanted(found := read()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {complaint(found)}"
        time.sleep(_POLL_INTERVAL_S)
