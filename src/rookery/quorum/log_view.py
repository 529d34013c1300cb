"""What the quorum's core knows of the metadata log: offsets and epochs, no bytes. Pure.

The shell appends and syncs; the core is notified when a sync has finished. Only synced offsets count for a majority,
those of the leader itself included: with its unsynced end, a leader that loses power would come back without a record
that it had declared committed.
"""

from typing import Final, NamedTuple, TypeAlias

from rookery.base.types import LeaderEpoch, Offset
from rookery.storage.epochs import LeaderEpochs


class LogPosition(NamedTuple):
    """An offset and the epoch before it: the end of a log, of an epoch, or of a snapshot. Compared epoch first."""

    epoch: LeaderEpoch
    offset: Offset


class Valid(NamedTuple):
    """The two logs agree up to the offset."""


class Diverging(NamedTuple):
    """The logs differ. `end` is the end of the largest epoch of this log up to the requested one."""

    end: LogPosition


class SnapshotNeeded(NamedTuple):
    """The log no longer has the offset, or the reader's log is empty: it must start from this snapshot."""

    snapshot: LogPosition


Comparison: TypeAlias = Valid | Diverging | SnapshotNeeded
VALID: Final = Valid()
NOTHING: Final = LogPosition(0, 0)


class LogView:
    """The log of this node: where it starts, which epoch began where, and up to where it is synced."""

    def __init__(
        self, epochs: LeaderEpochs, *, end_offset: Offset, start: LogPosition = NOTHING, snapshot: LogPosition = NOTHING
    ) -> None:
        """`start` is the end of the snapshot that the log begins after; `snapshot` that of the newest one."""
        self._epochs = epochs
        self.start = start
        self.snapshot = snapshot
        self.end_offset = end_offset
        # All records of the log were read from the disk at start.
        self.synced_offset = end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        return max(self._epochs.latest, self.start.epoch)

    @property
    def end(self) -> LogPosition:
        return LogPosition(self.last_epoch, self.end_offset)

    def append(self, epoch: LeaderEpoch, count: int) -> Offset:
        """Note that `count` records of `epoch` were appended; return the offset of the first."""
        base_offset = self.end_offset
        self._epochs.assign(epoch, base_offset)
        self.end_offset += count
        return base_offset

    def synced(self, offset: Offset) -> None:
        # A sync that began before a truncation may report an offset that is gone.
        self.synced_offset = max(self.synced_offset, min(offset, self.end_offset))

    def truncate(self, end_offset: Offset) -> None:
        self._epochs.truncate_from_end(end_offset)
        self.end_offset = end_offset
        # Without this, records that are appended in place of those that were cut would count as synced.
        self.synced_offset = min(self.synced_offset, end_offset)

    def restart_at(self, snapshot: LogPosition) -> None:
        """Note that the log was emptied, and continues after a snapshot."""
        self._epochs.truncate_from_end(0)
        self.start = self.snapshot = snapshot
        self.end_offset = self.synced_offset = snapshot.offset

    def end_of_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """Return the largest epoch up to `epoch`, and its end offset."""
        if epoch >= self._epochs.latest:
            return self.end
        earliest = self._epochs.earliest
        if epoch < self.start.epoch or earliest is None or epoch < earliest.epoch:
            return self.start
        return LogPosition(*self._epochs.end_offset_for(epoch, self.end_offset))

    def compare(self, offset: Offset, epoch: LeaderEpoch) -> Comparison:
        """Compare with another replica's log that ends at `offset`, in `epoch`."""
        if offset == 0 and self.snapshot.offset > 0:
            return SnapshotNeeded(self.snapshot)
        if (offset, epoch) == (0, 0) and self.start.offset == 0:
            return VALID
        if offset < self.start.offset or (offset == self.start.offset and epoch != self.start.epoch):
            return SnapshotNeeded(self.snapshot)
        if epoch < self.start.epoch:
            return SnapshotNeeded(self.snapshot)
        end = self.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Diverging(end)
        return VALID
