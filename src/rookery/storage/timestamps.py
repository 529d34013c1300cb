"""Finds offsets by timestamp, exact to the record: the time index narrows the search to one batch, which is decoded."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from rookery.base.errors import InvalidBatchError
from rookery.base.types import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from rookery.records.batch import BatchHeader
from rookery.records.record import Record, decode_records
from rookery.storage.segment import Segment

logger = structlog.get_logger(__name__)

# The decompressed size limit of the one batch that is decoded.
_DECOMPRESSED_SIZE_MAX = 1 << 28


class TimestampOffset(NamedTuple):
    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: TimestampMs, *, start_offset: Offset, end_offset: Offset
) -> TimestampOffset | None:
    """Return the first record in [start_offset, end_offset) whose timestamp is at least `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        from_offset = max(segment.time_index.lookup(timestamp_ms), start_offset)
        for position, header in segment.headers(segment.position_of(from_offset)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp_ms < timestamp_ms:
                continue
            for record in _records(segment, position, header):
                if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < end_offset:
                    return TimestampOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def latest(segments: Sequence[Segment], *, start_offset: Offset, end_offset: Offset) -> TimestampOffset | None:
    """Return the first record in [start_offset, end_offset) with the largest timestamp; None if none has one."""
    largest_ms, best = NO_TIMESTAMP, None
    for segment, position, header in _candidates(segments, start_offset, end_offset):
        if not header.record_count or header.max_timestamp_ms <= largest_ms:
            continue
        if start_offset <= header.base_offset and header.last_offset < end_offset:
            largest_ms, best = header.max_timestamp_ms, (segment, position, header)
            continue
        # The batch crosses a bound of the range: its largest timestamp may belong to a record outside.
        record = _latest_record(_records(segment, position, header), start_offset, end_offset)
        if record is not None and record.timestamp_ms > largest_ms:
            largest_ms, best = record.timestamp_ms, (segment, position, header)
    if best is None:
        return None
    found = _latest_record(_records(*best), start_offset, end_offset)
    return TimestampOffset(found.offset, found.timestamp_ms, best[2].leader_epoch) if found else None


def _latest_record(records: Sequence[Record], start_offset: Offset, end_offset: Offset) -> Record | None:
    inside = [record for record in records if start_offset <= record.offset < end_offset]
    return max(inside, key=lambda record: record.timestamp_ms, default=None)


def _candidates(
    segments: Sequence[Segment], start_offset: Offset, end_offset: Offset
) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Yield the batches that may hold the latest record: one per segment inside the range, all of the others."""
    for slot, segment in enumerate(segments):
        last_offset = segment.max_timestamp_offset
        is_inside = start_offset <= segment.base_offset and last_offset < end_offset
        position = segment.position_of(last_offset if is_inside else max(start_offset, segment.base_offset))
        if is_inside and _is_emptied(segment, position):
            is_inside, position = False, 0
        for at, header in segment.headers(position):
            if header.base_offset >= end_offset:
                break
            yield segment, at, header
            if is_inside:
                break
        if slot + 1 < len(segments) and segments[slot + 1].base_offset >= end_offset:
            break


def _is_emptied(segment: Segment, position: int) -> bool:
    """Return whether the batch is an empty header: compaction keeps one with the timestamp of records that are gone."""
    return any(header.record_count == 0 for _, header in islice(segment.headers(position), 1))


def _records(segment: Segment, position: int, header: BatchHeader) -> Sequence[Record]:
    """Return the records of one batch; an unreadable batch counts as one record, so that the search can continue."""
    try:
        return list(decode_records(segment.read_batch(position, header), size_max=_DECOMPRESSED_SIZE_MAX))
    except InvalidBatchError as error:
        logger.warning("cannot decode a batch", path=str(segment.path()), position=position, reason=str(error))
        return [Record(header.base_offset, header.max_timestamp_ms, None, None, ())]
