"""TxnOffsetCommit: a producer commits a group's offsets as part of its transaction.

The records are pending until the transaction ends (`store`). The caller has verified that the transaction is open and
includes the group's partition of `__consumer_offsets`.
"""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerEpoch, ProducerId, TimestampMs
from rookery.base.values import value_class
from rookery.coordinators.group.offsets.commit import CommittedPartition, OffsetToCommit, reject, store_offsets
from rookery.coordinators.group.offsets.rules import Group, check_transactional_commit
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import CoordinatorResult, Producer


@value_class(kw_only=True)
class TransactionalCommitRequest:
    """`generation` is the member's epoch in consumer groups. Before v3 the request does not name a member."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # Taken before the transaction was verified: if it ends in between, the append is rejected. Offsets that are written
    # after the end of their transaction would stay pending, and take effect with another transaction of the producer.
    guard: object | None = None
    offsets: tuple[OffsetToCommit, ...] = ()


def commit_transactional(
    group: Group | None, request: TransactionalCommitRequest, *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    """Decide a TxnOffsetCommit. It does not restart the member's session: the producer may outlive the member."""
    code = check_transactional_commit(group, request.member_id, request.instance_id, generation=request.generation)
    if code is not ErrorCode.NONE:
        return reject(request.offsets, code)
    written = store_offsets(request.group_id, request.offsets, settings=settings, now_ms=now_ms)
    return replace(written, producer=Producer(request.producer_id, request.producer_epoch, request.guard))
