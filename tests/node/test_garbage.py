"""Full collections of a broker's process: how many objects they visit, and what they free."""

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from rookery.node.garbage import SURVIVORS_MIN, LongLivedObjects

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python collects in increments")


class Item:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def ended_with_the_test() -> Iterator[None]:
    """Remove the callbacks of the test. The suite's own objects are frozen, and are frozen again."""
    callbacks = gc.callbacks[:]
    yield
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.freeze()


def visited_by_full_collections(count: int) -> list[int]:
    """Return how many objects each automatic full collection visits while `count` objects are created and kept."""
    visited = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            visited.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    try:
        kept = [[index] for index in range(count)]
        assert len(kept) == count
    finally:
        gc.callbacks.remove(note)
    return visited


def test_no_full_collection_visits_all_objects_of_a_large_broker() -> None:
    LongLivedObjects().begin()
    # The next one begins when there are a quarter more objects than at the last: now, that is few.
    gc.collect()
    visited = visited_by_full_collections(600_000)
    # The survivors below the limit, and what automatic collections let accumulate: eleven of the middle generation.
    assert visited
    assert max(visited) < SURVIVORS_MIN + 100_000


def test_a_frozen_cycle_is_collected_once_the_frozen_objects_have_doubled() -> None:
    gc.unfreeze()
    LongLivedObjects(survivors_min=100, frozen_min=0).begin()
    items = [Item() for _ in range(1000)]
    gc.collect()
    found = weakref.ref(items[0])
    items.clear()
    gc.collect()
    assert found() is not None, "frozen objects are not collected"
    kept = [[index] for index in range(2 * gc.get_freeze_count())]
    gc.collect()
    gc.collect()
    assert found() is None
    assert kept
    assert not gc.get_objects(generation=2), "and they are frozen again"


def test_few_survivors_are_not_frozen() -> None:
    LongLivedObjects().begin()
    frozen = gc.get_freeze_count()
    items = [Item() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() <= frozen
    found = weakref.ref(items[0])
    items.clear()
    gc.collect()
    assert found() is None
