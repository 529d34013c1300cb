"""Looks at a cluster from outside, with few requests, and returns a `ClusterSample`. The shell of this package.

A thousand groups cost some tens of requests: groups are described, and their offsets fetched, a hundred at a time from
each coordinator; the spans of all partitions come from one request to each leader; and records are read, one request to
each leader again, only for offsets that the cache does not know. Whatever the user may not see is left out: a group
whose offsets cannot be fetched has an error, a topic that cannot be read has no lag in seconds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicId, TopicName, TopicPartition
from rookery.client.admin import (
    EARLIEST,
    LATEST,
    Admin,
    ConfigResource,
    GroupDescription,
    OffsetAndMetadata,
    ResourceType,
)
from rookery.lag.samples import (
    NOTHING_UNREAD,
    ClusterSample,
    GroupSample,
    LogSpan,
    Owner,
    PartitionSample,
    Unread,
)
from rookery.lag.unread import UnreadCache, position_of

_CONSUMER_PROTOCOLS = frozenset({"", "consumer"})
_OTHER_TYPES = frozenset({"share", "streams"})
_CLEANUP, _RETENTION = "cleanup.policy", "retention.ms"
_SETTINGS_AGE_MAX_S = 60.0

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class LagSampler:
    """`read_committed`: lag up to the last stable offset, for consumers that read only committed records."""

    def __init__(self, admin: Admin, *, read_committed: bool = False, clock: Clock | None = None) -> None:
        self._admin = admin
        self._read_committed = read_committed
        self._clock = clock or SystemClock()
        self._cache = UnreadCache()
        self._settings = _TopicSettings(admin, self._clock)
        self._topic_ids: dict[TopicName, TopicId] = {}

    async def sample(self, group_ids: Collection[str] | None = None) -> ClusterSample:
        """Look at `group_ids`; None: at all consumer groups. Raises GROUP_ID_NOT_FOUND if a named one does not exist.

        A group exists if it has members or committed offsets.
        """
        wanted = await self._group_ids() if group_ids is None else sorted(set(group_ids))
        described = {group.group_id: group for group in await self._admin.describe_group_batch(wanted)}
        _check_exist(described.values(), must_exist=group_ids is not None)
        present = [each for each in wanted if described[each].error != ErrorCode.GROUP_ID_NOT_FOUND]
        fetched = await self._admin.committed_offset_batch(present)
        offsets = {each: found for each, found in fetched.items() if not isinstance(found, ApiError)}
        owners = {each: _owners(described[each]) for each in present}
        spans = await self._spans({tp for each in present for tp in {*offsets.get(each, ()), *owners[each]}})
        await self._settings.refresh({tp.topic for tp in spans})
        unread = await self._unread(offsets.values(), spans)
        groups = [_group(described[each], fetched[each], owners[each], spans=spans, unread=unread) for each in present]
        return ClusterSample(
            at_ms=self._clock.now_ms(),
            groups=tuple(groups),
            spans=spans,
            retention_ms=dict(self._settings.retention_ms),
        )

    async def _group_ids(self) -> list[str]:
        return [
            group.group_id
            for group in await self._admin.list_groups()
            if group.protocol_type in _CONSUMER_PROTOCOLS and group.group_type.lower() not in _OTHER_TYPES
        ]

    async def _spans(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogSpan]:
        """Return the spans of the partitions that exist and have a leader."""
        if not partitions:
            return {}
        topics = await self._admin.describe_topics(sorted({tp.topic for tp in partitions}))
        self._note_topic_ids({topic.name: topic.topic_id for topic in topics})
        led = {TopicPartition(topic.name, p.index) for topic in topics for p in topic.partitions if p.leader >= 0}
        wanted = sorted(led & set(partitions))
        starts = await self._admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
        ends = await self._admin.list_offsets(dict.fromkeys(wanted, LATEST), read_committed=self._read_committed)
        return {
            tp: LogSpan(starts[tp].offset, ends[tp].offset)
            for tp in wanted
            if starts[tp].error == ErrorCode.NONE and ends[tp].error == ErrorCode.NONE
        }

    def _note_topic_ids(self, ids: dict[TopicName, TopicId]) -> None:
        for name, topic_id in ids.items():
            if self._topic_ids.get(name, topic_id) != topic_id:
                self._cache.forget_topic(name)
        self._topic_ids = ids

    async def _unread(
        self, offsets: Iterable[_Offsets], spans: Mapping[TopicPartition, LogSpan]
    ) -> dict[tuple[TopicPartition, Offset], Unread]:
        """Return the first unread record of each committed offset, where it is known or can be read."""
        used = {(tp, each.offset) for of_group in offsets for tp, each in of_group.items() if tp in spans}
        known = {key: self._cache.find(*key, spans[key[0]]) for key in used}
        missing = {key for key, unread in known.items() if unread is None}
        found: dict[tuple[TopicPartition, Offset], Unread] = {}
        for round_of in _rounds(missing):
            positions = {tp: position_of(committed, spans[tp]) for tp, committed in round_of.items()}
            records = await self._admin.first_records(positions, read_committed=self._read_committed)
            for tp, record in records.items():
                if record.error == ErrorCode.NONE:
                    unread = NOTHING_UNREAD
                    if record.offset is not None and record.timestamp_ms is not None:
                        unread = Unread(record.offset, record.timestamp_ms)
                    found[tp, round_of[tp]] = unread
        self._cache.keep(found, spans, used=used, compacted=self._settings.compacted)
        return {key: unread for key, unread in {**known, **found}.items() if unread is not None}


class _TopicSettings:
    """The settings of topics that matter here, requested again after a minute."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._known: set[TopicName] = set()
        self._requested_s = 0.0
        self.retention_ms: dict[TopicName, int] = {}
        self.compacted: set[TopicName] = set()

    async def refresh(self, topics: Collection[TopicName]) -> None:
        if self._clock.monotonic() - self._requested_s > _SETTINGS_AGE_MAX_S:
            self._known.clear()
            self.retention_ms.clear()
            self.compacted.clear()
            self._requested_s = self._clock.monotonic()
        missing = sorted(set(topics) - self._known)
        if not missing:
            return
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in missing]
        for found in await self._admin.describe_configs(resources, names=(_CLEANUP, _RETENTION)):
            name, values = found.resource.name, found.values()
            policy = (values.get(_CLEANUP) or "").split(",")
            retention_ms = int(values.get(_RETENTION) or -1)
            if "delete" in policy and retention_ms >= 0:
                self.retention_ms[name] = retention_ms
            if "compact" in policy or found.error != ErrorCode.NONE:
                # Without the right to see the settings, the topic may be compacted.
                self.compacted.add(name)
            self._known.add(name)


def _check_exist(groups: Iterable[GroupDescription], *, must_exist: bool) -> None:
    for group in groups:
        if must_exist and group.error == ErrorCode.GROUP_ID_NOT_FOUND:
            group.check()


def _rounds(keys: Iterable[tuple[TopicPartition, Offset]]) -> Iterator[dict[TopicPartition, Offset]]:
    """Yield `keys` in rounds with at most one offset for each partition, as a fetch request has."""
    left = sorted(keys)
    while left:
        chosen: dict[TopicPartition, Offset] = {}
        later: list[tuple[TopicPartition, Offset]] = []
        for tp, offset in left:
            if tp in chosen:
                later.append((tp, offset))
            else:
                chosen[tp] = offset
        yield chosen
        left = later


def _owners(group: GroupDescription) -> dict[TopicPartition, Owner]:
    return {
        tp: Owner(member.member_id, member.client_id, member.client_host)
        for member in group.members
        for tp in member.assignment
    }


def _group(
    described: GroupDescription,
    offsets: _Offsets | ApiError,
    owners: Mapping[TopicPartition, Owner],
    *,
    spans: Mapping[TopicPartition, LogSpan],
    unread: Mapping[tuple[TopicPartition, Offset], Unread],
) -> GroupSample:
    failed = offsets.code if isinstance(offsets, ApiError) else ErrorCode.NONE
    committed = {} if isinstance(offsets, ApiError) else {tp: each.offset for tp, each in offsets.items()}
    partitions = [
        PartitionSample(
            partition=tp,
            committed=committed.get(tp),
            span=spans.get(tp),
            unread=unread.get((tp, committed[tp])) if tp in committed else None,
            owner=owners.get(tp),
        )
        for tp in sorted({*committed, *owners})
    ]
    return GroupSample(
        group_id=described.group_id,
        group_type=described.group_type,
        state=described.state,
        member_count=len(described.members),
        partitions=tuple(partitions),
        error=failed if failed != ErrorCode.NONE else described.error,
    )
