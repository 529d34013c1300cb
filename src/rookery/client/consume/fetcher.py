"""Sends fetch requests, one in flight per broker, and buffers the data until polls take it.

`advance` starts every request that can be started; it is called by polls, after every response, and by a timer when a
backoff ends. It never waits itself. A partition is fetched only while none of its data is buffered: a slow reader holds
at most one response per partition.

A broker holds a request without data for fetch.max.wait.ms (a long poll). A partition that is drained meanwhile would
wait for it. So while data of a broker's other partitions is buffered, a request to it is a peek, which returns
immediately. A partition that a peek found empty is not requested again until everything of that broker is drained; then
all are requested together, by a long poll. When a partition must be fetched that the long poll does not include (after
a seek, a resume, an assignment), the long poll is abandoned and the next request uses another connection; at most once
per fetch.max.wait.ms.

`arrived` is set when a poll should look again: after new data, errors or positions.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, Offset, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.decoder import (
    AnyRecord,
    Deserializers,
    FetchedRun,
    PartitionBuffer,
    has_whole_batch,
    no_whole_batch_error,
)
from rookery.client.consume.fetch_requests import (
    CONSUMER_REPLICA_ID,
    BrokerState,
    FetchMetrics,
    FetchPlan,
    RequestedPosition,
    exchange_fetch,
)
from rookery.client.consume.positions import PositionKeeper, leader_epoch
from rookery.client.consume.subscription import FetchPosition, PartitionState, Subscription
from rookery.client.errors import AuthenticationError, CorruptRecordError, OffsetOutOfRangeError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.net.channel import Channel
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from rookery.protocol.fetch_session import SESSION_ERRORS, FetchSession, SessionRequest, SessionRow
from rookery.telemetry.library_logs import LibraryLogger

# Separate connections for fetches: a broker answers the requests of one connection in order, so whatever follows a long
# poll on the same connection waits for it.
_LANES: Final = ("fetch", "fetch again")
_CLOSE_TIMEOUT_S: Final = 1.0

_log = LibraryLogger(__name__)

# The partition has another leader, or the topic was deleted or created again: metadata must be refreshed.
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        positions: PositionKeeper,
        *,
        deserializers: Deserializers,
        metrics: FetchMetrics | None,
        arrived: asyncio.Event,
    ) -> None:
        self.arrived = arrived
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._positions = positions
        self._deserializers = deserializers
        self._metrics = metrics
        self._timeout_s = settings.common.request_timeout_ms / 1000
        self._brokers: dict[NodeId, BrokerState] = {}
        # In the order of arrival, in which polls take them.
        self._buffers: dict[TopicPartition, PartitionBuffer] = {}
        # The partitions that a peek found empty, with their generation at that time. A seek or a new assignment begins
        # a new generation (`Subscription`), and data that was requested in an earlier one is dropped.
        self._peeked: dict[TopicPartition, int] = {}
        self._attempts: dict[TopicPartition, int] = {}
        self._creation: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._has_drained = False

    # Taking buffered records.

    def take(self, count_max: int) -> list[AnyRecord]:
        """Return up to `count_max` buffered records. Raises the error of a damaged batch if no record precedes it."""
        taken: list[AnyRecord] = []
        for tp in list(self._buffers):
            buffer = self._usable(tp)
            if buffer is None:
                continue
            try:
                portion = buffer.take(count_max - len(taken))
            except ApiError:
                if taken:
                    # Raise at the next poll: the positions of the records in `taken` have moved already, so raising
                    # now would skip them.
                    break
                # Move this buffer to the end: otherwise every poll would raise, and the records of other partitions
                # would never be returned.
                self._buffers[tp] = self._buffers.pop(tp)
                raise
            self._note_taken(buffer)
            taken = taken + portion if taken else portion
            if len(taken) >= count_max:
                break
        return taken

    def take_singly(self, count_max: int) -> Iterator[AnyRecord]:
        """Yield up to `count_max` buffered records, and move the position with each of them.

        A seek, pause or new assignment between two records takes effect for the next one.
        """
        for tp in list(self._buffers):
            buffer = self._usable(tp)
            if buffer is None:
                continue
            state = self._subscription.state(tp)
            while count_max > 0 and not state.is_paused and not state.is_stopped:
                try:
                    record = buffer.take_one()
                except ApiError:
                    self._buffers[tp] = self._buffers.pop(tp)
                    raise
                # Before the yield: a commit in the loop's body must cover this record, and no later one.
                self._subscription.on_consumed(tp, buffer.generation, buffer.position)
                if record is not None:
                    count_max -= 1
                    yield record
                # The user may have sought or unassigned meanwhile: the rest of the buffer is not to be returned then.
                if self._subscription.find(tp, buffer.generation) is not state:
                    break
                if buffer.is_drained:
                    self._note_taken(buffer)
                    break

    def take_runs(self) -> list[PartitionBuffer]:
        """Return all buffered data as it was fetched. The caller reports with `note_run_taken` how far it decoded it.

        If decoding takes long, the caller first calls `fetch_ahead`, and `give_back` if decoding fails.
        """
        found = (self._usable(tp) for tp in list(self._buffers))
        return [buffer for buffer in found if buffer is not None]

    def note_run_taken(self, buffer: PartitionBuffer, *, position: FetchPosition, count: int) -> None:
        state = self._subscription.find(buffer.tp, buffer.generation)
        buffer.position, buffer.is_drained = position, True
        buffer.taken_count += count
        if state is not None and state.ahead is not None and state.ahead.offset != position.offset:
            # What was fetched ahead does not continue at `position`: returning it would skip the records between.
            self._subscription.stop_short(buffer.tp, buffer.generation, position)
            self._drop(buffer)
        else:
            self._note_taken(buffer)

    def fetch_ahead(self, buffer: PartitionBuffer, position: FetchPosition) -> None:
        """Fetch from `position` on while the caller decodes `buffer`, which it expects to end there."""
        del self._buffers[buffer.tp]
        self._has_drained = True
        self._subscription.look_ahead(buffer.tp, buffer.generation, position)

    def give_back(self, buffer: PartitionBuffer) -> None:
        """Fetch the partition again from the position of `buffer`: decoding failed, and no record was returned."""
        self._subscription.stop_short(buffer.tp, buffer.generation, buffer.position)

    def note_run_failed(self, buffer: PartitionBuffer, failure: ApiError) -> None:
        """No record of `buffer` can be decoded: let the next poll raise; this one returns the others' records."""
        generation = buffer.generation
        if self._buffers.get(buffer.tp) is buffer:
            buffer.fail(failure)
        else:
            self.give_back(buffer)
            generation = self._subscription.state(buffer.tp).generation
        self._subscription.fail(buffer.tp, generation, failure)

    def _buffered(self, tp: TopicPartition) -> PartitionBuffer | None:
        """Return the buffer of a partition; drop it if its generation is stale."""
        buffer = self._buffers.get(tp)
        if buffer is not None and self._subscription.find(tp, buffer.generation) is None:
            self._drop(buffer)
            return None
        return buffer

    def _usable(self, tp: TopicPartition) -> PartitionBuffer | None:
        """Return the buffer of a partition if polls may return its records now."""
        buffer = self._buffered(tp)
        if buffer is None:
            return None
        state = self._subscription.state(tp)
        if state.is_paused:
            # It may stay for long, and its slice would keep the response of all partitions in memory.
            buffer.run.detach()
            return None
        # A stopped partition is being revoked, and its position committed: its next owner reads these records, too.
        return None if state.is_stopped else buffer

    def _note_taken(self, buffer: PartitionBuffer) -> None:
        tp = buffer.tp
        self._subscription.on_consumed(tp, buffer.generation, buffer.position)
        state = self._subscription.find(tp, buffer.generation)
        if self._metrics is not None and buffer.is_drained and state is not None:
            lag = self._subscription.lag(tp, read_committed=self._settings.read_committed)
            if lag is not None:
                self._metrics.lag(tp, lag)
                self._metrics.lead(tp, max(0, buffer.position.offset - state.log_start_offset))
        if buffer.is_drained:
            self._drop(buffer)

    def _drop(self, buffer: PartitionBuffer) -> None:
        self._has_drained = True
        if self._buffers.get(buffer.tp) is buffer:
            del self._buffers[buffer.tp]
        if self._metrics is not None:
            self._metrics.fetched(buffer.tp, buffer.taken_count, len(buffer.run.data))

    # Planning requests.

    def advance(self) -> None:
        """Start all possible work: look-ups of positions, fetches, metadata refreshes."""
        if self._is_closed:
            return
        self._has_drained = False
        self._positions.advance()
        now_s = asyncio.get_running_loop().time()
        for plan in self._plans(now_s):
            self._abandon_at_other_brokers(plan, now_s)
            broker = self._brokers.setdefault(plan.node, BrokerState())
            broker.task = asyncio.get_running_loop().create_task(self._fetch(broker, plan))
        self._set_timer(now_s)

    def advance_if_drained(self) -> None:
        """Fetch the partitions that were drained since the last `advance`, while the user processes their records."""
        if self._has_drained:
            self.advance()

    def on_change(self) -> None:
        """Called when positions or metadata changed, or a response arrived."""
        self.arrived.set()
        self.advance()

    async def close(self, *, timeout_s: float) -> None:
        """Cancel all requests and close the fetch sessions of the brokers that can be reached."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [broker.task for broker in self._brokers.values() if broker.task is not None]
        if self._creation is not None:
            tasks.append(self._creation)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        open_sessions = [(node, broker.session) for node, broker in self._brokers.items() if broker.session.is_open]
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, _CLOSE_TIMEOUT_S)):
                await asyncio.gather(*(self._close_session(*item) for item in open_sessions))
        self._buffers.clear()

    async def _close_session(self, node: NodeId, session: FetchSession) -> None:
        with suppress(ApiError):
            # Over the common connection: on a fetch connection the broker may still hold a cancelled long poll.
            connection = await self._cluster.connection(node)
            await self._send(connection, session.close(), wait_ms=0)

    def _plans(self, now_s: float) -> list[FetchPlan]:
        """Return a request for each broker that is free and has partitions without buffered data."""
        empty: dict[NodeId, list[tuple[TopicPartition, PartitionState]]] = {}
        filled: set[NodeId] = set()
        leaderless: set[TopicName] = set()
        for tp, state in self._subscription.fetchable(now_s):
            node = self._node_for(tp, state, now_s)
            if node is None:
                leaderless.add(tp.topic)
                continue
            buffer = self._buffered(tp)
            if buffer is None:
                empty.setdefault(node, []).append((tp, state))
            elif not buffer.is_stuck:
                # A stuck buffer does not count: it is not drained until the user seeks, so the broker's other
                # partitions would never be requested by a long poll.
                filled.add(node)
        if leaderless:
            self._refresh_topics(leaderless)
        plans = []
        for node, items in empty.items():
            self._abandon_outdated(node, items, now_s)
            if self._is_free(node, now_s):
                plan = self._plan(node, items, is_peek=node in filled)
                if plan.requested:
                    plans.append(plan)
        return plans

    def _abandon_outdated(
        self, node: NodeId, items: Iterable[tuple[TopicPartition, PartitionState]], now_s: float
    ) -> None:
        """Abandon the long poll at a broker if it does not include all of `items` in their current generation."""
        broker = self._brokers.get(node)
        if broker is None or broker.task is None or broker.long_poll is None or now_s < broker.abandon_at_s:
            return
        requested = broker.long_poll.requested
        if any(tp not in requested or requested[tp].generation != state.generation for tp, state in items):
            self._abandon(broker, broker.task, now_s)

    def _abandon_at_other_brokers(self, plan: FetchPlan, now_s: float) -> None:
        """Abandon long polls at other brokers that include partitions of `plan`: those have another leader now.

        If one cannot be abandoned yet, there may be two replies for a partition; `_on_row` ignores the later one.
        """
        for node, broker in self._brokers.items():
            if node == plan.node or broker.task is None or broker.long_poll is None or now_s < broker.abandon_at_s:
                continue
            if not plan.requested.keys().isdisjoint(broker.long_poll.requested):
                self._abandon(broker, broker.task, now_s)

    def _abandon(self, broker: BrokerState, task: asyncio.Task[None], now_s: float) -> None:
        broker.is_abandoned, broker.long_poll = True, None
        broker.abandon_at_s = now_s + self._settings.fetch_max_wait_ms / 1000
        # The broker still holds the abandoned request: on the same connection, the next one would wait for it.
        broker.lane = 1 - broker.lane
        task.cancel()

    def _is_free(self, node: NodeId, now_s: float) -> bool:
        broker = self._brokers.get(node)
        return broker is None or (broker.task is None and broker.retry_at_s <= now_s)

    def _plan(
        self, node: NodeId, items: Iterable[tuple[TopicPartition, PartitionState]], *, is_peek: bool
    ) -> FetchPlan:
        plan = FetchPlan(node, {}, {}, is_peek)
        for tp, state in items:
            if is_peek and self._peeked.get(tp) == state.generation:
                # Peeks return immediately: peeking again at an empty partition would repeat without a pause.
                continue
            self._peeked.pop(tp, None)
            position = state.fetch_position
            assert position is not None, "ready partitions have a position"
            row = FetchPartition(
                tp.partition,
                position.offset,
                self._settings.max_partition_fetch_bytes,
                leader_epoch(self._cluster, tp),
            )
            plan.requested[tp] = RequestedPosition(state.generation, position)
            plan.rows[tp] = SessionRow(self._cluster.metadata.topic_id(tp.topic), row)
        return plan

    def _node_for(self, tp: TopicPartition, state: PartitionState, now_s: float) -> NodeId | None:
        replica = state.preferred_replica
        if replica is not None and now_s < state.preferred_until_s and replica in self._cluster.metadata.brokers:
            return replica
        return self._cluster.metadata.leader(*tp)

    def _set_timer(self, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [broker.retry_at_s for broker in self._brokers.values() if broker.retry_at_s > now_s]
        retry_s = self._subscription.next_retry_s(now_s)
        if retry_s is not None:
            times.append(retry_s)
        if times:
            self._timer = asyncio.get_running_loop().call_at(min(times), self.advance)

    def _refresh_topics(self, topics: set[TopicName]) -> None:
        """Mark `topics` stale, so that the cluster refreshes them; request those that do not exist to create them."""
        for topic in topics:
            if not self._cluster.is_stale(topic):
                self._cluster.mark_stale(topic)
        metadata = self._cluster.metadata
        missing = {topic for topic in topics if topic not in metadata.topics or metadata.topics[topic].error}
        if missing and self._creation is None and self._settings.allow_auto_create_topics:
            self._creation = asyncio.get_running_loop().create_task(self._create(missing))

    async def _create(self, topics: set[TopicName]) -> None:
        with suppress(ApiError):
            await self._cluster.refresh(topics, auto_create=True)
        self._fail_unreadable(topics)
        await asyncio.sleep(self._cluster.backoff_s(0))
        self._creation = None
        self.on_change()

    def _fail_unreadable(self, topics: set[TopicName]) -> None:
        """Fail the partitions of topics that no retry makes readable: invalid names, and topics without permission."""
        metadata = self._cluster.metadata
        for tp in self._subscription:
            topic = metadata.topics.get(tp.topic)
            if tp.topic in topics and topic is not None and topic.error and not topic.error.retriable:
                failure = ApiError(topic.error, f"topic {tp.topic}")
                self._subscription.fail(tp, self._subscription.state(tp).generation, failure)

    # One request.

    async def _fetch(self, broker: BrokerState, plan: FetchPlan) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            response = await self._exchange(broker, plan)
        except ApiError as error:
            broker.session.fail()
            self._on_lost_broker(broker, plan, error)
        except asyncio.CancelledError:
            # The broker may still process the request, and advance the epoch and the positions of its session: replace
            # the session. Continuing it would be INVALID_FETCH_SESSION_EPOCH.
            broker.session.fail()
            if not broker.is_abandoned:
                raise
        else:
            broker.attempts, broker.retry_at_s = 0, 0.0
            if self._metrics is not None:
                self._metrics.fetch(loop.time() - started_s, response.throttle_time_ms)
            self._on_response(broker, plan, response)
        finally:
            broker.task = broker.long_poll = None
            broker.is_abandoned = False
        self.on_change()

    async def _exchange(self, broker: BrokerState, plan: FetchPlan) -> FetchResponse:
        connection = await self._cluster.connection(plan.node, _LANES[broker.lane])
        wait_ms = 0 if plan.is_peek else self._settings.fetch_max_wait_ms
        broker.long_poll = plan if wait_ms else None
        return await self._send(connection, broker.session.prepare(plan.rows), wait_ms=wait_ms)

    async def _send(self, connection: Channel, request: SessionRequest, *, wait_ms: int) -> FetchResponse:
        settings = self._settings
        message = FetchRequest(
            CONSUMER_REPLICA_ID,
            wait_ms,
            settings.fetch_min_bytes,
            settings.fetch_max_bytes,
            int(settings.read_committed),
            request.session_id,
            request.session_epoch,
            request.topics,
            request.forgotten,
            settings.common.client_rack,
        )
        return await exchange_fetch(connection, message, by_topic_id=request.by_topic_id, timeout_s=self._timeout_s)

    def _on_lost_broker(self, broker: BrokerState, plan: FetchPlan, error: ApiError) -> None:
        """Back off and refresh metadata: its partitions may have other leaders now. Fail them if it denies access."""
        if broker.attempts == 0:
            _log.warning("fetch failed", node=plan.node, error=str(error))
        broker.retry_at_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(broker.attempts)
        broker.attempts += 1
        for tp, requested in plan.requested.items():
            self._cluster.mark_stale(tp.topic)
            self._subscription.prefer_replica(tp, requested.generation, None, 0.0)
            if isinstance(error, AuthenticationError):
                self._subscription.fail(tp, requested.generation, error)

    def _on_response(self, broker: BrokerState, plan: FetchPlan, response: FetchResponse) -> None:
        code = ErrorCode(response.error_code)
        session = broker.session
        if code is not ErrorCode.NONE:
            session.accept(code, response.session_id)
            if code not in SESSION_ERRORS:
                self._on_failed_request(broker, plan, code)
            return
        for name, topic_id, rows in response.topics:
            topic = name if topic_id is None else session.name(topic_id)
            for row in rows:
                tp = TopicPartition(topic or "", row.partition)
                if tp in plan.requested:
                    self._on_row(plan, tp, row, response.node_endpoints)
        session.accept(code, response.session_id)
        if plan.is_peek:
            empty = {tp: requested.generation for tp, requested in plan.requested.items() if tp not in self._buffers}
            self._peeked.update(empty)

    def _on_failed_request(self, broker: BrokerState, plan: FetchPlan, code: ErrorCode) -> None:
        broker.retry_at_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(broker.attempts)
        broker.attempts += 1
        if not code.retriable:
            failure = f"broker {plan.node} rejected the fetch request"
            for tp, requested in plan.requested.items():
                self._subscription.fail(tp, requested.generation, ApiError(code, failure))

    def _on_row(
        self, plan: FetchPlan, tp: TopicPartition, row: FetchedPartition, endpoints: Sequence[NodeEndpoint]
    ) -> None:
        requested = plan.requested[tp]
        state = self._subscription.find(tp, requested.generation)
        position = None if state is None else state.fetch_position
        if state is None or position is None or position.offset != requested.position.offset or self._buffered(tp):
            # Stale: the user has sought elsewhere, or another broker (the old or the new leader) has answered for this
            # position before. Without the comparison of offsets, its records would be returned twice.
            return
        code = ErrorCode(row.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(plan, tp, row, endpoints)
            return
        self._attempts.pop(tp, None)
        self._subscription.on_fetched(
            tp,
            requested.generation,
            high_watermark=row.high_watermark,
            last_stable=row.last_stable_offset,
            log_start=row.log_start_offset,
        )
        if row.preferred_read_replica >= 0:
            max_age_s = self._settings.common.metadata_max_age_ms / 1000
            until_s = asyncio.get_running_loop().time() + max_age_s
            self._subscription.prefer_replica(tp, requested.generation, row.preferred_read_replica, until_s)
            if self._metrics is not None:
                self._metrics.read_replica(tp, row.preferred_read_replica)
        if not row.records:
            return
        if not has_whole_batch(row.records):
            # A decoder takes this for a batch that was cut off, and the next fetch returns it again: without an error
            # the consumer would fetch it for ever.
            failure = no_whole_batch_error(tp, requested.position.offset, len(row.records))
            self._subscription.fail(tp, requested.generation, failure)
            return
        run = FetchedRun(
            tp,
            row.records,
            requested.position,
            aborted=(row.aborted_transactions or ()) if self._settings.read_committed else None,
            check_crcs=self._settings.check_crcs,
        )
        self._buffers[tp] = PartitionBuffer(tp, requested.generation, run, deserializers=self._deserializers)
        self._subscription.move_to_end(tp)

    def _on_error(
        self, plan: FetchPlan, tp: TopicPartition, row: FetchedPartition, endpoints: Sequence[NodeEndpoint]
    ) -> None:
        code, requested = ErrorCode(row.error_code), plan.requested[tp]
        generation, offset = requested.generation, requested.position.offset
        if code in _MOVED:
            self._subscription.prefer_replica(tp, generation, None, 0.0)
            if row.current_leader is not None and row.current_leader[0] >= 0:
                self._cluster.learn_leader(tp, *row.current_leader, endpoints)
            else:
                self._cluster.mark_stale(tp.topic)
            self._defer(tp, generation)
        elif code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            # Our metadata is newer than the broker's: it learns the epoch soon.
            self._defer(tp, generation)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(plan.node, tp, generation, offset)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            failure = CorruptRecordError(
                tp, offset, "the broker found a damaged batch", advice="its end is unknown: seek to a later offset"
            )
            self._subscription.fail(tp, generation, failure)
        elif code.retriable:
            self._defer(tp, generation)
        else:
            self._subscription.fail(tp, generation, ApiError(code, f"partition {tp}, offset {offset}"))

    def _on_out_of_range(self, node: NodeId, tp: TopicPartition, generation: int, offset: Offset) -> None:
        if node != self._cluster.metadata.leader(*tp):
            # A follower may be behind the leader: ask the leader. A reset now would skip records, or read them twice.
            self._subscription.prefer_replica(tp, generation, None, 0.0)
            return
        state = self._subscription.find(tp, generation)
        if state is not None and state.ahead is not None:
            # `ahead` was computed from a damaged header. `position` is valid: do not reset it. The decoder finds the
            # damage and reports where it stopped.
            self._defer(tp, generation)
            return
        failure = None if self._positions.may_reset else partial(OffsetOutOfRangeError, tp, offset)
        self._subscription.on_out_of_range(tp, generation, failure=failure)

    def _defer(self, tp: TopicPartition, generation: int) -> None:
        attempts = self._attempts.get(tp, 0)
        self._attempts[tp] = attempts + 1
        until_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(attempts)
        self._subscription.defer(tp, generation, until_s)
