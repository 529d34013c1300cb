"""Work on many logs by several threads, at the start and the stop of a node."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int) -> list[_Result]:
    """Return `function(item)` for each item, computed by `threads` threads; the first error stops all of them."""
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    waiting = deque(enumerate(items))
    results: dict[int, _Result] = {}

    def work() -> None:
        while True:
            try:
                slot, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[slot] = function(item)
            except BaseException:
                waiting.clear()
                raise

    with ThreadPoolExecutor(threads, "rookery-storage") as executor:
        for worker in [executor.submit(work) for _ in range(threads)]:
            worker.result()
    return [results[slot] for slot in range(len(items))]
