"""OffsetCommit and OffsetFetch: writing down how far a group has read, and reading it back.

Commits inside of transactions will be records of their own, pending until their transaction ends; `check` and `fetch`
are where they come in.
"""

from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TimestampMs, TopicPartition
from rookery.base.values import value_class
from rookery.coordinators.decision import Decision, Timer
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.membership import session_timer
from rookery.coordinators.group.offsets.rules import Group, check_commit, check_fetch
from rookery.coordinators.group.offsets.store import OffsetStore
from rookery.coordinators.group.records import NO_EXPIRY, GroupRecord, OffsetCommitKey, OffsetCommitValue
from rookery.coordinators.group.settings import GroupSettings


class OffsetToCommit(NamedTuple):
    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


@value_class(kw_only=True)
class CommitRequest:
    """`generation` is the member's epoch in groups of the new protocol; `retention_ms` was given up with v5."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    retention_ms: int | None = None
    api_version: int = 10
    offsets: tuple[OffsetToCommit, ...] = ()


class CommittedPartition(NamedTuple):
    partition: TopicPartition
    error_code: ErrorCode


@value_class(kw_only=True)
class FetchRequest:
    """`partitions` of None are all that the group has committed for."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    partitions: tuple[TopicPartition, ...] | None = None


class FetchedOffset(NamedTuple):
    partition: TopicPartition
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class FetchedOffsets(NamedTuple):
    error_code: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


def commit(
    group: Group | None, request: CommitRequest, *, settings: GroupSettings, now_ms: TimestampMs
) -> Decision[tuple[CommittedPartition, ...]]:
    code = check_commit(
        group,
        request.member_id,
        request.instance_id,
        generation=request.generation,
        api_version=request.api_version,
    )
    if code is not ErrorCode.NONE:
        return Decision(response=tuple(CommittedPartition(item.partition, code) for item in request.offsets))
    expire_ms = NO_EXPIRY if request.retention_ms is None else now_ms + request.retention_ms
    results, records = [], []
    for item in request.offsets:
        fits = len(item.metadata.encode()) <= settings.offset_metadata_max_bytes
        if fits:
            records.append(_record(request.group_id, item, now_ms, expire_ms))
        code = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
        results.append(CommittedPartition(item.partition, code))
    return Decision(response=tuple(results), records=records, timers=_sign_of_life(group, request))


def _record(group_id: str, item: OffsetToCommit, now_ms: TimestampMs, expire_ms: TimestampMs) -> GroupRecord:
    return GroupRecord(
        OffsetCommitKey(group_id, item.partition.topic, item.partition.partition),
        OffsetCommitValue(
            offset=item.offset,
            leader_epoch=item.leader_epoch,
            metadata=item.metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=expire_ms,
        ),
    )


def _sign_of_life(group: Group | None, request: CommitRequest) -> tuple[Timer, ...]:
    if isinstance(group, ClassicGroup) and request.member_id in group.members:
        return (session_timer(group, request.member_id),)
    return ()


def fetch(group: Group | None, store: OffsetStore, request: FetchRequest) -> FetchedOffsets:
    """A group that is not known has no offsets, which is no error."""
    code = check_fetch(group, request.member_id, request.member_epoch)
    if code is not ErrorCode.NONE:
        return FetchedOffsets(code)
    known = store.of(request.group_id)
    wanted = known if request.partitions is None else request.partitions
    return FetchedOffsets(ErrorCode.NONE, tuple(_fetched(partition, known.get(partition)) for partition in wanted))


def _fetched(partition: TopicPartition, value: OffsetCommitValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata)
