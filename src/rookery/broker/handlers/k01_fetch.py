"""Fetch (1): batches from partitions that this broker leads, as ranges of files that the connection sends.

The response is sent immediately if `min_bytes` are readable, a partition fails, or the client does not wait. If not,
the fetch is parked until enough records are appended or `max_wait_ms` has passed. The first partition that has records
returns at least one batch, whatever its size, so that every reader makes progress. Apart from that the limits are the
request's, each partition's, and the broker's `fetch.max.bytes`. Consumers read below the high watermark, replicas to
the end of the log. With `read_committed` consumers read below the last stable offset, and the response lists the
aborted transactions in the range: their records are sent like all others, and the client skips them.

Replicas: a fetch of a follower acknowledges the records before its offset, once, when it arrives. One that waits is
answered as well when the high watermark or the log start that it does not know yet has moved. A fetch of a process that
another one has replaced (KIP-903) is NOT_LEADER_OR_FOLLOWER. Consumers may read from followers, up to the high
watermark that these know; the leader refers a consumer to one in its rack if `replica.selector.class` says so
(KIP-392). A follower that has a new partition to copy while its fetch waits sends an empty one, over another
connection, which ends the wait.

Quotas: a consumer that has exceeded its quota gets an empty response with the throttle time, and keeps its session. A
follower that is not in sync gets no records of a throttled replica while the rate of the leader's throttle is exceeded.

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID (the session's topic was
deleted and created again), OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
KAFKA_STORAGE_ERROR; for the session: see `fetch_sessions`. A partition that does not exist does not end the wait.

Versions: v4 is the first with v2 batches. v5 log start offset (up to v5 a failed disk is NOT_LEADER_OR_FOLLOWER). v7
sessions. v9 current leader epoch. v10 may carry zstd; before, a topic with compression.type=zstd is rejected with
UNSUPPORTED_COMPRESSION_TYPE. v11 rack and preferred replica, reads from followers. v12 flexible, last fetched epoch
and the diverging epoch in response to it. v13 names topics by id. v15 moves the replica id. v16 the current leader if
this broker is not the leader. v17 replica's directory. v18 the high watermark that a replica knows.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias
from uuid import UUID

from rookery.base.bounds import FETCH_PARTITIONS_PER_SLICE, REQUEST_BYTES_ON_LOOP
from rookery.base.errors import ErrorCode
from rookery.base.files import FileSlice
from rookery.base.types import Buffer, NodeId, TopicPartition
from rookery.broker.context import ClusterContext, RequestContext
from rookery.broker.delayed_response import delay_response
from rookery.broker.fetch_sessions import FetchContext, PartitionKey, SessionPartition, Wanted
from rookery.broker.large_requests import in_worker
from rookery.broker.throttling import Usage
from rookery.net.connection import HandlerResult, Held
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.fetch import (
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from rookery.protocol.framing import parts_size
from rookery.protocol.messages import FetchRequest as QuorumFetchRequest
from rookery.protocol.messages import FetchResponse
from rookery.quotas.replication import ReplicationThrottle
from rookery.replication.replica import Fetched, Replica

_STORAGE_ERROR_SINCE = 6
_ZSTD_SINCE = 10
_FOLLOWER_READS_SINCE = 11
_TOPIC_IDS_SINCE = 13
_CURRENT_LEADER_SINCE = 16
_READ_COMMITTED = 1
_OK: Final = ErrorCode.NONE
NewFetch: TypeAlias = Callable[[RequestContext, FetchRequest, FetchContext], "Fetch"]
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    context: RequestContext, frame: memoryview, position: int, *, new_fetch: NewFetch | None = None
) -> HandlerResult:
    """Handle one request. `new_fetch` makes its `Fetch`, if not every partition may be read."""
    if len(frame) > REQUEST_BYTES_ON_LOOP:
        return Held(_answer_large(context, context.services.large_requests.admit(frame), position, new_fetch))
    return _answer(context, decode_fetch(context.api_version, frame, position), new_fetch)


async def handle_on_controller(context: ClusterContext, request: QuorumFetchRequest) -> FetchResponse:
    """Respond to a replica of the metadata log; `quorum.core` decides."""
    return await context.services.quorum.receive(ApiKey.FETCH, request)


async def _answer_large(
    context: RequestContext, frame: bytes, position: int, new_fetch: NewFetch | None
) -> Reply | None:
    request = await context.services.large_requests.decode(
        frame, lambda data: decode_fetch(context.api_version, data, position)
    )
    answer = _answer(context, request, new_fetch)
    return await answer if isinstance(answer, Awaitable) else answer


def _answer(context: RequestContext, request: FetchRequest, new_fetch: NewFetch | None) -> HandlerResult:
    session = context.services.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        wanted=_wanted(request),
        forgotten=_forgotten(request),
        is_follower=request.replica_id >= 0,
        uses_topic_ids=context.api_version >= _TOPIC_IDS_SINCE,
        now_ms=context.services.clock.now_ms(),
    )
    context.connection.is_follower = request.replica_id >= 0
    if request.replica_id >= 0 and not session.partitions:
        # An empty fetch of a follower: it has new partitions, and its long poll does not name them yet.
        context.services.pending.wake(_follower_key(request.replica_id))
    if session.error_code is not _OK:
        context.services.requests.add_error(context.api_key, session.error_code)
        throttle_ms = 0 if context.usage is None else context.usage.charge()
        body = encode_fetch_response(
            context.api_version, (), throttle_time_ms=throttle_ms, error_code=session.error_code
        )
        return context.reply(body)
    fetch = (new_fetch or Fetch)(context, request, session)
    if len(session.partitions) > FETCH_PARTITIONS_PER_SLICE:
        return Held(fetch.answer_in_slices())
    fetch.read()
    if fetch.can_answer:
        return fetch.answer()
    return delay_response(
        context.services.pending,
        fetch.wake_keys,
        timeout_ms=request.max_wait_ms,
        is_ready=fetch.is_ready,
        finish=fetch.finish,
    )


def _wanted(request: FetchRequest) -> list[tuple[PartitionKey, Wanted]]:
    return [
        (
            (_topic_key(topic.name, topic.topic_id), partition.partition),
            Wanted(
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
                partition.high_watermark,
            ),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        (_topic_key(topic.name, topic.topic_id), partition)
        for topic in request.forgotten_topics
        for partition in topic.partitions
    ]


def _topic_key(name: str | None, topic_id: UUID | None) -> str | UUID:
    key = topic_id if name is None else name
    assert key is not None
    return key


def _follower_key(node_id: NodeId) -> TopicPartition:
    """Return the key under which the fetches of a follower wait, next to their partitions: no topic has this name."""
    return TopicPartition("", node_id)


class _Limits:
    """What limits a request: the quotas of a consumer's client, or the throttle of the replicas that a follower copies.

    A follower has no `usage`: if clients' quotas delayed it, producers would wait for it. `charged` are the bytes
    of the response that were charged before it is encoded, None if it is empty.
    """

    __slots__ = ("charged", "throttle", "usage")

    def __init__(self, usage: Usage | None = None, throttle: ReplicationThrottle | None = None) -> None:
        self.usage = usage
        self.throttle = throttle
        self.charged: int | None = None


class Fetch:
    """The reads of one request: one when it arrives, and another one after it has waited."""

    __slots__ = (
        "_context",
        "_is_repeated",
        "_limits",
        "_max_bytes",
        "_must_answer",
        "_needs_leader",
        "_request",
        "_results",
        "_session",
        "_wanted",
        "sizes",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, session: FetchContext) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._results: list[tuple[SessionPartition, Fetched]] = []
        self._max_bytes = min(request.max_bytes, context.services.fetch_max_bytes)
        # None if nothing limits the request, the usual case.
        self._limits: _Limits | None = None
        if request.replica_id >= 0:
            throttle = context.services.replicas.throttles.leader
            if throttle.is_active:
                self._limits = _Limits(throttle=throttle)
        elif context.usage is not None:
            self._limits = _Limits(usage=context.usage)
            self._max_bytes = context.usage.fetch_bytes_max(self._max_bytes)
        # Whether a partition has failed, its reader must truncate, or a follower does not know the high watermark: the
        # response is not delayed then.
        self._must_answer = False
        # Whether the partitions have been read once. If the position of a follower that waits counted again, one that
        # has stopped would look alive.
        self._is_repeated = False
        self._needs_leader = request.replica_id >= 0 or context.api_version < _FOLLOWER_READS_SINCE
        # The readable bytes of each partition that can end the wait, and the parameters of its read.
        self.sizes: dict[TopicPartition, int] = {}
        self._wanted: dict[TopicPartition, Wanted] = {}

    def read(self) -> None:
        """Read all partitions in their order, until the limits are reached."""
        self._results.clear()
        self._read_some(self._session.partitions, self._max_bytes, True)

    def _read_some(
        self, partitions: Sequence[SessionPartition], remaining: int, at_least_one: bool
    ) -> tuple[int, bool]:
        """Read some of the partitions; return the bytes that are left, and whether no partition had records yet."""
        for partition in partitions:
            fetched = self._read_partition(partition, remaining, at_least_one)
            self._results.append((partition, fetched))
            if fetched.size_bytes:
                remaining = max(0, remaining - fetched.size_bytes)
                at_least_one = False
        return remaining, at_least_one

    async def _read_in_slices(self) -> None:
        slices = self._context.services.slices
        self._results.clear()
        left = self._max_bytes, True
        # The first slice waits for its turn, too: the fetches of several followers often arrive at the same time.
        await slices.pause()
        async for some in slices.of(self._session.partitions, FETCH_PARTITIONS_PER_SLICE):
            left = self._read_some(some, *left)

    async def answer_in_slices(self) -> Reply:
        """Read, wait and respond for a fetch of many partitions. Other connections are served between the slices."""
        await self._read_in_slices()
        if not self.can_answer:
            await delay_response(
                self._context.services.pending,
                self.wake_keys,
                timeout_ms=self._request.max_wait_ms,
                is_ready=self.is_ready,
                finish=lambda: None,
            )
            self._is_repeated = True
            await self._read_in_slices()
        # The session looks at all partitions, in one turn: another request of the session must not come in between.
        await self._context.services.slices.pause()
        throttle_ms = 0
        if self._limits is not None:
            throttle_ms, is_sent = self._charge(self._limits)
            if not is_sent:
                return self._answer_empty(throttle_ms)
        error_code, session_id, results = self._close()
        topics, leaders = await self._group_in_slices(results)
        encode = partial(
            encode_fetch_response,
            self._context.api_version,
            topics,
            throttle_time_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=self._endpoints(leaders) if leaders else (),
        )
        is_short = len(results) <= FETCH_PARTITIONS_PER_SLICE
        body = encode() if is_short else await in_worker(encode)
        if self._limits is not None:
            self._charge_rest(self._limits, body)
        return self._context.reply(body)

    @property
    def can_answer(self) -> bool:
        return self._request.max_wait_ms <= 0 or not self.sizes or self._has_enough

    @property
    def _has_enough(self) -> bool:
        return self._must_answer or sum(self.sizes.values()) >= self._enough_bytes

    @property
    def _enough_bytes(self) -> int:
        return min(self._request.min_bytes, self._max_bytes)

    @property
    def wake_keys(self) -> Sequence[TopicPartition]:
        """The partitions whose change may end the wait, and for a follower its own key."""
        replica_id = self._request.replica_id
        return [*self.sizes, _follower_key(replica_id)] if replica_id >= 0 else list(self.sizes)

    def is_ready(self, changed: Set[TopicPartition]) -> bool:
        """Read the partitions that changed; return whether the response has enough bytes now, or an error."""
        if self._request.replica_id >= 0 and _follower_key(self._request.replica_id) in changed:
            return True
        size_bytes = sum(self.sizes.values())
        for partition in self.sizes.keys() & changed:
            wanted = self._wanted[partition]
            replica = self._context.services.replicas.find(partition)
            if isinstance(replica, ErrorCode):
                return True
            self._is_repeated = True
            size_before = self.sizes[partition]
            self._update_size(partition, wanted, self._read_replica(replica, wanted, wanted.max_bytes, True))
            size_bytes += self.sizes[partition] - size_before
            # All partitions are read again for the response: thousands may have changed.
            if self._must_answer or size_bytes >= self._enough_bytes:
                return True
        return self._has_enough

    def finish(self) -> Reply:
        self._is_repeated = True
        self.read()
        return self.answer()

    def _read_partition(self, partition: SessionPartition, remaining: int, at_least_one: bool) -> Fetched:
        replicas = self._context.services.replicas
        topic, index = partition.key
        if partition.topic is None:
            assert not isinstance(topic, str)
            partition.topic = replicas.topic_name(topic)
            if partition.topic is None:
                return self._missing(ErrorCode.UNKNOWN_TOPIC_ID)
        topic_partition = TopicPartition(partition.topic, index)
        # Not in `sizes`: a client that fetches a missing partition with others would get a response without a wait each
        # time, and poll in a busy loop.
        if not replicas.exists(topic_partition):
            return self._missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        fetched = self._read_found(
            replicas.find(topic_partition), partition, min(partition.wanted.max_bytes, remaining), at_least_one
        )
        self._update_size(topic_partition, partition.wanted, fetched)
        return fetched

    def _missing(self, code: ErrorCode) -> Fetched:
        self._context.services.replicas.traffic.others.fetches += 1
        if self._request.replica_id >= 0:
            # A follower has newer metadata than this broker. It tries again soon, and does not wait for others.
            self._must_answer = True
        return Fetched(code)

    def _read_found(
        self, replica: Replica | ErrorCode, partition: SessionPartition, max_bytes: int, at_least_one: bool
    ) -> Fetched:
        if isinstance(replica, ErrorCode):
            self._context.services.replicas.traffic.others.fetches += 1
            return Fetched(replica)
        if not self._is_repeated:
            replica.traffic.fetches += 1
        if self._session.uses_topic_ids and partition.key[0] != replica.state.topic_id:
            return Fetched(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self._context.api_version < _ZSTD_SINCE and replica.log.config.compression_type == "zstd":
            return Fetched(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self._request.rack_id and not self._needs_leader:
            wanted = partition.wanted
            preferred = self._context.services.replicas.find_reader(
                replica, self._request.rack_id, wanted.fetch_offset, wanted.current_leader_epoch
            )
            if preferred is not None:
                return preferred
        return self._read_replica(replica, partition.wanted, max_bytes, at_least_one)

    def _read_replica(self, replica: Replica, wanted: Wanted, max_bytes: int, at_least_one: bool) -> Fetched:
        if self._limits is not None and self._is_throttled(replica, self._limits.throttle):
            # The read still notes the follower's position, and returns the high watermark.
            max_bytes, at_least_one = 0, False
        return replica.read(
            wanted.fetch_offset,
            max_bytes,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            node_id=self._request.replica_id,
            broker_epoch=self._request.replica_epoch,
            start_offset=wanted.log_start_offset,
            read_committed=self._request.isolation_level == _READ_COMMITTED,
            at_least_one=at_least_one,
            needs_leader=self._needs_leader,
            is_repeated=self._is_repeated,
        )

    def _is_throttled(self, replica: Replica, throttle: ReplicationThrottle | None) -> bool:
        """Return whether a follower has to wait for records; never one that is in sync, which would leave the ISR."""
        if throttle is None:
            return False
        state = replica.state
        if self._request.replica_id in state.isr or not throttle.applies_to(state.topic_partition):
            return False
        return throttle.is_exceeded(self._context.services.clock.monotonic())

    def _record_throttled(self, throttle: ReplicationThrottle) -> None:
        """Count the bytes of throttled replicas, in sync or not, that a follower gets."""
        sizes = (
            fetched.size_bytes
            for partition, fetched in self._results
            if partition.topic is not None and throttle.applies_to(TopicPartition(partition.topic, partition.key[1]))
        )
        throttle.record(sum(sizes), self._context.services.clock.monotonic())

    def _update_size(self, partition: TopicPartition, wanted: Wanted, fetched: Fetched) -> None:
        self._wanted[partition] = wanted
        self.sizes[partition] = fetched.size_bytes
        if (
            fetched.error_code is not _OK
            or fetched.diverging_epoch is not None
            or fetched.preferred_read_replica >= 0
            or (self._request.replica_id >= 0 and wanted.is_behind(fetched))
        ):
            self._must_answer = True

    def answer(self) -> Reply:
        throttle_ms, limits = 0, self._limits
        if limits is not None:
            throttle_ms, is_sent = self._charge(limits)
            if not is_sent:
                return self._answer_empty(throttle_ms)
        error_code, session_id, results = self._close()
        topics, leaders = self._group(results)
        body = encode_fetch_response(
            self._context.api_version,
            topics,
            throttle_time_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=self._endpoints(leaders) if leaders else (),
        )
        if limits is not None:
            self._charge_rest(limits, body)
        return self._context.reply(body)

    def _charge(self, limits: _Limits) -> tuple[int, bool]:
        """Charge the records to what limits the reader; returns the throttle time, and whether they may be sent."""
        if limits.throttle is not None:
            self._record_throttled(limits.throttle)
        if limits.usage is None:
            return 0, True
        size = sum(fetched.size_bytes for _, fetched in self._results)
        throttle_ms, is_sent = limits.usage.charge_fetch(size)
        if is_sent:
            limits.charged = size
        return throttle_ms, is_sent

    def _charge_rest(self, limits: _Limits, body: Sequence[Buffer | FileSlice]) -> None:
        """Charge the bytes of the encoded response that are not records."""
        if limits.usage is not None and limits.charged is not None:
            limits.usage.note_fetch(parts_size(body) - limits.charged)

    def _answer_empty(self, throttle_ms: int) -> Reply:
        """Respond without partitions. The session's next response has them."""
        error_code, session_id = self._context.services.fetch_sessions.skip(self._session)
        body = encode_fetch_response(
            self._context.api_version, (), throttle_time_ms=throttle_ms, error_code=error_code, session_id=session_id
        )
        return self._context.reply(body)

    def _close(self) -> tuple[ErrorCode, int, Sequence[tuple[SessionPartition, Fetched]]]:
        """Close the request in its session; returns its error, the session, and the results of the response."""
        services = self._context.services
        return services.fetch_sessions.close(self._session, self._results, now_ms=services.clock.now_ms())

    def _endpoints(self, leaders: set[NodeId]) -> Sequence[NodeEndpoint]:
        return self._context.services.endpoints(leaders, self._context.listener)

    def _group(self, results: Iterable[tuple[SessionPartition, Fetched]]) -> tuple[list[FetchTopicResult], set[NodeId]]:
        """Return the results by topic, in order, and the leaders that they refer clients to."""
        topics: list[FetchTopicResult] = []
        leaders: set[NodeId] = set()
        for topic, group in groupby(results, key=lambda result: result[0].key[0]):
            partitions = [self._result(partition, fetched) for partition, fetched in group]
            leaders.update(result.current_leader[0] for result in partitions if result.current_leader is not None)
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            topics.append((name, topic_id, partitions))
        return topics, leaders

    async def _group_in_slices(
        self, results: Sequence[tuple[SessionPartition, Fetched]]
    ) -> tuple[list[FetchTopicResult], set[NodeId]]:
        topics: list[FetchTopicResult] = []
        leaders: set[NodeId] = set()
        async for some in self._context.services.slices.of(results, FETCH_PARTITIONS_PER_SLICE):
            more, more_leaders = self._group(some)
            if topics and topics[-1][:2] == more[0][:2]:
                # A slice ends within a topic.
                topics[-1] = (*more[0][:2], [*topics[-1][2], *more[0][2]])
                del more[0]
            topics += more
            leaders |= more_leaders
        return topics, leaders

    def _result(self, partition: SessionPartition, fetched: Fetched) -> FetchPartitionResult:
        version, index = self._context.api_version, partition.key[1]
        if fetched.error_code is _OK:
            if fetched.size_bytes:
                self._count_sent(partition, fetched.size_bytes)
            return FetchPartitionResult(
                index,
                _OK,
                fetched.high_watermark,
                fetched.last_stable_offset,
                fetched.log_start_offset,
                fetched.aborted_transactions,
                fetched.preferred_read_replica,
                records=fetched.slices,
                diverging_epoch=fetched.diverging_epoch,
            )
        code = fetched.error_code
        self._count_failure(partition, code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = None
        if version >= _CURRENT_LEADER_SINCE and code in _LEADER_ERRORS and partition.topic is not None:
            leader = self._context.services.current_leader(TopicPartition(partition.topic, index))
        return FetchPartitionResult(index, code, current_leader=leader)

    def _count_sent(self, partition: SessionPartition, size: int) -> None:
        assert partition.topic is not None
        # The topic may have been deleted between two slices.
        traffic = self._context.services.replicas.traffic_of(TopicPartition(partition.topic, partition.key[1]))
        if self._request.replica_id >= 0:
            traffic.replication_bytes_out += size
        else:
            traffic.bytes_out += size

    def _count_failure(self, partition: SessionPartition, code: ErrorCode) -> None:
        services = self._context.services
        services.requests.add_error(self._context.api_key, code)
        traffic = services.replicas.traffic.others
        if partition.topic is not None:
            traffic = services.replicas.traffic_of(TopicPartition(partition.topic, partition.key[1]))
        traffic.failed_fetches += 1
