"""The list of the segments that a log directory must have, by which a start notices missing or truncated files.

Names alone are not enough: compaction leaves gaps between segments, and retention removes the oldest. So next to the
recovery points each log directory has a file, `segment-manifest`, with the segments below the recovery point of each
log, their sizes and whether they have an aborted index. A start compares it with the names and sizes that it finds, and
reads no data for that.

A segment is listed with its size only while nothing may change it: the list is written before the recovery point that
makes it binding, and again, without the sizes, before segments are replaced. Segments below the start offset or beyond
the recovery point on disk are ignored, so retention and truncation need no extra writes. A checksum protects the file;
one that cannot be read is ignored, as is one that does not match the recovery points of a clean stop.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from rookery.base.errors import CorruptionError
from rookery.base.files import Files
from rookery.base.types import Buffer, Offset, TopicId, TopicPartition, decode_uuid, encode_uuid
from rookery.storage.damage import Damage, DamagedLogError
from rookery.storage.names import LOG_SUFFIX, file_name
from rookery.storage.survey import SegmentSurvey, ValidBatch

MANIFEST_FILE = "segment-manifest"
# In the place of a size: the segment is about to be replaced; or it is still written to and may only grow.
ANY_SIZE = -1
GROWING = -2

_VERSION = b"0"
_SIZE_SIGNS = {ANY_SIZE: "-", GROWING: "+"}
_SIGN_SIZES = {sign: size for size, sign in _SIZE_SIGNS.items()}
_ABORTED = "a"


class ListedSegment(NamedTuple):
    base_offset: Offset
    size_bytes: int
    has_aborted: bool = False


class ListedLog(NamedTuple):
    """A log's segments below its recovery point, oldest first."""

    topic_id: TopicId
    start_offset: Offset
    recovery_point: Offset
    segments: tuple[ListedSegment, ...]

    @property
    def has_content(self) -> bool:
        return self.recovery_point > self.start_offset or bool(self.segments)

    @property
    def growing(self) -> Offset | None:
        """The base offset of the segment that extends at least to the recovery point, None if unknown."""
        if not self.segments or self.segments[-1].size_bytes == ANY_SIZE:
            return None
        return self.segments[-1].base_offset


def encode_line(partition: TopicPartition, log: ListedLog) -> str:
    fields = [partition.topic, partition.partition, encode_uuid(log.topic_id), log.start_offset, log.recovery_point]
    return " ".join([*map(str, fields), *map(_encode_segment, log.segments)])


def encode_manifest(lines: Iterable[str]) -> bytes:
    body = "".join(f"{line}\n" for line in lines).encode()
    return b"%b\n%08x\n%b" % (_VERSION, crc32c(body), body)


def decode_manifest(data: Buffer) -> dict[TopicPartition, ListedLog]:
    """Decode a manifest; raises CorruptionError for anything that `encode_manifest` does not produce."""
    version, _, rest = bytes(data).partition(b"\n")
    checksum, _, body = rest.partition(b"\n")
    if version != _VERSION or checksum != b"%08x" % crc32c(body):
        raise CorruptionError("not a segment manifest, or a damaged one")
    try:
        return dict(map(_decode_line, body.decode().splitlines()))
    except ValueError as error:
        raise CorruptionError(f"a line of the segment manifest is malformed: {error}") from error


def read_manifest(files: Files, directory: Path) -> dict[TopicPartition, ListedLog]:
    """Read the manifest of a log directory; empty if there is no file."""
    try:
        return decode_manifest(files.read_file(directory / MANIFEST_FILE))
    except FileNotFoundError:
        return {}


def _encode_segment(segment: ListedSegment) -> str:
    size = _SIZE_SIGNS.get(segment.size_bytes, segment.size_bytes)
    return f"{segment.base_offset}:{size}{_ABORTED if segment.has_aborted else ''}"


def _decode_line(line: str) -> tuple[TopicPartition, ListedLog]:
    topic, index, topic_id, start_offset, recovery_point, *segments = line.split(" ")
    listed = tuple(map(_decode_segment, segments))
    log = ListedLog(decode_uuid(topic_id), int(start_offset), int(recovery_point), listed)
    return TopicPartition(topic, int(index)), log


def _decode_segment(text: str) -> ListedSegment:
    base_offset, _, size = text.partition(":")
    plain = size.removesuffix(_ABORTED)
    listed_size = _SIGN_SIZES[plain] if plain in _SIGN_SIZES else int(plain)
    return ListedSegment(int(base_offset), listed_size, plain != size)


def check_listed(
    files: Files, directory: Path, found: Collection[Offset], listed: ListedLog, *, clean: bool
) -> dict[Offset, int]:
    """Return the sizes of the listed segments that were checked.

    Raises DamagedLogError for the first listed segment that is missing or has another size. `found` are the base
    offsets of the segments in the directory. After an unclean stop the newest listed segment may have grown, and
    recovery reads it anyway.
    """
    sizes: dict[Offset, int] = {}
    for segment, end_offset in _ranges(listed):
        path = directory / file_name(segment.base_offset, LOG_SUFFIX)
        if segment.base_offset not in found:
            raise DamagedLogError(Damage(path, 0, segment.base_offset, end_offset, "the file is missing"))
        may_grow = not clean and segment is listed.segments[-1]
        if segment.size_bytes >= 0 and not may_grow:
            if files.file_size(path) != segment.size_bytes:
                raise DamagedLogError(_wrong_size(files, path, segment, end_offset))
            sizes[segment.base_offset] = segment.size_bytes
    return sizes


def clip(listed: ListedLog, recovery_point: Offset) -> ListedLog:
    """Return the part of the list that a log with this recovery point on disk must have.

    The recovery point may be lower than the manifest's, because the log was about to be truncated or a crash came
    between the writes of the two files. Then the segment that contains it must extend to it, but may have lost
    everything after it.
    """
    kept = []
    for segment, end_offset in _ranges(listed):
        if segment.base_offset < recovery_point and end_offset > listed.start_offset:
            is_whole = end_offset <= recovery_point or segment.size_bytes == ANY_SIZE
            kept.append(segment if is_whole else segment._replace(size_bytes=GROWING))
    return listed._replace(segments=tuple(kept), recovery_point=min(listed.recovery_point, recovery_point))


def _ranges(listed: ListedLog) -> Iterator[tuple[ListedSegment, Offset]]:
    """Return each segment with the offset at which it ends."""
    ends = [segment.base_offset for segment in listed.segments[1:]]
    return zip(listed.segments, [*ends, listed.recovery_point], strict=False)


def _wrong_size(files: Files, path: Path, segment: ListedSegment, end_offset: Offset) -> Damage:
    survey = SegmentSurvey(files, path, segment.base_offset, limit=end_offset)
    position, offset = 0, segment.base_offset
    for part in survey.parts():
        if not isinstance(part, ValidBatch):
            break
        position, offset = part.position + part.header.size_bytes, part.header.last_offset + 1
    reason = f"the file has {survey.size_bytes} bytes, {segment.size_bytes} were written"
    return Damage(path, position, min(offset, end_offset - 1), end_offset, reason)
