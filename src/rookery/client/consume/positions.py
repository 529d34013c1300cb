"""Looks up the positions of partitions: offsets by timestamp (ListOffsets), epoch ends (OffsetForLeaderEpoch), commits.

`OffsetQueries` sends queries to the leaders and keeps no state. `PositionKeeper.advance` starts the look-ups that the
partitions' stages require, one task per stage; replies go into the subscription, which ignores stale ones. Transient
errors are retried after a backoff; any other error becomes the partition's failure, which the next poll raises.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
    TopicPartition,
    indexes_by_topic,
)
from rookery.client.cluster import Cluster
from rookery.client.consume.records import OffsetAndMetadata, OffsetAndTimestamp
from rookery.client.consume.subscription import FetchPosition, PartitionState, Stage, Subscription
from rookery.client.errors import AuthenticationError, NoOffsetError, OffsetOutOfRangeError
from rookery.client.settings.consumer import OffsetReset, OffsetResetStrategy
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

# Special timestamps of ListOffsets.
LATEST: Final[TimestampMs] = -1
EARLIEST: Final[TimestampMs] = -2

# The `replica_id` of a request that does not come from a broker.
_CONSUMER_REPLICA_ID: Final = -1
_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]
]


RowT = TypeVar("RowT", bound="Row")


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch; both fields are -1 if the leader has no such epoch."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class Row(Protocol):
    """A partition's row of a response."""

    @property
    def error_code(self) -> int: ...


class LeaderReplies(NamedTuple, Generic[RowT]):
    """The rows of the leaders' responses by partition, and the errors of the partitions without a row."""

    rows: dict[TopicPartition, RowT]
    errors: dict[TopicPartition, ApiError]


def leader_epoch(cluster: Cluster, tp: TopicPartition) -> LeaderEpoch:
    """Return the partition's leader epoch according to the metadata; -1 if unknown."""
    topic = cluster.metadata.topics.get(tp.topic)
    if topic is None or tp.partition >= len(topic.partitions):
        return NO_LEADER_EPOCH
    return topic.partitions[tp.partition].leader_epoch


class OffsetQueries:
    def __init__(self, cluster: Cluster, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._isolation_level = int(read_committed)

    async def find(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look offsets up by timestamp, LATEST or EARLIEST; None if all records are older. Retry until the time-out."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

        async def query() -> None:
            replies = await self.list_offsets({tp: time for tp, time in wanted.items() if tp not in found})
            found.update({tp: _offset_of(row) for tp, row in replies.rows.items()})
            # Raise a final error first: otherwise a retriable one would hide it until the time-out.
            for error in sorted(replies.errors.values(), key=lambda error: _is_transient(error.code)):
                raise error

        await self._cluster.retry(query, timeout_s=timeout_s, retriable=_is_transient)
        return found

    async def resolve(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Like `find`, but return the end offset where all records are older."""
        found = await self.find(wanted, timeout_s=timeout_s)
        late = [tp for tp, offset in found.items() if offset is None]
        if late:
            found |= await self.find(dict.fromkeys(late, LATEST), timeout_s=timeout_s)
        return {tp: offset.offset for tp, offset in found.items() if offset is not None}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, auto_create: bool = False
    ) -> LeaderReplies[ListOffsetsPartitionResponse]:
        """Send ListOffsets once, without retries. `auto_create` lets the broker create missing topics."""

        def row(tp: TopicPartition) -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=leader_epoch(self._cluster, tp),
                timestamp=wanted[tp],
            )

        def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=_CONSUMER_REPLICA_ID,
                isolation_level=self._isolation_level,
                topics=[
                    ListOffsetsTopic(name=name, partitions=[row(TopicPartition(name, index)) for index in indexes])
                    for name, indexes in indexes_by_topic(partitions).items()
                ],
                timeout_ms=int(self._cluster.timeout_s * 1000),
            )

        return await self._query_leaders(ApiKey.LIST_OFFSETS, wanted, request, _offset_rows, auto_create=auto_create)

    async def epoch_ends(
        self, positions: Mapping[TopicPartition, FetchPosition]
    ) -> LeaderReplies[OffsetForLeaderEpochResponseEpochEndOffset]:
        """Ask for the end offsets of the leader epochs of `positions`, once, without retries."""

        def row(tp: TopicPartition) -> OffsetForLeaderPartition:
            return OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=leader_epoch(self._cluster, tp),
                leader_epoch=positions[tp].leader_epoch,
            )

        def request(partitions: Sequence[TopicPartition]) -> OffsetForLeaderEpochRequest:
            return OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER_REPLICA_ID,
                topics=[
                    OffsetForLeaderTopic(topic=name, partitions=[row(TopicPartition(name, index)) for index in indexes])
                    for name, indexes in indexes_by_topic(partitions).items()
                ],
            )

        return await self._query_leaders(ApiKey.OFFSET_FOR_LEADER_EPOCH, positions, request, _epoch_rows)

    async def _query_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Request[ResponseT]],
        rows: Callable[[ResponseT], Iterable[tuple[TopicPartition, RowT]]],
        *,
        auto_create: bool = False,
    ) -> LeaderReplies[RowT]:
        replies: LeaderReplies[RowT] = LeaderReplies({}, {})
        wanted = sorted(partitions)
        try:
            await self._refresh_leaders(wanted, auto_create=auto_create)
        except AuthenticationError as error:
            return LeaderReplies({}, dict.fromkeys(wanted, error))
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for tp in wanted:
            leader = self._cluster.metadata.leader(*tp)
            if leader is None:
                replies.errors[tp] = self._no_leader_error(tp)
            else:
                by_leader.setdefault(leader, []).append(tp)

        async def query(node: NodeId, theirs: Sequence[TopicPartition]) -> None:
            try:
                response = await self._cluster.call(api_key, request(theirs), node=node)
            except ApiError as error:
                replies.errors.update(dict.fromkeys(theirs, error))
                return
            for tp, row in rows(response):
                code = ErrorCode(row.error_code)
                if code is ErrorCode.NONE:
                    replies.rows[tp] = row
                else:
                    replies.errors[tp] = ApiError(code, f"partition {tp}")

        await asyncio.gather(*(query(node, theirs) for node, theirs in by_leader.items()))
        return replies

    async def _refresh_leaders(self, partitions: Iterable[TopicPartition], *, auto_create: bool) -> None:
        metadata = self._cluster.metadata
        stale = {tp.topic for tp in partitions if self._cluster.is_stale(tp.topic) or metadata.leader(*tp) is None}
        if stale:
            try:
                await self._cluster.refresh(stale, auto_create=auto_create)
            except AuthenticationError:
                raise
            except ApiError:
                # Ignored: `_no_leader_error` reports every partition whose leader is still unknown.
                pass

    def _no_leader_error(self, tp: TopicPartition) -> ApiError:
        topic = self._cluster.metadata.topics.get(tp.topic)
        if topic is None:
            return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"there is no metadata of topic {tp.topic} yet")
        if topic.error is not ErrorCode.NONE:
            return ApiError(topic.error, f"topic {tp.topic}")
        if tp.partition >= len(topic.partitions):
            return ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {tp.topic} has {len(topic.partitions)} partitions, there is no {tp.partition}",
            )
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp} has no leader")


def _is_transient(code: ErrorCode) -> bool:
    """A missing topic or partition is a final answer to a query that names it, although Kafka's code is retriable."""
    return code.retriable and code not in _FINAL


def _offset_of(row: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None:
    if row.offset < 0:
        return None
    return OffsetAndTimestamp(row.offset, row.timestamp, row.get("leader_epoch", NO_LEADER_EPOCH))


def _offset_rows(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def _epoch_rows(
    response: OffsetForLeaderEpochResponse,
) -> Iterable[tuple[TopicPartition, OffsetForLeaderEpochResponseEpochEndOffset]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.topic, row.partition), row


class PositionKeeper:
    """`committed` asks the group's coordinator; None without a group. `on_change` is called after every look-up."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        queries: OffsetQueries,
        *,
        reset: OffsetReset,
        committed: CommittedLookup | None,
        auto_create: bool,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._queries = queries
        self._reset = reset
        self._committed = committed
        self._auto_create = auto_create
        self._clock = clock
        self._on_change = on_change
        self._tasks: dict[Stage, asyncio.Task[None]] = {}
        self._attempts: dict[Stage, int] = {}
        self._metadata_seen: object = None
        self._is_closed = False

    @property
    def may_reset(self) -> bool:
        return self._reset.strategy is not OffsetResetStrategy.NONE

    def advance(self) -> None:
        """Start a look-up for each stage that has partitions and no task."""
        if self._is_closed:
            return
        self._compare_leaders()
        now_s = asyncio.get_running_loop().time()
        for stage, look_up in (
            (Stage.COMMITTED, self._find_committed),
            (Stage.RESET, self._find_resets),
            (Stage.VALIDATION, self._validate),
        ):
            if stage not in self._tasks and self._subscription.in_stage(stage, now_s):
                self._tasks[stage] = asyncio.get_running_loop().create_task(self._run(stage, look_up))

    async def close(self) -> None:
        """Cancel all look-ups; `advance` does nothing afterwards."""
        # First of all: a cancelled task still calls `on_change`, which calls `advance`; that must not start it again.
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _compare_leaders(self) -> None:
        """Pass the leader epochs of new metadata to the subscription."""
        if self._cluster.metadata is self._metadata_seen:
            return
        self._metadata_seen = self._cluster.metadata
        for tp in self._subscription:
            self._subscription.on_leader_epoch(tp, leader_epoch(self._cluster, tp))

    async def _run(
        self, stage: Stage, look_up: Callable[[Mapping[TopicPartition, PartitionState]], Awaitable[bool]]
    ) -> None:
        """`look_up` returns whether all partitions succeeded; the backoff grows while it returns False."""
        try:
            # Not the partitions that `advance` saw: the user may have sought since this task was created.
            missing = self._subscription.in_stage(stage, asyncio.get_running_loop().time())
            has_succeeded = not missing or await look_up(missing)
            self._attempts[stage] = 0 if has_succeeded else self._attempts.get(stage, 0) + 1
        finally:
            del self._tasks[stage]
            self._on_change()

    async def _find_committed(self, missing: Mapping[TopicPartition, PartitionState]) -> bool:
        generations = {tp: state.generation for tp, state in missing.items()}
        if self._committed is None:
            found: Mapping[TopicPartition, OffsetAndMetadata] = {}
        else:
            try:
                found = await self._committed(generations)
            except ApiError as error:
                # An error must not pass for "nothing is committed": the position would be reset, and records between
                # the committed offset and the reset position would be skipped or read twice.
                self._handle_errors(Stage.COMMITTED, generations, dict.fromkeys(generations, error))
                return False
        for tp, generation in generations.items():
            self._subscription.on_committed(tp, generation, found.get(tp))
        return True

    async def _find_resets(self, missing: Mapping[TopicPartition, PartitionState]) -> bool:
        generations = {tp: state.generation for tp, state in missing.items()}
        times = {tp: self._reset_time(state) for tp, state in missing.items()}
        without_policy = [tp for tp, time in times.items() if time is None]
        if without_policy:
            failure = NoOffsetError(without_policy)
            for tp in without_policy:
                self._subscription.fail(tp, generations[tp], failure)
        wanted = {tp: time for tp, time in times.items() if time is not None}
        if not wanted:
            return True
        replies = await self._queries.list_offsets(wanted, auto_create=self._auto_create)
        # All records are older than the requested time: continue at the end.
        late = [tp for tp, row in replies.rows.items() if row.offset < 0]
        if late:
            ends = await self._queries.list_offsets(dict.fromkeys(late, LATEST))
            replies = LeaderReplies(replies.rows | ends.rows, replies.errors | ends.errors)
        for tp, row in replies.rows.items():
            if row.offset >= 0:
                position = FetchPosition(row.offset, row.get("leader_epoch", NO_LEADER_EPOCH))
                self._subscription.on_reset(tp, generations[tp], position)
        self._handle_errors(Stage.RESET, generations, replies.errors)
        return not replies.errors

    def _reset_time(self, state: PartitionState) -> TimestampMs | None:
        if state.reset_to_ms is not None:
            return state.reset_to_ms
        match self._reset.strategy:
            case OffsetResetStrategy.EARLIEST:
                return EARLIEST
            case OffsetResetStrategy.LATEST:
                return LATEST
            case OffsetResetStrategy.BY_DURATION:
                return max(0, self._clock.now_ms() - self._reset.duration_ms)
            case OffsetResetStrategy.NONE:
                return None

    async def _validate(self, missing: Mapping[TopicPartition, PartitionState]) -> bool:
        generations = {tp: state.generation for tp, state in missing.items()}
        positions = {tp: state.position for tp, state in missing.items() if state.position is not None}
        replies = await self._queries.epoch_ends(positions)
        for tp, row in replies.rows.items():
            end = EpochEnd(row.leader_epoch, row.end_offset)
            self._apply_epoch_end(tp, generations[tp], positions[tp], end)
        for tp, error in list(replies.errors.items()):
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                # A broker without OffsetForLeaderEpoch can never validate: take the position as it is.
                self._subscription.on_validated(tp, generations[tp], leader_epoch(self._cluster, tp))
                del replies.errors[tp]
        self._handle_errors(Stage.VALIDATION, generations, replies.errors)
        return not replies.errors

    def _apply_epoch_end(self, tp: TopicPartition, generation: int, position: FetchPosition, end: EpochEnd) -> None:
        """Validate `position` with the end of its leader epoch on the leader; move it back if the log was truncated."""
        is_unknown = end.leader_epoch < 0 or end.end_offset < 0
        if not is_unknown and end.end_offset >= position.offset:
            self._subscription.on_validated(tp, generation, leader_epoch(self._cluster, tp))
        elif is_unknown or not self.may_reset:
            failure = None if self.may_reset else (lambda: OffsetOutOfRangeError(tp, position.offset))
            self._subscription.on_out_of_range(tp, generation, failure=failure)
        elif self._subscription.find(tp, generation) is not None:
            # The log was truncated before the position, and the leader may have written other records there. Continue
            # at the truncation: continuing at the position would skip them.
            self._subscription.seek(tp, FetchPosition(end.end_offset, end.leader_epoch))

    def _handle_errors(
        self, stage: Stage, generations: Mapping[TopicPartition, int], errors: Mapping[TopicPartition, ApiError]
    ) -> None:
        pause_s = self._cluster.backoff_s(self._attempts.get(stage, 0))
        until_s = asyncio.get_running_loop().time() + pause_s
        for tp, error in errors.items():
            if error.code.retriable:
                self._cluster.mark_stale(tp.topic)
                self._subscription.defer(tp, generations[tp], until_s)
            else:
                self._subscription.fail(tp, generations[tp], error)
