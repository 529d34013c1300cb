"""Which leader epoch began at which offset: the history by which replicas and clients find where two logs diverge.

Pure: the log decides when the entries are written. Epochs and start offsets both increase from entry to entry. The file
may be older than the log, because every batch carries its epoch and recovery reads them again; it is brought up to date
before the recovery point moves past an entry.
"""

from bisect import bisect_right
from collections.abc import Iterable

from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from rookery.storage.checkpoints import EpochStart


class LeaderEpochs:
    __slots__ = ("_entries", "version")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._entries = list(entries)
        # Counts changes; the log compares it with the version that it last wrote to the file.
        self.version = 0

    def entries(self) -> list[EpochStart]:
        return list(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    @property
    def earliest(self) -> EpochStart | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that `epoch` begins at `start_offset` and drop entries that contradict it; False if known already."""
        latest = self._entries[-1] if self._entries else None
        if latest and latest.epoch == epoch and start_offset >= latest.start_offset:
            return False
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        self.version += 1
        return True

    def end_offset_for(self, epoch: LeaderEpoch, end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch up to `epoch` and the offset where it ended; (-1, -1) if neither is known."""
        if epoch == NO_LEADER_EPOCH or not self._entries or epoch > self.latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, end_offset
        following = self._slot_after(epoch)
        found = self._entries[following - 1].epoch if following else epoch
        return found, self._entries[following].start_offset

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch that wrote `offset`; -1 if unknown."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else NO_LEADER_EPOCH

    def clear(self) -> None:
        """Drop all epochs."""
        if self._entries:
            self._entries.clear()
            self.version += 1

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Drop the epochs that begin at or after the new end."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.version += 1

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Drop the epochs that ended before the new start; the one that spans it now begins there."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot and self._entries[0].start_offset < start_offset:
            self._entries[:slot] = [EpochStart(self._entries[slot - 1].epoch, start_offset)]
            self.version += 1

    def _slot_after(self, epoch: LeaderEpoch) -> int:
        return bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
