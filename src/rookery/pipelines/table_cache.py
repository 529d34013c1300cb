"""Caches the tables of a process between its tasks, so that the next micro-batch reads only new records.

A table that is not in the cache is read in full, which is always correct. The cache does not return a table if

- the topic was created again, or its partition has had a leader election: an offset may then mean another record;
- it starts after the start of the wanted range, or ends after its end;
- it was not updated for IDLE_S_MAX. Tombstones that delete some of its keys may have been removed by then: a topic
  keeps them for `delete.retention.ms`, a day by default. This also removes the tables of queries that have ended;
- its full read was longer than AGE_S_MAX ago: the table keeps tombstones, and only a full read removes them;
- the cache was full. A table in use is never evicted for another one: tables are used in turn, and each would evict the
  one that is needed next.
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
    """As long as this is unchanged, an offset of a partition means the same record."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch


@value_class
class _Entry:
    table: KeyTable
    incarnation: Incarnation
    full_read_s: float
    used_s: float


class TableCache:
    def __init__(self, *, clock: Clock, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._clock = clock
        self._size_bytes_max = size_bytes_max
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = Lock()

    def find(self, name: Hashable, incarnation: Incarnation, start: Offset, end: Offset) -> KeyTable | None:
        """Return a table that can be extended to the offsets from `start` to `end`; remove one that cannot."""
        with self._lock:
            self._remove_expired()
            entry = self._entries.get(name)
            if entry is None:
                return None
            if entry.incarnation == incarnation and entry.table.can_extend_to(start, end):
                return entry.table
            del self._entries[name]
            return None

    def free_bytes(self, name: Hashable) -> int:
        """Return how large a table of this name may be to be cached."""
        with self._lock:
            return self._free_bytes(name)

    def put(self, name: Hashable, incarnation: Incarnation, table: KeyTable) -> None:
        """Cache a table in place of the one that was found, if any; cache none if it is too large."""
        now_s = self._clock.monotonic()
        with self._lock:
            before = self._entries.get(name)
            if table.size_bytes <= self._free_bytes(name):
                since_s = now_s if before is None else before.full_read_s
                self._entries[name] = _Entry(table, incarnation, since_s, now_s)
            elif before is not None:
                del self._entries[name]

    def remove(self, name: Hashable) -> None:
        with self._lock:
            self._entries.pop(name, None)

    def _free_bytes(self, name: Hashable) -> int:
        others = sum(entry.table.size_bytes for other, entry in self._entries.items() if other != name)
        return self._size_bytes_max - others

    def _remove_expired(self) -> None:
        now_s = self._clock.monotonic()
        self._entries = {
            name: entry
            for name, entry in self._entries.items()
            if now_s - entry.used_s < IDLE_S_MAX and now_s - entry.full_read_s < AGE_S_MAX
        }
