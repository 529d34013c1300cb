"""Keeps garbage collections short: the objects of a broker are many, and live long.

A full collection visits every object that is not frozen, on whichever thread it begins, and no request is served
meanwhile: 10 to 20 ms per 100,000 objects. A partition has about sixty, and a committed offset a few. So full
collections are frequent, and the survivors are frozen when they are many: the next collections visit what was created
since. Each object is visited a few times, and then no more.

Reference counts free nearly everything, frozen or not. A frozen cycle of objects that is dropped later (the transport
of a connection) stays in memory until the memory blocks in use have doubled: then all objects are collected once.

For a process that is a broker and nothing else: the collector is one for the whole process.
"""

import gc
import sys
from typing import Any, Final

# Survivors of a full collection; fewer are visited again by the next one.
SURVIVORS_MIN: Final = 10_000
# Collections of the middle generation between two full ones: each adds up to 7,700 objects, in Python 3.13 22,000.
MIDDLE_COLLECTIONS_MAX: Final = 2
# Memory blocks in use, below which frozen objects are not collected again: those of about 30,000 partitions.
_BLOCKS_MIN: Final = 5_000_000


class LongLivedObjects:
    """Freezes the survivors of full collections, from `begin` on."""

    def __init__(self, *, survivors_min: int = SURVIVORS_MIN, blocks_min: int = _BLOCKS_MIN) -> None:
        self._survivors_min = survivors_min
        self._blocks_min = self._blocks_max = blocks_min
        self._is_thawed = False
        # Whether the last full collection had so many survivors that the next one is far.
        self._is_next_far = False

    def begin(self) -> None:
        """Freeze all objects that exist now."""
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], MIDDLE_COLLECTIONS_MAX)
        self._note_all_frozen()
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop":
            return
        if info["generation"] == 2:
            self._on_full_collection()
        elif self._is_next_far and gc.get_count()[2] > MIDDLE_COLLECTIONS_MAX + 1:
            # Python has skipped a full collection: it waits until a quarter as many objects as survived the last one
            # have been added. If that one visited all objects of a large broker, these are hundreds of thousands.
            gc.freeze()

    def _on_full_collection(self) -> None:
        self._is_next_far = False
        if len(gc.get_objects(generation=2)) < self._survivors_min:
            return
        gc.freeze()
        if self._is_thawed:
            self._note_all_frozen()
        elif sys.getallocatedblocks() > self._blocks_max:
            # The next full collection visits all of them. Without it, dropped cycles would accumulate for ever.
            gc.unfreeze()
            self._is_thawed = True

    def _note_all_frozen(self) -> None:
        # Blocks, not objects: the frozen objects are a list, and it takes 30 ms to count two million.
        self._blocks_max = max(self._blocks_min, 2 * sys.getallocatedblocks())
        self._is_thawed, self._is_next_far = False, True
