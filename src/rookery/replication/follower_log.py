"""Changes of a follower's log: appends of what its leader has sent, and truncations where the two logs diverge.

Called by `fetcher` only, on the event loop; `Replica` has the operations of a leader. After each change the replica's
`Partition` has the new ends, and requests that wait for the partition are woken.
"""

import structlog

from rookery.base.bounds import FETCHED_BATCHES_PER_SLICE, FETCHED_BYTES_PER_SLICE
from rookery.base.types import Offset
from rookery.protocol.fetch import FetchedPartition
from rookery.replication.following import NewStart, Position, truncation_offset
from rookery.replication.replica import Replica
from rookery.storage.fetched_batches import read_fetched

logger = structlog.get_logger(__name__)


def position_of(replica: Replica) -> Position | None:
    """Return where to fetch next; None while records of the last fetch are not synced, or the disk has failed.

    The offset of a fetch acknowledges all records before it: with `flush.messages`, only once they are on disk.
    """
    log, state = replica.log, replica.state
    if replica.is_flushing or not log.log_directory.is_online or log.is_closed:
        return None
    return Position(log.end_offset, log.epochs.latest, log.start_offset, state.high_watermark)


def append_some(replica: Replica, records: memoryview, position: int) -> int | None:
    """Append a slice of the batches of a response; returns the position of the next one, None after the last one."""
    headers, end = read_fetched(records, position, FETCHED_BATCHES_PER_SLICE, FETCHED_BYTES_PER_SLICE)
    if headers:
        replica.log.append_fetched(records[position:end], headers)
        replica.state.local_end_offset = replica.log.end_offset
    is_full = len(headers) == FETCHED_BATCHES_PER_SLICE or end - position >= FETCHED_BYTES_PER_SLICE
    return end if is_full else None


def finish_append(replica: Replica, response: FetchedPartition) -> None:
    """Take over the leader's high watermark and log start after an append, or without one."""
    log, state = replica.log, replica.state
    state.copied(log.end_offset, response.high_watermark)
    start_offset = min(response.log_start_offset, log.end_offset)
    if start_offset > log.start_offset:
        log.advance_start_offset(start_offset)
        state.truncated(log.start_offset, log.end_offset)
    replica.copied()


def truncate_to_leader(replica: Replica, leader_epoch: int, leader_end: Offset) -> None:
    """Remove records that the leader does not have, given the epoch and end offset of its answer."""
    log = replica.log
    offset = truncation_offset(leader_epoch, leader_end, log.epoch_end_offset(leader_epoch), log.end_offset)
    _truncate(replica, offset)


def move_into_range(replica: Replica, place: NewStart) -> None:
    """Truncate or restart the log because its end is not in the range of the leader's log."""
    if place.is_restart:
        partition = str(replica.state.topic_partition)
        logger.warning("the leader has deleted all records of a replica", partition=partition, offset=place.offset)
        replica.log.restart_at(place.offset)
        _note_ends(replica)
    else:
        _truncate(replica, place.offset)


def _truncate(replica: Replica, offset: Offset) -> None:
    log, state = replica.log, replica.state
    details = {"partition": str(state.topic_partition), "offset": offset, "end_offset": log.end_offset}
    if offset < state.high_watermark:
        logger.error("truncating committed records, which the leader does not have", **details)
    else:
        logger.info("truncating a replica to its leader's log", **details)
    log.truncate_to(offset)
    _note_ends(replica)


def _note_ends(replica: Replica) -> None:
    replica.state.truncated(replica.log.start_offset, replica.log.end_offset)
    replica.copied()
