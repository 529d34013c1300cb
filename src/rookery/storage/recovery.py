"""Opens a log: after a clean stop by file names alone, after a crash by checking everything beyond the recovery point.

After a clean stop the recovery point is the end of the log, and a producer snapshot at that offset confirms it. Then no
file is opened, and segments, epochs and producers are loaded when they are needed.

After a crash, segments that reach the recovery point, and the last one in any case, are read batch by batch, with a CRC
check of what was not flushed. The log ends at the first batch that is torn, out of order or fails its CRC, and at a
hole between segments that were not flushed: records after that point were never guaranteed to survive. Indexes, epochs
and producers are rebuilt in the same pass.

No crash explains damage below the recovery point: a segment of the manifest that is missing or has another size, or a
pass that ends before the recovery point. Then DamagedLogError is raised, and all records stay where they are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import Files
from rookery.base.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, Offset, TimestampMs
from rookery.records.batch import BatchHeader
from rookery.storage import replacement
from rookery.storage.checkpoints import LEADER_EPOCH_FILE, decode_epochs
from rookery.storage.config import LogConfig
from rookery.storage.damage import Damage, DamagedLogError
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.manifest import ListedLog, check_listed, clip
from rookery.storage.names import (
    ABORTED_INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    file_name,
    offset_of,
    suffix_of,
)
from rookery.storage.producers import ProducerStates
from rookery.storage.segment import UNKNOWN_SIZE, Segment
from rookery.storage.segment_check import CheckedWalk, read_end_marker
from rookery.storage.transactions import AbortedIndex, AbortedTransaction

logger = structlog.get_logger(__name__)

_NO_LIMIT = 2**63


class LogView(NamedTuple):
    """The part of a log from which producers or epochs are loaded."""

    segments: list[Segment]
    snapshots: list[Offset]
    start_offset: Offset
    end_offset: Offset
    # Whether compaction may have removed batches that followed an older snapshot.
    is_compacted: bool


@dataclass(slots=True)
class LoadedLog:
    """The parts of a log; epochs and producers are None until they are needed."""

    segments: list[Segment]
    start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    snapshots: list[Offset] = field(default_factory=list)
    epochs: LeaderEpochs | None = None
    producers: ProducerStates | None = None
    # Sealed segments whose index files, and snapshots which, the next flush must sync.
    unsynced: list[Segment] = field(default_factory=list)
    unsynced_snapshots: list[Offset] = field(default_factory=list)
    # Whether the directory or its first segment was created just now.
    is_new: bool = False
    # Whether `Log.close` has something to write.
    is_dirty: bool = False

    @property
    def lost_synced(self) -> bool:
        """Whether the log ends before the recovery point; not if all records before it were deleted anyway."""
        return self.end_offset < self.recovery_point and self.recovery_point > self.start_offset


def load(
    files: Files,
    directory: Path,
    config: LogConfig,
    *,
    now_ms: TimestampMs,
    recovery_point: Offset,
    start_offset: Offset,
    clean: bool,
    listed: ListedLog | None = None,
) -> LoadedLog:
    """Load a log, repairing it after an unclean stop; `listed` is its entry in the manifest."""
    loader = _Loader(files, directory, config, now_ms)
    names = loader.list_names()
    numbered = [(offset, name) for name in names if (offset := offset_of(name)) is not None]
    if listed is not None:
        loader.check(clip(listed, recovery_point), numbered, clean=clean)
    segments = loader.find_segments(numbered, start_offset)
    snapshots = [offset for offset, name in numbered if suffix_of(name) == SNAPSHOT_SUFFIX]
    if not segments:
        loader.remove_snapshots(snapshots)
        return loader.create(start_offset)
    start_offset = max(start_offset, segments[0].base_offset)
    loaded = LoadedLog(segments, start_offset, recovery_point, recovery_point, snapshots)
    if not clean or not loader.confirms(loaded):
        loader.recover(loaded, has_epochs=LEADER_EPOCH_FILE in names)
    if loaded.end_offset < start_offset:
        # Records were deleted up to an offset that did not survive the crash: the remaining ones are deleted too, and a
        # new record must not get an offset below the start.
        loader.remove_segments(loaded, 0)
        loader.remove_snapshots([*snapshots, *loaded.unsynced_snapshots])
        return loader.create(start_offset)
    loader.remove_stray_snapshots(loaded)
    return loaded


def load_epochs(files: Files, directory: Path, view: LogView) -> LeaderEpochs:
    """Load the epochs from their file or, if that is unreadable, from the headers of all batches."""
    try:
        epochs = LeaderEpochs(decode_epochs(files.read_file(directory / LEADER_EPOCH_FILE)))
    except FileNotFoundError:
        epochs = LeaderEpochs()
    except CorruptionError as error:
        logger.warning("rebuilding the leader epochs from the log", directory=str(directory), reason=str(error))
        epochs = LeaderEpochs()
        for _, _, header in _batches_from(view, view.start_offset):
            note_epoch(epochs, header)
    epochs.truncate_from_end(view.end_offset)
    epochs.truncate_from_start(view.start_offset)
    return epochs


def load_producers(files: Files, directory: Path, view: LogView) -> ProducerStates:
    """Load the producers from the latest valid snapshot and the batches after it.

    Batches below the start offset count too: a transaction that is open in the snapshot may have ended there.
    """
    first_offset = view.segments[0].base_offset if view.segments else view.end_offset
    producers, offset = ProducerStates(), first_offset
    for snapshot in reversed(view.snapshots):
        # An older snapshot, whose batches are gone, would restore transactions whose end markers are gone with them:
        # they would never end, and the last stable offset would never advance again.
        if not first_offset <= snapshot <= view.end_offset:
            continue
        try:
            producers = ProducerStates.decode(files.read_file(directory / file_name(snapshot, SNAPSHOT_SUFFIX)))
            offset = snapshot
            break
        except (CorruptionError, FileNotFoundError) as error:
            logger.warning("ignoring a producer snapshot", directory=str(directory), offset=snapshot, reason=str(error))
            if view.is_compacted:
                # An older snapshot may hold a transaction whose marker compaction has removed: it would never end.
                # Without any snapshot no such transaction begins, because its data was removed before its marker.
                break
    for segment, position, header in _batches_from(view, offset):
        _replay(producers, segment, position, header)
    return producers


def rebuild_aborted(files: Files, directory: Path, segment: Segment, below: LogView) -> AbortedIndex:
    """Build a segment's aborted index from its batches and the transactions that the log `below` it leaves open."""
    producers = load_producers(files, directory, below)
    index = AbortedIndex()
    for position, header in segment.headers():
        aborted = _replay(producers, segment, position, header)
        if aborted is not None:
            index.append(aborted)
    return index


def _replay(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    if header.producer_id == NO_PRODUCER_ID:
        return None
    if header.is_control:
        return producers.end_transaction(header, read_end_marker(segment.read_batch(position, header)))
    producers.update(header)
    return None


def note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.leader_epoch != NO_LEADER_EPOCH and header.leader_epoch > epochs.latest:
        epochs.assign(header.leader_epoch, header.base_offset)


def _batches_from(view: LogView, offset: Offset) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Yield (segment, position, header) of the batches that begin in [offset, end offset)."""
    if offset >= view.end_offset:
        return
    for slot, segment in enumerate(view.segments):
        if slot + 1 < len(view.segments) and view.segments[slot + 1].base_offset <= offset:
            continue
        for position, header in segment.headers(segment.position_of(offset)):
            if header.base_offset >= view.end_offset:
                return
            if header.base_offset >= offset:
                yield segment, position, header


class _Loader:
    def __init__(self, files: Files, directory: Path, config: LogConfig, now_ms: TimestampMs) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        # From the manifest: its entry for the log, the sizes of segments, and which of them have an aborted index.
        self._listed: ListedLog | None = None
        self._sizes: dict[Offset, int] = {}
        self._with_aborted: set[Offset] = set()

    def check(self, listed: ListedLog, numbered: list[tuple[Offset, str]], *, clean: bool) -> None:
        """Raise DamagedLogError unless all listed segments were found."""
        found = {offset for offset, name in numbered if suffix_of(name) == LOG_SUFFIX}
        self._listed = listed
        self._sizes = check_listed(self._files, self._directory, found, listed, clean=clean)
        # A listed index whose file is gone still counts: reading it fails, and it is rebuilt then.
        self._with_aborted = {segment.base_offset for segment in listed.segments if segment.has_aborted}

    def list_names(self) -> list[str]:
        """Finish interrupted replacements and return the names in the directory; empty if it does not exist."""
        try:
            names = self._files.list_directory(self._directory)
        except FileNotFoundError:
            return []
        if any(map(replacement.is_unfinished, names)):
            interval = self._config.index_interval_bytes
            replacement.finish(self._files, self._directory, index_interval_bytes=interval, now_ms=self._now_ms)
            names = self._files.list_directory(self._directory)
        return names

    def find_segments(self, numbered: list[tuple[Offset, str]], start_offset: Offset) -> list[Segment]:
        """Return the segments by name; removes files of segments below the start, and index files without a log."""
        bases = [offset for offset, name in numbered if suffix_of(name) == LOG_SUFFIX]
        while len(bases) > 1 and bases[1] <= start_offset:
            del bases[0]
        kept = set(bases)
        for offset, name in numbered:
            if offset not in kept and suffix_of(name) in SEGMENT_SUFFIXES:
                self._files.remove(self._directory / name)
        self._with_aborted.update(offset for offset, name in numbered if suffix_of(name) == ABORTED_INDEX_SUFFIX)
        return [self._segment(base) for base in bases]

    def _segment(self, base_offset: Offset) -> Segment:
        return Segment(
            self._files,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            created_ms=self._now_ms,
            size_bytes=self._sizes.get(base_offset, UNKNOWN_SIZE),
            has_aborted_file=base_offset in self._with_aborted,
        )

    def create(self, start_offset: Offset) -> LoadedLog:
        """Create an empty log. Its names are synced by the first flush: until then there is nothing to lose."""
        self._files.make_directory(self._directory)
        segment = Segment.create(
            self._files,
            self._directory,
            start_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            created_ms=self._now_ms,
        )
        segment.release()
        return LoadedLog(
            [segment],
            start_offset,
            start_offset,
            start_offset,
            epochs=LeaderEpochs(),
            producers=ProducerStates(),
            is_new=True,
            is_dirty=True,
        )

    def confirms(self, loaded: LoadedLog) -> bool:
        """Return whether the files agree with the recovery point that a clean stop left; costs one stat at most."""
        last = loaded.segments[-1]
        if loaded.recovery_point in loaded.snapshots and loaded.recovery_point > last.base_offset:
            return True
        return loaded.recovery_point == last.base_offset and last.size_bytes == 0

    def recover(self, loaded: LoadedLog, *, has_epochs: bool) -> None:
        """Find the true end of the log, and repair what lies beyond the recovery point.

        `has_epochs` says whether there is a file of epochs: after a crash thousands of empty logs have none.
        """
        first = self._first_unflushed(loaded)
        base = loaded.segments[first].base_offset
        below = LogView(loaded.segments[:first], loaded.snapshots, loaded.start_offset, base, self._config.compacts)
        loaded.producers = load_producers(self._files, self._directory, below)
        loaded.epochs = LeaderEpochs()
        if has_epochs:
            loaded.epochs = load_epochs(self._files, self._directory, below._replace(end_offset=_NO_LIMIT))
        # Entries beyond may name batches that the crash took; the pass adds the epochs of those that are left.
        loaded.epochs.truncate_from_end(max(loaded.recovery_point, base))
        loaded.end_offset = base
        for slot in range(first, len(loaded.segments)):
            segment = loaded.segments[slot]
            # Compaction leaves gaps, but only below the recovery point. Beyond it a segment is missing, and consumers
            # would skip its records without an error if the segments after it were served.
            is_hole = slot > first and segment.base_offset > max(loaded.recovery_point, loaded.end_offset)
            if slot > first and not is_hole:
                self._write_snapshot(loaded, segment.base_offset)
            if is_hole or not self._check_segment(loaded, slot):
                self._end_at(loaded, slot if is_hole else slot + 1)
                break
            self._check_listed_end(loaded, segment)
        if loaded.lost_synced:
            last = loaded.segments[-1]
            raise self._damaged(loaded, last, last.size_bytes, "the log ends there")
        self._seal(loaded, first)
        self._remove_unverified_snapshots(loaded, base)
        for segment in loaded.segments[first:]:
            segment.release()
        loaded.epochs.truncate_from_end(loaded.end_offset)
        loaded.recovery_point = min(loaded.recovery_point, loaded.end_offset)
        loaded.is_dirty = True

    def _first_unflushed(self, loaded: LoadedLog) -> int:
        """Return the slot of the first segment that reaches the recovery point, at most the last one.

        A segment that ends at the recovery point may have been sealed after the flush, so its index files may be torn.
        A torn offset or time index fails its checks, but an aborted index that lost its bytes looks like one that never
        had any: readers would be handed the records of aborted transactions.
        """
        for slot in range(len(loaded.segments) - 1):
            if loaded.segments[slot + 1].base_offset >= loaded.recovery_point:
                return slot
        return len(loaded.segments) - 1

    def _check_segment(self, loaded: LoadedLog, slot: int) -> bool:
        """Read one segment, index it and cut it at the first bad batch; False if it was cut."""
        assert loaded.epochs is not None
        assert loaded.producers is not None
        segment = loaded.segments[slot]
        limit = loaded.segments[slot + 1].base_offset if slot + 1 < len(loaded.segments) else _NO_LIMIT
        walk = CheckedWalk(segment, loaded.epochs, loaded.producers, recovery_point=loaded.recovery_point, limit=limit)
        segment.reset_indexes()
        segment.aborted = AbortedIndex()
        try:
            segment.index_batches(walk.batches())
        except CorruptionError as error:
            loaded.end_offset = walk.end_offset
            if loaded.lost_synced:
                # The batches after this one were synced and may be acknowledged: cutting here would lose them all for
                # one bad batch.
                raise self._damaged(loaded, segment, walk.valid_size, str(error)) from error
            logger.warning(
                "cutting a log at its first bad batch",
                path=str(segment.path()),
                offset=walk.end_offset,
                position=walk.valid_size,
                cut_bytes=segment.size_bytes - walk.valid_size,
                reason=str(error),
            )
        loaded.end_offset = walk.end_offset
        if walk.valid_size == segment.size_bytes:
            return True
        segment.cut(walk.valid_size)
        return False

    def _check_listed_end(self, loaded: LoadedLog, segment: Segment) -> None:
        """Raise DamagedLogError if the manifest says that the segment reached further.

        Without the manifest, a file that was cut looks like one after which compaction has left a gap.
        """
        listed = self._listed
        if listed is not None and listed.growing == segment.base_offset and loaded.end_offset < listed.recovery_point:
            raise self._damaged(loaded, segment, segment.size_bytes, "the file ends there")

    @staticmethod
    def _damaged(loaded: LoadedLog, segment: Segment, position: int, reason: str) -> DamagedLogError:
        damage = Damage(segment.path(), position, loaded.end_offset, loaded.recovery_point, reason)
        return DamagedLogError(damage)

    def _end_at(self, loaded: LoadedLog, slot: int) -> None:
        """Remove the segments from `slot` on."""
        if slot < len(loaded.segments):
            logger.error(
                "removing segments beyond the end of a log",
                directory=str(self._directory),
                end_offset=loaded.end_offset,
                segments=[segment.base_offset for segment in loaded.segments[slot:]],
            )
        self.remove_segments(loaded, slot)

    def remove_segments(self, loaded: LoadedLog, slot: int) -> None:
        """Remove segments, newest first, with a sync after each: another crash in between cannot leave a hole."""
        while len(loaded.segments) > slot:
            loaded.segments.pop().remove()
            self._files.sync_directory(self._directory)

    def _seal(self, loaded: LoadedLog, first: int) -> None:
        """Write the rebuilt index files of all checked segments but the last."""
        for segment in loaded.segments[first:-1]:
            segment.write_indexes()
            loaded.unsynced.append(segment)

    def _write_snapshot(self, loaded: LoadedLog, offset: Offset) -> None:
        """Replace the snapshot at a segment's start.

        The old one may be torn. It would fail its checks only when it is read, perhaps after the batches from which it
        could be rebuilt are deleted.
        """
        assert loaded.producers is not None
        self._files.write_file(self._directory / file_name(offset, SNAPSHOT_SUFFIX), loaded.producers.encode())
        loaded.unsynced_snapshots.append(offset)
        loaded.snapshots = sorted({*loaded.snapshots, offset})

    def _remove_unverified_snapshots(self, loaded: LoadedLog, base: Offset) -> None:
        """Remove the snapshots beyond `base`, where the pass began, that were not written again: they may be torn."""
        unverified = [
            offset for offset in loaded.snapshots if offset > base and offset not in loaded.unsynced_snapshots
        ]
        self.remove_snapshots(unverified)
        if unverified:
            # A snapshot that came back after another crash could hold sequence numbers of batches that were cut: a
            # retry of such a batch would be acknowledged as a duplicate, and its records lost.
            self._files.sync_directory(self._directory)
        loaded.snapshots = [offset for offset in loaded.snapshots if offset not in unverified]

    def remove_snapshots(self, offsets: Iterable[Offset]) -> None:
        for offset in offsets:
            self._files.remove(self._directory / file_name(offset, SNAPSHOT_SUFFIX))

    def remove_stray_snapshots(self, loaded: LoadedLog) -> None:
        """Keep the snapshots of segment starts and the latest; those beyond the end describe batches that were cut."""
        bases = {segment.base_offset for segment in loaded.segments}
        alive = [offset for offset in loaded.snapshots if offset <= loaded.end_offset]
        kept = [offset for offset in alive if offset in bases or offset == alive[-1]]
        self.remove_snapshots([offset for offset in loaded.snapshots if offset not in kept])
        if len(alive) < len(loaded.snapshots):
            self._files.sync_directory(self._directory)
        loaded.snapshots = kept
