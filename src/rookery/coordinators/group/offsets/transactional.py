"""TxnOffsetCommit: a producer writes down how far a group has read, as part of its transaction.

The records are pending until the transaction ends (`store`); that the transaction is open, and knows of the group's
partition, has been found out before.
"""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerEpoch, ProducerId, TimestampMs
from rookery.base.values import value_class
from rookery.coordinators.group.offsets.commit import CommittedPartition, OffsetToCommit, refuse, write_down
from rookery.coordinators.group.offsets.rules import Group, check_transactional_commit
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import CoordinatorResult, Producer


@value_class(kw_only=True)
class TransactionalCommitRequest:
    """`generation` is the member's epoch in groups of the new protocol; producers before v3 do not know the member."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # Taken before the transaction was verified.
    guard: object | None = None
    offsets: tuple[OffsetToCommit, ...] = ()


def commit_transactional(
    group: Group | None, request: TransactionalCommitRequest, *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    """It is not a sign of life of the member: the producer may outlive it."""
    code = check_transactional_commit(group, request.member_id, request.instance_id, generation=request.generation)
    if code is not ErrorCode.NONE:
        return refuse(request.offsets, code)
    written = write_down(request.group_id, request.offsets, settings=settings, now_ms=now_ms)
    return replace(written, producer=Producer(request.producer_id, request.producer_epoch, request.guard))
