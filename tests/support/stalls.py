"""How long the event loop is held, in calls instead of seconds.

    with counted_turns() as turns:
        ...
    assert turns.longest < CALLS_MAX

A turn of the loop is everything between two looks at the sockets, which is what another connection waits for. Its
length is the number of function calls in the loop's thread (of Python and of C functions): the same on a slow machine
as on a fast one. Some five million calls take a second, so `CALLS_MAX` is about 50 ms.
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
    """Count from now on; to be used on the loop that is measured, which must be asyncio's own."""
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
        # The turn that is under way counts too.
        turns.end()
    finally:
        sys.setprofile(before)
        del vars(loop)["_run_once"]
