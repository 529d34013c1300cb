"""Cases of `test_garbage`, each run in a process of its own.

The collector is one for the whole process: in a process that runs other tests, its thresholds and frozen objects, and
whether it is enabled at all, depend on what ran before.
"""

import gc
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import StartupError
from rookery.node.garbage import MIDDLE_COLLECTIONS_MAX, SURVIVORS_MIN, LongLivedObjects
from rookery.node.main import run
from rookery.node.settings import Settings


class Item:
    def __init__(self) -> None:
        self.itself = self


def visited_by_full_collections(count: int) -> list[int]:
    """Return how many objects each automatic full collection visits while `count` objects are created and kept."""
    visited = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            visited.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    kept = [[index] for index in range(count)]
    assert len(kept) == count
    return visited


def visited_max() -> int:
    """Return how many objects a full collection may visit: survivors that are too few, and what was added since."""
    young, middle, _ = gc.get_threshold()
    return SURVIVORS_MIN + (MIDDLE_COLLECTIONS_MAX + 2) * (middle + 1) * (young + 1)


def no_full_collection_visits_many_objects_of_a_large_broker() -> None:
    LongLivedObjects().begin()
    # The next one begins when there are a quarter more objects than at the last: now, that is few.
    gc.collect()
    visited = visited_by_full_collections(600_000)
    assert visited
    assert max(visited) < visited_max()


def the_first_collections_of_a_large_broker_do_not_visit_what_python_lets_accumulate() -> None:
    # Not frozen: Python counts them, and lets a quarter as many accumulate before the next full collection.
    gc.unfreeze()
    kept = [[index] for index in range(1_000_000)]
    gc.collect()
    LongLivedObjects().begin()
    assert max(visited_by_full_collections(600_000)) < visited_max()
    assert kept


def a_frozen_cycle_is_collected_once_the_memory_has_doubled() -> None:
    gc.unfreeze()
    LongLivedObjects(survivors_min=100, blocks_min=0).begin()
    items = [Item() for _ in range(1000)]
    gc.collect()
    found = weakref.ref(items[0])
    items.clear()
    gc.collect()
    assert found() is not None, "frozen objects are not collected"
    kept = [[index] for index in range(2 * sys.getallocatedblocks())]
    gc.collect()
    gc.collect()
    assert found() is None
    assert kept
    assert not gc.get_objects(generation=2), "and they are frozen again"


def objects_that_are_frozen_and_freed_do_not_count() -> None:
    LongLivedObjects(survivors_min=100, blocks_min=0).begin()
    frozen = gc.get_freeze_count()
    size = sys.getallocatedblocks() // 8
    for _ in range(20):
        kept = [[index] for index in range(size)]
        gc.collect()
        assert gc.get_freeze_count() > frozen, "they are not thawed again"
        del kept


def few_survivors_are_not_frozen() -> None:
    LongLivedObjects().begin()
    frozen = gc.get_freeze_count()
    items = [Item() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() <= frozen
    found = weakref.ref(items[0])
    items.clear()
    gc.collect()
    assert found() is None


def a_failed_start_leaves_the_collector_enabled() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        path.write_text("not a directory")
        with pytest.raises(StartupError):
            run(Settings.load(None, [], data_dir=path, listen="127.0.0.1:0"), announce=print)
    assert gc.isenabled()
