"""What happens to a partition with several replicas, for tests on one node: elections that are lost and won again."""

from collections.abc import Mapping

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import Buffer
from rookery.records.batch import HEADER_SIZE, batch_size_at
from rookery.records.record import decode_records
from rookery.replication.partition import Partition
from rookery.replication.replica import Replica

FOLLOWER = 2


def lead(replica: Replica, *, leader: int, leader_epoch: int, node_id: int = 1) -> None:
    """Apply what the metadata would say of a partition with a follower that is in sync."""
    replicas = (node_id, FOLLOWER)
    replica.state.lead(leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch, replicas=replicas, isr=replicas)


def lose_and_win_election(replica: Replica, other: Buffer, *, node_id: int = 1) -> None:
    """Depose the leader, truncate all that it appended, elect it again, and commit `other` records in their place.

    Nothing of it waits: to waiters, all of it happens in one turn of the event loop.
    """
    epoch = replica.state.leader_epoch
    lead(replica, leader=FOLLOWER, leader_epoch=epoch + 1, node_id=node_id)
    replica.log.truncate_to(0)
    replica.state.local_end_moved(replica.log.end_offset)
    lead(replica, leader=node_id, leader_epoch=epoch + 2, node_id=node_id)
    assert replica.append(bytearray(other), acks=1, now_ms=0, is_inspected=True).error_code is ErrorCode.NONE
    replica.read(replica.log.end_offset, 1, node_id=FOLLOWER)
    assert replica.state.high_watermark == replica.log.end_offset


def find_lost(replica: Replica, answers: Mapping[bytes, ErrorCode]) -> set[bytes]:
    """The checker: values that were acknowledged, though the log does not have them. `answers` are by value."""
    return {value for value, code in answers.items() if code is ErrorCode.NONE} - _values(replica)


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
    """Plant a bug: waiters remember that this node led, not in which epoch."""
    patch.setattr(Partition, "still_leads", lambda self, leader_epoch: self.is_leader)
