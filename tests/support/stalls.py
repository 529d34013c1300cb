"""Measures how long the event loop is blocked, in function calls instead of seconds.

    with counted_turns() as turns:
        ...
    assert turns.longest < CALLS_MAX

A turn of the loop is everything between two polls of the sockets; other connections wait for its end. Its length is the
number of calls of Python and C functions in the loop's thread, which is the same on slow and fast machines. About five
million calls take a second, so `CALLS_MAX` is about 50 ms.

    with counted_calls(Replica, "read") as reads:
        ...
    assert reads.longest <= FETCH_PARTITIONS_PER_SLICE

counts the calls of one function instead, that is, the items of a slice.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

CALLS_MAX = 250_000


class Turns:
    """`longest` is the number of calls in the longest turn of the loop, `total` that of all turns."""

    def __init__(self) -> None:
        self.calls = 0
        self.longest = 0
        self.total = 0

    def end(self) -> None:
        self.total += self.calls
        self.longest = max(self.longest, self.calls)
        self.calls = 0


@contextmanager
def _each_turn(*, counts_first: bool) -> Iterator[Turns]:
    """Yield the counter of the turns, of which the first has already begun. `counts_first` is whether it counts."""
    turns, loop = Turns(), asyncio.get_running_loop()
    # Another counter may be active.
    run_once_before, run_once = vars(loop).get("_run_once"), loop._run_once  # type: ignore[attr-defined]

    def run_counted() -> None:
        nonlocal counts_first
        if counts_first:
            turns.end()
        counts_first, turns.calls = True, 0
        run_once()
        turns.end()

    vars(loop)["_run_once"] = run_counted
    try:
        yield turns
        turns.end()
    finally:
        del vars(loop)["_run_once"]
        if run_once_before is not None:
            vars(loop)["_run_once"] = run_once_before


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Count the calls of each turn. Must be entered on the measured loop, which must be asyncio's own.

    The rest of the current turn is not counted: it often imports modules.
    """
    with _each_turn(counts_first=False) as turns:

        def count(frame: object, event: str, argument: object) -> None:
            if event in ("call", "c_call"):
                turns.calls += 1

        before: Any = sys.getprofile()
        sys.setprofile(count)
        try:
            yield turns
        finally:
            sys.setprofile(before)


@contextmanager
def counted_calls(owner: object, name: str) -> Iterator[Turns]:
    """Count the calls of `owner.name` in each turn, in the loop's thread; `owner` is a class or a module."""
    call, thread = getattr(owner, name), get_ident()
    with _each_turn(counts_first=True) as turns:

        def count(*arguments: Any, **more: Any) -> Any:
            if get_ident() == thread:
                turns.calls += 1
            return call(*arguments, **more)

        setattr(owner, name, count)
        try:
            yield turns
        finally:
            setattr(owner, name, call)
