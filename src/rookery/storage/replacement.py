"""Replaces segments by a cleaned one so that a crash at any moment leaves the old ones or the new one.

1. The cleaner writes the new segment under names that end in `.cleaned` and seals it: files and names are synced.
2. `swap_in` renames it to `.swap`, the log file last, and syncs the directory: this is the commit.
3. The old segments are renamed to `.deleted`, newest first; the new index files get their final names; sync.
4. The new log file gets its final name; sync.
5. The cleaner's thread removes the `.deleted` files, which takes long for large ones, before it swaps again.

At the next start `finish` removes `.cleaned` files (never committed), completes a `.swap` and removes `.deleted` files.
Index files of an interrupted swap are not trusted but rebuilt, because those of an old segment may still have the same
names. Which old segments a `.swap` replaces is derived from its last offset and from the `.deleted` names, and the
`.deleted` files are removed only after the swap has ended. So an old segment with the value of a key cannot stay when
the tombstone that deleted the key was cleaned away: the key would come back.
"""

from collections.abc import Sequence
from pathlib import Path

from rookery.base.files import Files
from rookery.base.types import Offset, TimestampMs
from rookery.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    STAGE_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    file_name,
    offset_of,
    suffix_of,
)
from rookery.storage.segment import Segment


def create_cleaned(
    files: Files, directory: Path, base_offset: Offset, *, index_interval_bytes: int, created_ms: TimestampMs
) -> Segment:
    """Create an empty segment that will replace others, the first of which begins at `base_offset`.

    It never gets an aborted index: cleaning removes all data of the transactions whose abort markers it copies.
    """
    return Segment.create(
        files,
        directory,
        base_offset,
        index_interval_bytes=index_interval_bytes,
        created_ms=created_ms,
        stage=CLEANED_SUFFIX,
    )


def seal_and_sync(segment: Segment) -> None:
    """Write and sync the files of a segment that will replace others: the last step of the cleaner's thread."""
    segment.write_indexes()
    for path in segment.paths():
        segment.files.open(path).sync()
    segment.files.sync_directory(segment.directory)


def swap_in(old: Sequence[Segment], new: Segment) -> None:
    """Do steps 2 to 4, on the event loop, so that no reader sees a partial swap. The caller does step 5."""
    files, directory = new.files, new.directory
    new.rename(SWAP_SUFFIX)
    files.sync_directory(directory)
    for segment in reversed(old):
        segment.rename(DELETED_SUFFIX)
    new.rename("", sync_between=True)
    files.sync_directory(directory)


def is_unfinished(name: str) -> bool:
    return name.endswith((*STAGE_SUFFIXES, TEMPORARY_SUFFIX))


def finish(files: Files, directory: Path, *, index_interval_bytes: int, now_ms: TimestampMs) -> None:
    """Complete or undo the replacements that a crash interrupted."""
    names = files.list_directory(directory)
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = offset_of(name)
            if base_offset is not None:
                swap = Segment(
                    files,
                    directory,
                    base_offset,
                    index_interval_bytes=index_interval_bytes,
                    created_ms=now_ms,
                    stage=SWAP_SUFFIX,
                )
                _complete(swap, names)
    for name in files.list_directory(directory):
        if is_unfinished(name):
            files.remove(directory / name)
    files.sync_directory(directory)


def _complete(swap: Segment, names: Sequence[str]) -> None:
    files, directory = swap.files, swap.directory
    swap.rebuild_indexes()
    # If cleaning left nothing of the last old segments, they lie after the last offset of the new one. All segments
    # below the newest `.deleted` one must go: one that stays could hold the value of a key whose tombstone was in it.
    end = max(swap.next_offset(), swap.base_offset + 1, _deleted_end(names))
    for name in names:
        offset = offset_of(name)
        if offset is not None and swap.base_offset <= offset < end and _is_replaced(name, offset, swap.base_offset):
            files.remove(directory / name)
    for suffix in SEGMENT_SUFFIXES[1:]:
        files.remove(swap.path(suffix))
    # The old index files must be gone before the log file gets its name: after a crash here they would be taken for
    # its own and point into the middle of batches.
    files.sync_directory(directory)
    files.rename(swap.path(), directory / file_name(swap.base_offset, LOG_SUFFIX))
    swap.stage = ""
    seal_and_sync(swap)


def _deleted_end(names: Sequence[str]) -> Offset:
    """Return the offset after the base of the newest segment that was already marked as replaced."""
    deleted = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX + DELETED_SUFFIX)]
    return max((offset + 1 for offset in deleted if offset is not None), default=0)


def _is_replaced(name: str, offset: Offset, base_offset: Offset) -> bool:
    """Return whether a file is replaced. The first old segment's snapshot is not: the new one begins at that offset."""
    suffix = suffix_of(name)
    return suffix in SEGMENT_SUFFIXES or (suffix == SNAPSHOT_SUFFIX and offset != base_offset)
