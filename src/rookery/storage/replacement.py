"""Replacing segments by a cleaned one so that a crash at any moment leaves the old ones or the new one.

1. The cleaner writes the new segment under names that end in `.cleaned` and seals it: files and names are synced.
2. `swap_in` renames it to `.swap`, the log file last, and syncs the directory: this is the commit.
3. The old segments are renamed to `.deleted`, newest first; the new index files take their final names; sync.
4. The new log file takes its final name; sync.
5. The cleaner's thread removes the `.deleted` files, which takes long for large ones, before it swaps again.

At the next start `finish` removes `.cleaned` files (never committed), completes a `.swap` and removes `.deleted` files.
Index files of an interrupted swap are not trusted but rebuilt, for those of an old segment may still have their names.
Which old segments a `.swap` replaces follows from its last offset and from the `.deleted` names, whose removal begins
after the swap is over: a tombstone that was cleaned away cannot leave behind the value it deleted.
"""

from collections.abc import Sequence
from pathlib import Path

from rookery.base.files import Files
from rookery.base.types import Offset, TimestampMs
from rookery.storage.names import (
    ASIDE_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    STAGE_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
    offset_of,
    suffix_of,
)
from rookery.storage.segment import Segment


def create_aside(
    files: Files, directory: Path, base_offset: Offset, *, index_interval_bytes: int, created_ms: TimestampMs
) -> Segment:
    """An empty segment that will replace others, the first of which begins at `base_offset`.

    It never gets an aborted index: cleaning leaves nothing of the transactions whose abort markers it copies.
    """
    return Segment.create(
        files,
        directory,
        base_offset,
        index_interval_bytes=index_interval_bytes,
        created_ms=created_ms,
        stage=CLEANED_SUFFIX,
    )


def seal_aside(segment: Segment) -> None:
    """Make a segment that was built aside survive a crash: the last step of the cleaner's thread."""
    segment.write_indexes()
    for path in segment.paths():
        segment.files.open(path).sync()
    segment.files.sync_directory(segment.directory)


def swap_in(old: Sequence[Segment], new: Segment) -> None:
    """Steps 2 to 4; runs on the event loop, so that no reader sees a half-done swap. The caller sees to step 5."""
    files, directory = new.files, new.directory
    new.rename(SWAP_SUFFIX)
    files.sync_directory(directory)
    for segment in reversed(old):
        segment.rename(DELETED_SUFFIX)
    new.rename("", sync_between=True)
    files.sync_directory(directory)


def is_unfinished(name: str) -> bool:
    return name.endswith((*STAGE_SUFFIXES, ASIDE_SUFFIX))


def finish(files: Files, directory: Path, *, index_interval_bytes: int, now_ms: TimestampMs) -> None:
    """Complete or undo what a crash interrupted."""
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
    end = max(swap.next_offset(), swap.base_offset + 1, _deleted_end(names))
    for name in names:
        offset = offset_of(name)
        if offset is not None and swap.base_offset <= offset < end and _is_replaced(name, offset, swap.base_offset):
            files.remove(directory / name)
    for suffix in SEGMENT_SUFFIXES[1:]:
        files.remove(swap.path(suffix))
    files.sync_directory(directory)
    files.rename(swap.path(), directory / file_name(swap.base_offset, LOG_SUFFIX))
    swap.stage = ""
    seal_aside(swap)


def _deleted_end(names: Sequence[str]) -> Offset:
    """One behind the newest segment that was already marked as replaced."""
    deleted = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX + DELETED_SUFFIX)]
    return max((offset + 1 for offset in deleted if offset is not None), default=0)


def _is_replaced(name: str, offset: Offset, base_offset: Offset) -> bool:
    """The first old segment's snapshot stays: the new segment begins at the same offset."""
    suffix = suffix_of(name)
    return suffix in SEGMENT_SUFFIXES or (suffix == SNAPSHOT_SUFFIX and offset != base_offset)
