"""The synced end of the metadata log, and the check at start that the log is complete up to it.

A voter's synced records count for a majority, so they must not be lost, whether they are committed already or not.
After every flush the synced end is written to a file next to the log's directory, not inside: if the directory is lost,
the file still shows that there was a log. The file is not synced, because that would double the cost of every metadata
change. It never claims too much: the log is synced before it is written, and before the log is truncated the file is.
If it is older than the log, the check is only weaker.
"""

from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import Files, replace_file
from rookery.base.types import Offset
from rookery.quorum.snapshots import SnapshotFiles
from rookery.storage.checkpoints import COMMITTED_FILE, encode_offsets, read_offsets
from rookery.storage.damage import Damage, DamagedLogError
from rookery.storage.names import LOG_SUFFIX, METADATA_PARTITION, TEMPORARY_SUFFIX, file_name
from rookery.storage.survey import BadRange, SegmentSurvey, ValidBatch, find_segments

logger = structlog.get_logger(__name__)


class CommittedOffsetFile:
    """The file with the committed offset of the metadata log in `directory`, a log directory."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / COMMITTED_FILE

    def exists(self) -> bool:
        return self._files.exists(self._path)

    def read(self) -> Offset:
        """Return the offset; 0 if the file is missing or cannot be read."""
        try:
            return read_offsets(self._files, self._path).get(METADATA_PARTITION, 0)
        except CorruptionError as error:
            logger.warning("ignoring a checkpoint", path=str(self._path), reason=str(error))
            return 0

    def write(self, offset: Offset) -> None:
        """Write the offset without syncing it. A crash leaves the old file, the new one, or an unreadable one."""
        temporary = self._path.with_name(self._path.name + TEMPORARY_SUFFIX)
        self._files.write_file(temporary, encode_offsets({METADATA_PARTITION: offset}))
        self._files.rename(temporary, self._path)

    def write_synced(self, offset: Offset) -> None:
        """Write the offset and sync it."""
        replace_file(self._files, self._path, encode_offsets({METADATA_PARTITION: offset}))


def has_batches(files: Files, log_directory: Path) -> bool:
    """Return whether the metadata log in this log directory has a batch that can be read, or a snapshot."""
    directory = log_directory / str(METADATA_PARTITION)
    surveys = (SegmentSurvey(files, path, base, limit=limit) for path, base, limit in find_segments(files, directory))
    has_batch = any(isinstance(part, ValidBatch) for survey in surveys for part in survey.parts())
    # The log may be empty after a snapshot: its only segment begins where the snapshot ends.
    return has_batch or bool(SnapshotFiles(files, directory).positions())


def first_offset(files: Files, directory: Path) -> Offset:
    """Return the offset at which the first segment in `directory` begins; 0 if there is none."""
    return next((base_offset for _, base_offset, _ in find_segments(files, directory)), 0)


def check_committed(
    files: Files, log_directory: Path, committed: Offset, *, covered: Offset = 0, is_in_order: bool = False
) -> None:
    """Raise DamagedLogError if a part of the metadata log that was synced is missing or damaged.

    `committed` is the synced end. Bad batches after it are not damage: a crash during an append leaves some. Without
    this check, recovery would truncate the log at the first bad batch and silently delete the metadata after it.
    `covered` is the end of the snapshot that the log continues: the log may begin there or before it.
    `is_in_order`: each batch was synced before the next one was written, so a good batch after a bad one shows damage.
    """
    directory = log_directory / str(METADATA_PARTITION)
    first = first_offset(files, directory)
    expected, bad = first if first <= covered else 0, None
    for path, base_offset, limit in find_segments(files, directory):
        if bad is None and base_offset != expected:
            bad = _damage(path, 0, expected, base_offset, f"the file begins at offset {base_offset}")
        for part in SegmentSurvey(files, path, base_offset, limit=limit, is_gapless=True).parts():
            if isinstance(part, BadRange):
                bad = bad or _damage(path, part.position, part.offset, committed, part.reason)
            elif bad is not None and (is_in_order or part.header.base_offset < committed):
                raise DamagedLogError(_damage(bad.path, bad.position, bad.offset, part.header.base_offset, bad.reason))
            elif bad is None:
                expected = part.header.last_offset + 1
    if bad is not None and bad.offset < committed:
        raise DamagedLogError(bad)
    if expected < committed:
        path = directory / file_name(first, LOG_SUFFIX)
        raise DamagedLogError(_damage(path, 0, expected, committed, f"the log ends there, {committed} were committed"))


def _damage(path: Path, position: int, offset: Offset, end_offset: Offset, reason: str) -> Damage:
    return Damage(path, position, offset, max(offset + 1, end_offset), reason)
