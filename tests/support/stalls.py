"""Measures how long the event loop is blocked, in function calls instead of seconds.

    with counted_turns() as turns:
        ...
    assert turns.longest < CALLS_MAX

A turn of the loop is everything between two polls of the sockets; other connections wait for its end. Its length is the
number of calls of Python and C functions in the loop's thread, which is the same on slow and fast machines. About five
million calls take a second, so `CALLS_MAX` is about 50 ms.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CALLS_MAX = 250_000


class Turns:
    def __init__(self) -> None:
        self.calls = 0
        self.longest = 0
        self.count = 0

    def begin(self) -> None:
        self.calls = 0

    def end(self) -> None:
        self.count += 1
        self.longest = max(self.longest, self.calls)


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Count the calls of each turn. Must be entered on the measured loop, which must be asyncio's own."""
    turns, loop = Turns(), asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined]

    def count(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            turns.calls += 1

    def run_counted() -> None:
        turns.begin()
        run_once()
        turns.end()

    vars(loop)["_run_once"] = run_counted
    before: Any = sys.getprofile()
    sys.setprofile(count)
    try:
        yield turns
        # The current turn counts too.
        turns.end()
    finally:
        sys.setprofile(before)
        del vars(loop)["_run_once"]
