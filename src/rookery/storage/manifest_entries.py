"""Builds the manifest's entry of a log. May run in any thread, while the event loop appends, truncates and replaces."""

from collections.abc import Sequence

from rookery.storage.log import Log
from rookery.storage.manifest import ANY_SIZE, GROWING, ListedLog, ListedSegment
from rookery.storage.segment import Segment


def list_log(log: Log) -> ListedLog:
    """List the segments below the recovery point; the one that contains it as growing, unless the log is closed."""
    # `replaced` is read before the segments. Read after them, it could be empty again while the segments that were read
    # are the old ones: these would be listed with their sizes, and the next start would refuse the log as damaged.
    replaced, start_offset, recovery_point = log.replaced, log.start_offset, log.recovery_point
    segments = tuple(log.segments)
    ends = [segment.base_offset for segment in segments[1:]]
    # The newest segment of an open log may grow at any time.
    ends.append(log.end_offset if log.is_closed else recovery_point + 1)
    listed = [
        ListedSegment(segment.base_offset, _size(segment, end <= recovery_point, replaced), segment.has_aborted_file)
        for segment, end in zip(segments, ends, strict=True)
        if segment.base_offset < recovery_point and segment not in replaced[1:]
    ]
    return ListedLog(log.topic_id, start_offset, recovery_point, tuple(listed))


def _size(segment: Segment, is_sealed: bool, replaced: Sequence[Segment]) -> int:
    if segment in replaced:
        return ANY_SIZE
    if not is_sealed:
        return GROWING
    try:
        return segment.size_bytes
    except FileNotFoundError:
        # Deleted while the broker runs. It stays listed, so that the next start reports it as missing.
        return ANY_SIZE


def list_key(log: Log) -> tuple[object, ...]:
    """Return a key that changes whenever `list_log` may return something else."""
    replaced = tuple(segment.base_offset for segment in log.replaced)
    newest = log.segments[-1].base_offset
    return log.topic_id, log.start_offset, log.recovery_point, newest, len(log.segments), replaced, log.is_closed
