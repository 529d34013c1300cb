"""All groups of one partition of `__consumer_offsets`, classic and consumer, in one id namespace, and their offsets.

The entry point of the pure core: each method takes a request as plain values and returns a `CoordinatorResult`. The
kind of the group with the requested id selects the implementation. State changes only by `replay` of written records,
and by `install` of state that the log does not carry (waiting members of a classic group, notes on a consumer group).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerId, TimestampMs, TopicName, TopicPartition
from rookery.coordinators import regex
from rookery.coordinators.group.classic import describe, join, membership, sync
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import ClassicGroup, from_stored
from rookery.coordinators.group.classic.rebalance import on_join_timer, on_sync_timer
from rookery.coordinators.group.classic.results import (
    DescribedGroup,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.consumer import describe as consumer_describe
from rookery.coordinators.group.consumer import service as consumer
from rookery.coordinators.group.consumer.describe import DescribedConsumerGroup
from rookery.coordinators.group.consumer.environment import (
    ConsumerSettings,
    Environment,
    ErrorResponse,
    Match,
    MemberTimer,
    VisibleTopics,
)
from rookery.coordinators.group.consumer.group import ConsumerGroup, VolatileChange, tombstones
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest as ConsumerHeartbeatRequest
from rookery.coordinators.group.consumer.heartbeat import HeartbeatResponse as ConsumerHeartbeatResponse
from rookery.coordinators.group.consumer_records import GroupKey
from rookery.coordinators.group.offsets import commit, removal
from rookery.coordinators.group.offsets.commit import CommitRequest, CommittedPartition, FetchedOffsets, FetchRequest
from rookery.coordinators.group.offsets.rules import Group
from rookery.coordinators.group.offsets.store import OffsetStore
from rookery.coordinators.group.offsets.transactional import TransactionalCommitRequest, commit_transactional
from rookery.coordinators.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_record,
)
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.timers import ExpiryTimer, JoinTimer, SessionTimer, SyncTimer
from rookery.coordinators.result import CoordinatorResult, Timer, TimerKey, Token
from rookery.metadata.image import TopicImage

_NOTHING: CoordinatorResult[None] = CoordinatorResult(response=None)


class ListedGroup(NamedTuple):
    """`type` is "classic" or "consumer"."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupShard:
    """`new_id` returns the random part of member ids, `topics` the cluster's present topics.

    `match` finds the topics of a pattern. If `is_restricted`, only heartbeats that say which topics their client may
    see match patterns: a timer, for example, has no client, and must not add topics to a group.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        new_id: Callable[[], str],
        consumer_settings: ConsumerSettings | None = None,
        topics: Callable[[], Mapping[TopicName, TopicImage]] = dict,
        match: Match = regex.matching,
        is_restricted: bool = False,
    ) -> None:
        self.settings = settings
        self.consumer_settings = consumer_settings or ConsumerSettings()
        self._topics = topics
        self._match = match
        self._is_restricted = is_restricted
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._new_id = new_id

    # The runtime's protocol

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)

    def replay(self, record: GroupRecord) -> None:
        key, value = record
        match key:
            case OffsetCommitKey():
                assert value is None or isinstance(value, OffsetCommitValue)
                self.offsets.replay(key, value)
                if value is not None:
                    self._ensure_group(key.group_id)
            case GroupMetadataKey():
                assert value is None or isinstance(value, GroupMetadataValue)
                self._replay_classic(key.group_id, value)
            case _:
                self._replay_consumer(key, record)

    def replay_pending(self, record: GroupRecord, producer_id: ProducerId) -> None:
        """Replay a record of an open transaction. Only offset commits are written in one, and wait for its end."""
        key, value = record
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            self.offsets.replay_pending(key, value, producer_id)
            self._ensure_group(key.group_id)
        else:
            self.replay(record)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            self._ensure_group(group_id)

    def _ensure_group(self, group_id: str) -> None:
        """Create a simple group: one that has offsets and no members."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id=group_id)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self.groups[group_id] = from_stored(group_id, value)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            # Under the id of a consumer group the tombstone belongs to the classic group that it replaced.
            del self.groups[group_id]

    def _replay_consumer(self, key: Key, record: GroupRecord) -> None:
        group = self.groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                # Compaction has removed the records that this tombstone deletes.
                return
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        if record.value is None and isinstance(key, GroupKey):
            del self.groups[key.group_id]
        else:
            group.apply(record)

    def install(self, change: ClassicGroup | VolatileChange) -> None:
        if isinstance(change, ClassicGroup):
            self.groups[change.group_id] = change
        else:
            group = self.groups.get(change.group_id)
            if isinstance(group, ConsumerGroup):
                group.volatile = change.state

    def on_loaded(self, now_ms: TimestampMs) -> CoordinatorResult[None]:
        """Restart the timers. Members continue in their generation or epoch, each with a full session."""
        timers = [Timer(ExpiryTimer(), self.settings.offsets_check_interval_ms)]
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                timers += [membership.session_timer(group, member_id) for member_id in group.members]
        timers += consumer.timers_after_loading(self.groups, self._environment(now_ms))
        return CoordinatorResult(response=None, timers=timers)

    def on_timer(self, key: TimerKey, now_ms: TimestampMs) -> CoordinatorResult[None]:
        match key:
            case SessionTimer(group_id, member_id):
                return self._on_classic_timer(
                    group_id, now_ms, lambda draft: membership.on_session_timer(draft, member_id)
                )
            case JoinTimer(group_id):
                return self._on_classic_timer(group_id, now_ms, on_join_timer)
            case SyncTimer(group_id):
                return self._on_classic_timer(group_id, now_ms, on_sync_timer)
            case MemberTimer():
                return consumer.expire_member(self.groups, key, self._environment(now_ms))
            case ExpiryTimer():
                records = removal.expire(self.groups, self.offsets, self.settings, now_ms)
                again = Timer(key, self.settings.offsets_check_interval_ms)
                return CoordinatorResult(response=None, records=records, timers=(again,), divisible=True)
        raise AssertionError(f"unknown timer: {key}")

    def _on_classic_timer(
        self, group_id: str, now_ms: TimestampMs, act: Callable[[ClassicDraft], None]
    ) -> CoordinatorResult[None]:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return _NOTHING
        draft = ClassicDraft(group, self.settings, now_ms)
        act(draft)
        return draft.result(None)

    # The classic protocol

    def join(self, request: JoinRequest, token: Token, now_ms: TimestampMs) -> CoordinatorResult[JoinResult]:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return consumer.classic_join(group, request, self._new_id, self._environment(now_ms))
        classic = self._classic(request.group_id)
        result = join.join(classic, request, token, settings=self.settings, new_id=self._new_id, now_ms=now_ms)
        if isinstance(group, ConsumerGroup) and result.volatile_changes:
            # The new classic group replaces an empty consumer group: the log must not hold two groups of one id.
            return replace(result, records=[*tombstones(group), *result.records])
        return result

    def sync(self, request: SyncRequest, token: Token, now_ms: TimestampMs) -> CoordinatorResult[SyncResult]:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return consumer.classic_sync(group, request, self._environment(now_ms))
        return sync.sync(group, request, token, settings=self.settings, now_ms=now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: TimestampMs) -> CoordinatorResult[ErrorCode]:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return consumer.classic_heartbeat(group, request, self._environment(now_ms))
        return membership.heartbeat(group, request)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], now_ms: TimestampMs
    ) -> CoordinatorResult[LeaveResult]:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return consumer.classic_leave(group, members, self._environment(now_ms))
        return membership.leave(group, members, settings=self.settings, now_ms=now_ms)

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # The new protocol

    def consumer_heartbeat(
        self, request: ConsumerHeartbeatRequest, now_ms: TimestampMs
    ) -> CoordinatorResult[ConsumerHeartbeatResponse | ErrorResponse]:
        return consumer.consumer_heartbeat(self.groups, request, self._environment(now_ms, request.visible))

    def describe_consumer(self, group_id: str, now_ms: TimestampMs) -> DescribedConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return consumer_describe.describe_missing(group_id, is_classic=group is not None)
        return consumer_describe.describe(group, self._environment(now_ms))

    def _environment(self, now_ms: TimestampMs, visible: VisibleTopics | None = None) -> Environment:
        environment = Environment(self._topics(), self.consumer_settings, self.settings, now_ms, self._match)
        if not self._is_restricted:
            return environment
        if visible is None:
            # The groups keep the topics that they have: the next heartbeat matches the patterns.
            return environment._replace(match=lambda *_: None)
        return environment._replace(
            match=lambda pattern, topics: _restrict(self._match(pattern, topics), visible),
            visible_version=visible.version,
        )

    # Offsets

    def commit(self, request: CommitRequest, now_ms: TimestampMs) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
        return commit.commit(self.groups.get(request.group_id), request, settings=self.settings, now_ms=now_ms)

    def commit_transactional(
        self, request: TransactionalCommitRequest, now_ms: TimestampMs
    ) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
        group = self.groups.get(request.group_id)
        return commit_transactional(group, request, settings=self.settings, now_ms=now_ms)

    def fetch(self, request: FetchRequest) -> FetchedOffsets:
        return commit.fetch(self.groups.get(request.group_id), self.offsets, request)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> CoordinatorResult[tuple[CommittedPartition, ...]]:
        return removal.delete_offsets(self.groups.get(group_id), self.offsets, group_id, partitions)

    def steps_to_delete_topic_offsets(self, topics: Iterable[TopicName]) -> Iterator[CoordinatorResult[None]]:
        return removal.steps_to_delete_topic_offsets(self.offsets, topics)

    # Groups of both kinds

    def delete(self, group_id: str) -> CoordinatorResult[ErrorCode]:
        return removal.delete_group(self.groups.get(group_id), self.offsets, group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return describe.describe_missing(group_id, is_consumer=group is not None)
        return describe.describe(group)

    def list(self) -> list[ListedGroup]:
        return [_listed(group) for group in self.groups.values()]


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, "consumer", group.state.value, "consumer")
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")


def _restrict(matched: frozenset[TopicName] | None, visible: VisibleTopics) -> frozenset[TopicName] | None:
    return None if matched is None else frozenset(filter(visible.includes, matched))
