"""Offsets by time or by place: what ListOffsets asks a leader for."""

from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from rookery.replication.partition import Partition
from rookery.storage.log import Log

_OK = ErrorCode.NONE

# The offsets that ListOffsets requests by a negative timestamp.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class OffsetFound(NamedTuple):
    """The outcome of a search for an offset. If no record matches, the offset is -1 and there is no error."""

    error_code: ErrorCode
    offset: Offset = NO_OFFSET
    timestamp_ms: TimestampMs = NO_TIMESTAMP
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


def search(
    log: Log, state: Partition, timestamp_ms: TimestampMs, end_offset: Offset, *, is_client: bool
) -> OffsetFound:
    """Return the offset for a timestamp or a place, below `end_offset`.

    Raises StorageError or CorruptionError if the log cannot be read.
    """
    if timestamp_ms == LATEST:
        # The high watermark may be lower than the previous leader's: a consumer that gets it as "latest" would move
        # back and read records twice.
        if is_client and state.is_catching_up:
            return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetFound(_OK, end_offset, leader_epoch=state.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return OffsetFound(_OK, log.start_offset, leader_epoch=_earliest_epoch(log))
    if timestamp_ms == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(end_offset)
    else:
        found = log.offset_for_timestamp(timestamp_ms, end_offset)
    if found is None:
        if is_client and state.is_catching_up:
            return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetFound(_OK)
    return OffsetFound(_OK, found.offset, found.timestamp_ms, found.leader_epoch)


def _earliest_epoch(log: Log) -> LeaderEpoch:
    earliest = log.epochs.earliest
    if earliest is None or earliest.start_offset > log.start_offset:
        return NO_LEADER_EPOCH
    return earliest.epoch
