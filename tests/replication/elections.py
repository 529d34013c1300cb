"""Elections of a partition with several replicas, simulated on one node: a leader is deposed and elected again."""

from collections.abc import Mapping

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import Buffer
from rookery.records.batch import HEADER_SIZE, batch_size_at
from rookery.records.record import decode_records
from rookery.replication.partition import Partition
from rookery.replication.replica import Replica

FOLLOWER = 2


def set_leader(replica: Replica, *, leader: int, leader_epoch: int, node_id: int = 1) -> None:
    """Set the leader of a partition that has one follower, which is in sync."""
    replicas = (node_id, FOLLOWER)
    replica.state.set_leader(
        leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch, replicas=replicas, isr=replicas
    )


def lose_and_win_election(replica: Replica, other: Buffer, *, node_id: int = 1) -> None:
    """Depose the leader, truncate its whole log, elect it again, and commit `other` records at the same offsets.

    This function does not await: waiters see all of it in one turn of the event loop.
    """
    epoch = replica.state.leader_epoch
    set_leader(replica, leader=FOLLOWER, leader_epoch=epoch + 1, node_id=node_id)
    replica.log.truncate_to(0)
    replica.state.local_end_moved(replica.log.end_offset)
    set_leader(replica, leader=node_id, leader_epoch=epoch + 2, node_id=node_id)
    assert replica.append(bytearray(other), acks=1, now_ms=0, is_inspected=True).error_code is ErrorCode.NONE
    replica.read(replica.log.end_offset, 1, node_id=FOLLOWER)
    assert replica.state.high_watermark == replica.log.end_offset


def find_lost(replica: Replica, error_codes: Mapping[bytes, ErrorCode]) -> set[bytes]:
    """Return the values that were acknowledged but are not in the log. `error_codes` maps values to responses."""
    return {value for value, code in error_codes.items() if code is ErrorCode.NONE} - _values(replica)


def _values(replica: Replica) -> set[bytes]:
    data = b"".join(
        part.file.read_at(part.position, part.size)
        for part in replica.log.read(replica.log.start_offset, 1 << 20).slices
    )
    values: set[bytes] = set()
    position = 0
    while len(data) - position >= HEADER_SIZE:
        size = batch_size_at(data, position)
        values |= {record.value or b"" for record in decode_records(data[position : position + size])}
        position += size
    return values


def forget_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: a waiter checks only whether this node leads now, not the epoch of its append."""
    patch.setattr(Partition, "still_leads", lambda self, leader_epoch: self.is_leader)
