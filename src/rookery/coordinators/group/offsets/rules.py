"""The rules of the two kinds of groups: which commits, fetches and deletions they accept, and when offsets expire."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs, TopicName
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.consumer.group import ConsumerGroup, GroupState, tombstones
from rookery.coordinators.group.consumer.member import Member
from rookery.coordinators.group.records import GroupMetadataKey, GroupRecord, OffsetCommitValue

Group: TypeAlias = ClassicGroup | ConsumerGroup

# Since this version OffsetCommit has member epochs, and GROUP_ID_NOT_FOUND among its errors.
MEMBER_EPOCHS_SINCE = 9


def is_empty(group: Group) -> bool:
    return group.state in (State.EMPTY, GroupState.EMPTY)


def check_commit(
    group: Group | None, member_id: str, instance_id: str | None, *, generation: int, api_version: int
) -> ErrorCode:
    """Return the error of an OffsetCommit, NONE if it is allowed.

    A commit without a member id and generation comes from an administrator, or from a consumer that assigns its
    partitions itself. The members of a group are the only ones that may commit while it has any.
    """
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        is_new = api_version >= MEMBER_EPOCHS_SINCE
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and is_empty(group):
        return ErrorCode.NONE
    if isinstance(group, ConsumerGroup):
        return _check_consumer_commit(group.members.get(member_id), generation, api_version)
    if generation < 0 and not member_id and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = _check_classic_commit(group, member_id, instance_id, generation)
    # The member has joined the new generation and has no assignment of it yet: the partitions that it read before may
    # be assigned to another member.
    is_completing = code is ErrorCode.NONE and group.state is State.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if is_completing else code


def check_transactional_commit(
    group: Group | None, member_id: str, instance_id: str | None, *, generation: int
) -> ErrorCode:
    """Return the error of a TxnOffsetCommit, NONE if it is allowed.

    The differences to `check_commit`: the request need not name a member (before v3 it cannot), and it may come while a
    rebalance completes.
    """
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and is_empty(group):
        return ErrorCode.NONE
    if isinstance(group, ConsumerGroup):
        member = group.members.get(member_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, generation)
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
    if generation < 0 and not member_id and instance_id is None:
        return ErrorCode.NONE
    return _check_classic_commit(group, member_id, instance_id, generation)


def _check_classic_commit(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    code = group.check_member(member_id, instance_id)
    if code is ErrorCode.NONE and generation != group.generation:
        # A member that missed a rebalance still processes partitions that have other owners now. Its commit would
        # overwrite the owner's offset: after the next restart, records would be skipped or processed twice.
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _check_consumer_commit(member: Member | None, epoch: int, api_version: int) -> ErrorCode:
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and api_version < MEMBER_EPOCHS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return _check_epoch(member, epoch)


def _check_epoch(member: Member, epoch: int) -> ErrorCode:
    """Fence a member that acts on an older assignment, as `_check_classic_commit` does by the generation."""
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def check_fetch(group: Group | None, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch. Only members of the new protocol send their id and epoch with it."""
    if not isinstance(group, ConsumerGroup) or (member_id is None and member_epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, member_epoch)


def check_delete(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if is_empty(group) else ErrorCode.NON_EMPTY_GROUP


def check_offset_delete(group: Group | None) -> ErrorCode:
    """Return the error of an OffsetDelete.

    A classic group with members allows it only if they are consumers, because the topics that are in use (see
    `subscription`) are known only then.
    """
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def subscription(group: Group) -> Callable[[TopicName], bool]:
    """Return a function that says whether the group subscribes to a topic; to all, if its subscriptions are unknown."""
    topics = group.subscribed_topics()
    return lambda topic: topics is None or topic in topics


def may_expire(group: Group) -> bool:
    """Whether offsets may expire: not while a classic group rebalances, since its subscriptions may change."""
    return isinstance(group, ConsumerGroup) or group.state in (State.EMPTY, State.STABLE)


def expiry_base_ms(group: Group, offset: OffsetCommitValue) -> TimestampMs:
    """The time from which the retention of an unused offset runs.

    For a classic group without members that is not before its last member left: the offsets of an application that
    was in use for longer than the retention would otherwise expire as soon as it is stopped.
    """
    if isinstance(group, ClassicGroup) and group.is_empty and group.protocol_type and group.state_timestamp_ms >= 0:
        return max(group.state_timestamp_ms, offset.commit_timestamp_ms)
    return offset.commit_timestamp_ms


def group_tombstones(group: Group) -> Iterable[GroupRecord]:
    if isinstance(group, ConsumerGroup):
        return tombstones(group)
    return (GroupRecord(GroupMetadataKey(group.group_id), None),)
