"""OffsetCommit and OffsetFetch: storing a group's offsets, and reading them back.

Commits within transactions are in `transactional`.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TimestampMs, TopicPartition
from rookery.base.values import value_class
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.membership import session_timer
from rookery.coordinators.group.offsets.pending import LoggedOffset
from rookery.coordinators.group.offsets.rules import Group, check_commit, check_fetch
from rookery.coordinators.group.offsets.store import OffsetStore
from rookery.coordinators.group.records import NO_EXPIRY, GroupRecord, OffsetCommitKey, OffsetCommitValue
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import CoordinatorResult, Timer


class OffsetToCommit(NamedTuple):
    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


@value_class(kw_only=True)
class CommitRequest:
    """`generation` is the member's epoch in consumer groups; `retention_ms` exists only before v5 of the request."""

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
    """`partitions` of None selects all partitions for which the group has committed.

    `require_stable`: a partition for which an open transaction may commit gets UNSTABLE_OFFSET_COMMIT instead of an
    offset that the transaction is about to replace.
    """

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    partitions: tuple[TopicPartition, ...] | None = None
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    partition: TopicPartition
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


class FetchedOffsets(NamedTuple):
    error_code: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


def commit(
    group: Group | None, request: CommitRequest, *, settings: GroupSettings, now_ms: TimestampMs
) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    code = check_commit(
        group,
        request.member_id,
        request.instance_id,
        generation=request.generation,
        api_version=request.api_version,
    )
    if code is not ErrorCode.NONE:
        return reject(request.offsets, code)
    expire_ms = NO_EXPIRY if request.retention_ms is None else now_ms + request.retention_ms
    written = store_offsets(request.group_id, request.offsets, settings=settings, now_ms=now_ms, expire_ms=expire_ms)
    return replace(written, timers=_session_timers(group, request))


def reject(offsets: Iterable[OffsetToCommit], code: ErrorCode) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    return CoordinatorResult(response=tuple(CommittedPartition(item.partition, code) for item in offsets))


def store_offsets(
    group_id: str,
    offsets: Iterable[OffsetToCommit],
    *,
    settings: GroupSettings,
    now_ms: TimestampMs,
    expire_ms: TimestampMs = NO_EXPIRY,
) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    """Return the records of an admitted commit. Metadata that is too long fails only its own partition."""
    results, records = [], []
    for item in offsets:
        fits = len(item.metadata.encode()) <= settings.offset_metadata_max_bytes
        if fits:
            records.append(_record(group_id, item, now_ms, expire_ms))
        code = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
        results.append(CommittedPartition(item.partition, code))
    return CoordinatorResult(response=tuple(results), records=records)


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


def _session_timers(group: Group | None, request: CommitRequest) -> tuple[Timer, ...]:
    """Restart the session of a classic member: a commit counts as a heartbeat."""
    if isinstance(group, ClassicGroup) and request.member_id in group.members:
        return (session_timer(group, request.member_id),)
    return ()


def fetch(group: Group | None, store: OffsetStore, request: FetchRequest) -> FetchedOffsets:
    """Read a group's offsets. An unknown group has none, which is no error."""
    code = check_fetch(group, request.member_id, request.member_epoch)
    if code is not ErrorCode.NONE:
        return FetchedOffsets(code)
    known = store.of(request.group_id)
    wanted = known if request.partitions is None else request.partitions
    # A consumer that started at the committed offset while a transaction is about to replace it would read and process
    # the same records a second time.
    unstable = store.pending.of(request.group_id) if request.require_stable else ()
    fetched = (
        FetchedOffset(partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if partition in unstable
        else _fetched(partition, known.get(partition))
        for partition in wanted
    )
    return FetchedOffsets(ErrorCode.NONE, tuple(fetched))


def _fetched(partition: TopicPartition, offset: LoggedOffset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset(partition)
    return FetchedOffset(partition, offset.value.offset, offset.value.leader_epoch, offset.value.metadata)
