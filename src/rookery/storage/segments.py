"""The segments of one log in order, and the producer snapshots next to them.

`Log` decides which segments are added and removed; this class keeps the lists and the directory consistent. Segments
that retention has detached are no longer part of the log; their files stay until `take_detached_files` renames them.

Invariants: there is at least one segment, the last one is `active`; `bases` are the segments' base offsets and
increase.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import File, Files
from rookery.base.types import Offset, TimestampMs
from rookery.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name
from rookery.storage.producers import ProducerStates
from rookery.storage.recovery import LogView, rebuild_aborted
from rookery.storage.segment import Segment
from rookery.storage.transactions import AbortedIndex, AbortedStarts, find_aborted

logger = structlog.get_logger(__name__)


class Segments:
    __slots__ = ("_detached", "_directory", "_files", "active", "all", "bases", "snapshots")

    def __init__(self, files: Files, directory: Path, segments: list[Segment], snapshots: list[Offset]) -> None:
        self._files = files
        self._directory = directory
        self._detached: list[Segment] = []
        # Oldest first; the snapshots' offsets increase as well.
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.snapshots = snapshots

    def begin(self, base_offset: Offset, *, index_interval_bytes: int, created_ms: TimestampMs) -> None:
        """Create a new segment and make it the active one."""
        segment = Segment.create(
            self._files,
            self._directory,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            created_ms=created_ms,
        )
        self.all.append(segment)
        self.bases.append(base_offset)
        self.active = segment

    def drop_from(self, kept: int) -> None:
        """Keep the first `kept` segments and remove the others, newest first, with a sync after each.

        A crash in between leaves fewer segments at the end, but no hole: recovery would end the log at a hole.
        """
        while len(self.all) > kept:
            self.all.pop().remove()
            self.bases.pop()
            self._files.sync_directory(self._directory)
        if self.all:
            self.active = self.all[-1]

    def open_files(self, sealed: Sequence[Segment], snapshots: Sequence[Offset]) -> list[File]:
        """Return the active segment's file and all files of these segments and snapshots, opened."""
        paths = [self.snapshot_path(offset) for offset in snapshots]
        for segment in sealed:
            paths.extend(segment.paths())
        return [self.active.open_file(), *map(self._files.open, paths)]

    def slots_of(self, old: Sequence[Segment]) -> slice | None:
        """Return the slice of `all` that `old` occupies; None unless they are neighbouring sealed segments."""
        slot = self.all.index(old[0])
        found = slice(slot, slot + len(old))
        return found if self.all[found] == list(old) and self.active not in old else None

    def replace(self, slots: slice, new: Segment) -> None:
        """Put `new` in place of the segments in `slots`.

        Snapshots between its base offset and its end are removed: they are no longer at the start of a segment.
        """
        end = self.bases[slots.stop]
        self.remove_snapshots(lambda offset: new.base_offset < offset < end)
        self.all[slots] = [new]
        self.bases[slots] = [new.base_offset]

    # Aborted transactions

    def find_aborted(self, start: Offset, end: Offset) -> AbortedStarts:
        """Return the aborted transactions with records in [start, end)."""
        slot = max(0, bisect_right(self.bases, start) - 1)
        with_aborted = (segment for segment in self.all[slot:] if segment.has_aborted)
        return find_aborted(map(self.aborted_index, with_aborted), start, end)

    def aborted_index(self, segment: Segment) -> AbortedIndex:
        """Return the segment's aborted index, rebuilt if its file is damaged or lost."""
        try:
            return segment.aborted
        except (CorruptionError, FileNotFoundError) as error:
            logger.warning("rebuilding an aborted index from its log", path=str(segment.path()), reason=str(error))
            base_offset, slot = segment.base_offset, self.all.index(segment)
            # Whether the log was compacted is not known here; assuming so costs a longer replay and is always correct.
            below = LogView(self.all[:slot], self.snapshots, base_offset, base_offset, is_compacted=True)
            segment.aborted = rebuild_aborted(self._files, self._directory, segment, below)
            return segment.aborted

    # Deletion from the start

    @property
    def has_detached(self) -> bool:
        return bool(self._detached)

    def detach_oldest(self, count: int) -> None:
        self._detached += self.all[:count]
        del self.all[:count]
        del self.bases[:count]

    def take_detached_files(self) -> list[Path]:
        """Rename the files of detached segments to names that are never reused; returns the new paths, oldest first."""
        paths: list[Path] = []
        for segment in self._detached:
            segment.rename(DELETED_SUFFIX)
            paths.extend(segment.paths())
        self._detached = []
        if self.bases:
            self.remove_snapshots(lambda offset: offset < self.bases[0])
        return paths

    # Snapshots

    def snapshot_path(self, offset: Offset) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)

    def write_snapshot(self, offset: Offset, producers: ProducerStates) -> bool:
        """Write a snapshot of the producers as of `offset`, the end of the log.

        Returns False if there is one already or the log has never held anything.
        """
        is_empty = len(self.all) == 1 and not self.active.size_bytes and not len(producers)
        if offset in self.snapshots or is_empty:
            return False
        self._files.write_file(self.snapshot_path(offset), producers.encode())
        self.snapshots.append(offset)
        self.snapshots.sort()
        return True

    def remove_snapshots(self, is_obsolete: Callable[[Offset], bool]) -> None:
        for offset in [known for known in self.snapshots if is_obsolete(known)]:
            self.snapshots.remove(offset)
            self._files.remove(self.snapshot_path(offset))
