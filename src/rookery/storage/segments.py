"""The segments of one log in their order, and the producer snapshots beside them.

`Log` decides what comes and goes; this keeps the lists and the directory in step. Segments that were given up stay
doomed, without a place in the log, until `take_doomed` hands out their files.

Invariants: there is at least one segment, the last one is `active`; `bases` are the segments' base offsets and grow.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import File, Files
from rookery.base.types import Offset, ProducerId, TimestampMs
from rookery.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name
from rookery.storage.producers import ProducerStates
from rookery.storage.recovery import LogView, rebuild_aborted
from rookery.storage.segment import Segment
from rookery.storage.transactions import AbortedIndex, find_aborted

logger = structlog.get_logger(__name__)


class Segments:
    __slots__ = ("_directory", "_doomed", "_files", "active", "all", "bases", "snapshots")

    def __init__(self, files: Files, directory: Path, segments: list[Segment], snapshots: list[Offset]) -> None:
        self._files = files
        self._directory = directory
        self._doomed: list[Segment] = []
        # Oldest first, as are the snapshots' offsets.
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.snapshots = snapshots

    def begin(self, base_offset: Offset, *, index_interval_bytes: int, created_ms: TimestampMs) -> None:
        """A new segment becomes the active one."""
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
        """From the newest on, each before the next: a crash may leave later ones out, but no hole."""
        while len(self.all) > kept:
            self.all.pop().remove()
            self.bases.pop()
            self._files.sync_directory(self._directory)
        if self.all:
            self.active = self.all[-1]

    def open_files(self, sealed: Sequence[Segment], snapshots: Sequence[Offset]) -> list[File]:
        """The active segment's file, and all that belong to these segments and snapshots."""
        paths = [self.snapshot_path(offset) for offset in snapshots]
        for segment in sealed:
            paths.extend(segment.paths())
        return [self.active.open_file(), *map(self._files.open, paths)]

    def slots_of(self, old: Sequence[Segment]) -> slice | None:
        """Where neighbouring sealed segments are; None if they are not that."""
        slot = self.all.index(old[0])
        found = slice(slot, slot + len(old))
        return found if self.all[found] == list(old) and self.active not in old else None

    def replace(self, slots: slice, new: Segment) -> None:
        """`new` stands in the place of some; only the first one's snapshot is still one of a segment's start."""
        end = self.bases[slots.stop]
        self.remove_snapshots(lambda offset: new.base_offset < offset < end)
        self.all[slots] = [new]
        self.bases[slots] = [new.base_offset]

    # What was aborted

    def find_aborted(self, start: Offset, end: Offset) -> Sequence[tuple[ProducerId, Offset]]:
        """(producer id, first offset) of the aborted transactions with something in [start, end), by first offset."""
        slot = max(0, bisect_right(self.bases, start) - 1)
        with_aborted = (segment for segment in self.all[slot:] if segment.has_aborted)
        return find_aborted(map(self.aborted_index, with_aborted), start, end)

    def aborted_index(self, segment: Segment) -> AbortedIndex:
        """The segment's own, rebuilt if its file is damaged or lost."""
        try:
            return segment.aborted
        except (CorruptionError, FileNotFoundError) as error:
            logger.warning("rebuilding an aborted index from its log", path=str(segment.path()), reason=str(error))
            base_offset, slot = segment.base_offset, self.all.index(segment)
            # It may be compacted, for all that is known here.
            below = LogView(self.all[:slot], self.snapshots, base_offset, base_offset, is_compacted=True)
            segment.aborted = rebuild_aborted(self._files, self._directory, segment, below)
            return segment.aborted

    # Giving up the start

    @property
    def has_doomed(self) -> bool:
        return bool(self._doomed)

    def doom_oldest(self, count: int) -> None:
        self._doomed += self.all[:count]
        del self.all[:count]
        del self.bases[:count]

    def take_doomed(self) -> list[Path]:
        """The files of the doomed segments, oldest first, under names that nothing else gets."""
        paths: list[Path] = []
        for segment in self._doomed:
            segment.rename(DELETED_SUFFIX)
            paths.extend(segment.paths())
        self._doomed = []
        if self.bases:
            self.remove_snapshots(lambda offset: offset < self.bases[0])
        return paths

    # Snapshots

    def snapshot_path(self, offset: Offset) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)

    def write_snapshot(self, offset: Offset, producers: ProducerStates) -> bool:
        """Note the producers as of `offset`, the end of the log; False if that has been done or there is nothing."""
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
