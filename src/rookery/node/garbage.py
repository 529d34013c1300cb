"""Keeps garbage collections short: the objects of a broker are many, and live long.

A full collection visits every object that is not frozen, on whichever thread it begins, and no request is served
meanwhile: about 15 ms per 100,000 objects. A partition has about sixty, and a committed offset a few. So the survivors
of a full collection are frozen when they are many: the next collections visit what was created since.

Reference counts free nearly everything, frozen or not. A frozen cycle of objects that is dropped later (the transport
of a connection) stays in memory until the number of frozen objects has doubled: then all of them are collected once.

For a process that is a broker and nothing else: the collector is one for the whole process.
"""

import gc
from typing import Any, Final

# Survivors of a full collection; fewer are visited again by the next one.
SURVIVORS_MIN: Final = 50_000
# Frozen objects, below which they are not collected again: the objects of about 30,000 partitions.
_FROZEN_MIN: Final = 2_000_000


class LongLivedObjects:
    """Freezes the survivors of full collections, from `begin` on."""

    def __init__(self, *, survivors_min: int = SURVIVORS_MIN, frozen_min: int = _FROZEN_MIN) -> None:
        self._survivors_min = survivors_min
        self._frozen_min = frozen_min
        # How many may be frozen, since all were collected, before they are collected again; and how many were.
        self._frozen_max = self._frozen = 0
        self._is_thawed = False

    def begin(self) -> None:
        """Freeze all objects that exist now."""
        gc.freeze()
        self._note_frozen()
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        survivors = len(gc.get_objects(generation=2))
        if survivors < self._survivors_min:
            return
        gc.freeze()
        self._frozen += survivors
        if self._is_thawed:
            self._note_frozen()
        elif self._frozen > self._frozen_max:
            # The next full collection visits all of them. Without it, dropped cycles would accumulate for ever.
            gc.unfreeze()
            self._is_thawed = True

    def _note_frozen(self) -> None:
        # It takes as long as a collection to count them.
        self._frozen_max, self._frozen = max(self._frozen_min, gc.get_freeze_count()), 0
        self._is_thawed = False
