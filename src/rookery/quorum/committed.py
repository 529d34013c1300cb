"""What of the metadata log was committed, and the refusal to start where that is damaged.

Up to where the log is committed is noted after every flush in a file beside its directory, not inside: it also tells
that there was a log where the directory is gone. The note is not synced, which would double the cost of every change of
metadata, but it never says too much, because the log was synced before. A note that is missing or older than the log
only makes the check weaker: then a bad batch is damage if a good one follows it, for the log is written one batch at a
time, each synced before the next.
"""

from pathlib import Path

import structlog

from rookery.base.errors import CorruptionError
from rookery.base.files import Files, replace_file
from rookery.base.types import Offset
from rookery.storage.checkpoints import COMMITTED_FILE, encode_offsets, read_offsets
from rookery.storage.damage import Damage, DamagedLogError
from rookery.storage.names import LOG_SUFFIX, METADATA_PARTITION, TEMPORARY_SUFFIX, file_name
from rookery.storage.survey import BadRange, SegmentSurvey, ValidBatch, find_segments

logger = structlog.get_logger(__name__)


class CommittedNote:
    """The file that says up to where the metadata log in `directory`, a log directory, is committed."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / COMMITTED_FILE

    def read(self) -> Offset:
        """0 if there is no note, or none that can be read."""
        try:
            return read_offsets(self._files, self._path).get(METADATA_PARTITION, 0)
        except CorruptionError as error:
            logger.warning("ignoring a checkpoint", path=str(self._path), reason=str(error))
            return 0

    def write(self, offset: Offset) -> None:
        """A crash leaves the old note, the new one, or one that cannot be read."""
        aside = self._path.with_name(self._path.name + TEMPORARY_SUFFIX)
        self._files.write_file(aside, encode_offsets({METADATA_PARTITION: offset}))
        self._files.rename(aside, self._path)

    def write_synced(self, offset: Offset) -> None:
        replace_file(self._files, self._path, encode_offsets({METADATA_PARTITION: offset}))


def has_batches(files: Files, log_directory: Path) -> bool:
    """Whether the metadata log below this log directory has a batch that can be read."""
    segments = find_segments(files, log_directory / str(METADATA_PARTITION))
    surveys = (SegmentSurvey(files, path, base_offset, limit=limit) for path, base_offset, limit in segments)
    return any(isinstance(part, ValidBatch) for survey in surveys for part in survey.parts())


def check_committed(files: Files, log_directory: Path, committed: Offset) -> None:
    """DamagedLogError if the metadata log does not have all that was committed; a torn end is none of that."""
    directory = log_directory / str(METADATA_PARTITION)
    expected, bad = 0, None
    for path, base_offset, limit in find_segments(files, directory):
        if bad is None and base_offset != expected:
            bad = _damage(path, 0, expected, base_offset, f"the file begins at offset {base_offset}")
        for part in SegmentSurvey(files, path, base_offset, limit=limit, is_gapless=True).parts():
            if isinstance(part, BadRange):
                bad = bad or _damage(path, part.position, part.offset, committed, part.reason)
            elif bad is not None:
                raise DamagedLogError(_damage(bad.path, bad.position, bad.offset, part.header.base_offset, bad.reason))
            else:
                expected = part.header.last_offset + 1
    if bad is not None and bad.offset < committed:
        raise DamagedLogError(bad)
    if expected < committed:
        path = directory / file_name(0, LOG_SUFFIX)
        raise DamagedLogError(_damage(path, 0, expected, committed, f"the log ends there, {committed} were committed"))


def _damage(path: Path, position: int, offset: Offset, end_offset: Offset, reason: str) -> Damage:
    return Damage(path, position, offset, max(offset + 1, end_offset), reason)
