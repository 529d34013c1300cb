"""Tables that a process keeps between tasks, so that the next micro-batch reads only what is new.

A table that is not found here is read wholly, which is always right. It is not found if

- the topic was made again, or its partition has had an election since: offsets may mean other records then;
- it holds what lies behind the end, or not what lies at the beginning, of what is wanted;
- it was not brought up to date for a while. Tombstones may be gone by then that remove keys from it: a topic keeps them
  for `delete.retention.ms`, a day if nobody says otherwise. Tables of queries that have ended make room this way, too;
- it was read wholly long ago: tombstones are kept in it, and this is how it gets rid of them;
- there was no room. Tables in use do not make room for others: they are asked for in turn, and each would push out the
  one that is wanted next.
"""

from collections.abc import Hashable
from threading import Lock
from typing import Final, NamedTuple

from rookery.base.clock import Clock
from rookery.base.types import LeaderEpoch, Offset, TopicId
from rookery.base.values import value_class
from rookery.pipelines.table_rows import KeyTable

IDLE_S_MAX: Final = 600.0
AGE_S_MAX: Final = 3600.0
SIZE_BYTES_MAX: Final = 256 * 1024 * 1024


class Incarnation(NamedTuple):
    """As long as this is the same, an offset of a partition means the same record."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch


@value_class
class _Kept:
    table: KeyTable
    incarnation: Incarnation
    read_wholly_s: float
    used_s: float


class TableCache:
    def __init__(self, *, clock: Clock, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._clock = clock
        self._size_bytes_max = size_bytes_max
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = Lock()

    def find(self, name: Hashable, incarnation: Incarnation, start: Offset, end: Offset) -> KeyTable | None:
        """A table that leads to the one of these offsets. If there is none, what was kept is forgotten."""
        with self._lock:
            self._forget_old()
            kept = self._kept.get(name)
            if kept is None:
                return None
            if kept.incarnation == incarnation and kept.table.leads_to(start, end):
                return kept.table
            del self._kept[name]
            return None

    def room_for(self, name: Hashable) -> int:
        """How many bytes a table of this name may have to be kept."""
        with self._lock:
            return self._room_for(name)

    def keep(self, name: Hashable, incarnation: Incarnation, table: KeyTable) -> None:
        """In place of the one that was found, if there was one; if there is room."""
        now_s = self._clock.monotonic()
        with self._lock:
            before = self._kept.get(name)
            if table.size_bytes <= self._room_for(name):
                since_s = now_s if before is None else before.read_wholly_s
                self._kept[name] = _Kept(table, incarnation, since_s, now_s)
            elif before is not None:
                del self._kept[name]

    def forget(self, name: Hashable) -> None:
        with self._lock:
            self._kept.pop(name, None)

    def _room_for(self, name: Hashable) -> int:
        others = sum(kept.table.size_bytes for other, kept in self._kept.items() if other != name)
        return self._size_bytes_max - others

    def _forget_old(self) -> None:
        now_s = self._clock.monotonic()
        self._kept = {
            name: kept
            for name, kept in self._kept.items()
            if now_s - kept.used_s < IDLE_S_MAX and now_s - kept.read_wholly_s < AGE_S_MAX
        }
