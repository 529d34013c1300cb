"""Removal of offsets, and of groups with them: by a request, with their topic, or when their retention has expired."""

from collections.abc import Iterable, Iterator, Mapping

from rookery.base.bounds import ITEMS_PER_SLICE, OFFSETS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs, TopicName, TopicPartition
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.offsets.commit import CommittedPartition
from rookery.coordinators.group.offsets.pending import LoggedOffset
from rookery.coordinators.group.offsets.rules import (
    Group,
    check_delete,
    check_offset_delete,
    expiry_base_ms,
    group_tombstones,
    is_empty,
    may_expire,
    subscription,
)
from rookery.coordinators.group.offsets.store import OffsetStore, tombstone
from rookery.coordinators.group.records import NO_EXPIRY, GroupRecord, OffsetCommitValue
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import CoordinatorResult


def delete_offsets(
    group: Group | None, store: OffsetStore, group_id: str, partitions: Iterable[TopicPartition]
) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
    """Decide an OffsetDelete. The response is an ErrorCode if the whole request is rejected."""
    code = check_offset_delete(group)
    if group is None or code is not ErrorCode.NONE:
        return CoordinatorResult(response=code)
    results, records = [], []
    known = store.partitions_of(group_id)
    is_subscribed = subscription(group)
    for partition in partitions:
        in_use = is_subscribed(partition.topic)
        results.append(CommittedPartition(partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE))
        if not in_use and partition in known:
            records.append(tombstone(group_id, partition))
    return CoordinatorResult(response=tuple(results), records=records)


def delete_group(group: Group | None, store: OffsetStore, group_id: str) -> CoordinatorResult[ErrorCode]:
    code = check_delete(group)
    if group is None or code is not ErrorCode.NONE:
        return CoordinatorResult(response=code)
    records = [tombstone(group_id, partition) for partition in store.partitions_of(group_id)]
    return CoordinatorResult(response=ErrorCode.NONE, records=[*records, *group_tombstones(group)])


def steps_to_delete_topic_offsets(store: OffsetStore, topics: Iterable[TopicName]) -> Iterator[CoordinatorResult[None]]:
    """Delete the offsets of deleted topics, in steps between which other decisions may run.

    A group would otherwise start at an old offset in a new topic of the same name, and skip its first records.
    """
    deleted = frozenset(topics)
    records: list[GroupRecord] = []
    offsets = ((group_id, partition) for group_id in store.groups() for partition in store.partitions_of(group_id))
    for seen, (group_id, partition) in enumerate(offsets, 1):
        if partition.topic in deleted:
            records.append(tombstone(group_id, partition))
        if len(records) == ITEMS_PER_SLICE or seen % OFFSETS_PER_SLICE == 0:
            yield CoordinatorResult(response=None, records=records, divisible=True)
            records = []
    if records:
        yield CoordinatorResult(response=None, records=records, divisible=True)


def expire(
    groups: Mapping[str, Group], store: OffsetStore, settings: GroupSettings, now_ms: TimestampMs
) -> list[GroupRecord]:
    """Return the tombstones of expired offsets, and of groups that have neither offsets nor members left.

    A partition for which an open transaction has an offset is in use, and so is its group: a tombstone would drop the
    pending offset, and the transaction's commit would have no effect.
    """
    records: list[GroupRecord] = []
    for group_id, group in groups.items():
        offsets, pending = store.of(group_id), store.pending.of(group_id)
        expired = [partition for partition in _expired(group, offsets, settings, now_ms) if partition not in pending]
        records += [tombstone(group_id, partition) for partition in expired]
        if len(expired) == len(offsets) and not pending and is_empty(group) and not _awaits_members(group):
            records += group_tombstones(group)
    return records


def _expired(
    group: Group,
    offsets: Mapping[TopicPartition, LoggedOffset],
    settings: GroupSettings,
    now_ms: TimestampMs,
) -> list[TopicPartition]:
    if not offsets or not may_expire(group):
        return []
    is_subscribed = subscription(group)
    return [
        partition
        for partition, (_, value) in offsets.items()
        if not is_subscribed(partition.topic) and _is_expired(value, expiry_base_ms(group, value), settings, now_ms)
    ]


def _is_expired(value: OffsetCommitValue, base_ms: TimestampMs, settings: GroupSettings, now_ms: TimestampMs) -> bool:
    if value.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - base_ms >= settings.offsets_retention_ms


def _awaits_members(group: Group) -> bool:
    """Whether the group has assigned member ids that have not joined yet."""
    return isinstance(group, ClassicGroup) and bool(group.pending_joins)
