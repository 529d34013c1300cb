"""The shell that fetches: one request under way per broker, its data in buffers until polls take it.

`advance` starts whatever can be started; it is called by polls, by every answer, and by a timer where something waits
for a backoff. It never waits itself. A partition is fetched only while nothing of it is buffered: a slow reader holds
at most one answer per partition.

A broker keeps a request without data for fetch.max.wait.ms. A partition that is drained meanwhile would wait behind it.
So while data of a broker's other partitions is buffered, a request does not wait there: it peeks. A partition that a
peek found empty is not asked for again until everything of that broker is drained, and then all are asked together.
And where something is to be fetched that the waiting request does not ask for (after a seek, a resume, an assignment),
that request is given up, and the next one goes over another connection; not more often than requests wait.

`arrived` is set when a poll should look again: data, errors, positions.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import NodeId, Offset, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.decoder import (
    AnyRecord,
    Deserializers,
    FetchedRun,
    PartitionBuffer,
    has_whole_batch,
    no_whole_batch,
)
from rookery.client.consume.plans import Asked, FetchMetrics, Node, Plan
from rookery.client.consume.positions import PositionKeeper, leader_epoch
from rookery.client.consume.sessions import FetchSession, SessionRequest, Wanted
from rookery.client.consume.subscription import FetchPosition, PartitionState, Subscription
from rookery.client.errors import AuthenticationError, CorruptRecordError, OffsetOutOfRangeError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.net.channel import Channel
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from rookery.telemetry.library_logs import LibraryLogger

# Connections of their own: what comes behind a parked fetch on the same one waits with it.
_LANES: Final = ("fetch", "fetch again")
_CONSUMER: Final = -1
_LAST_VERSION_BY_NAME: Final = 12
_CLOSE_TIMEOUT_S: Final = 1.0

_log = LibraryLogger(__name__)

# Somebody else leads, or the topic went away or came back: metadata tells.
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
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
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
        self._nodes: dict[NodeId, Node] = {}
        # In the order of arrival, which is the order of handing out.
        self._buffers: dict[TopicPartition, PartitionBuffer] = {}
        # Generations of partitions that a peek found empty.
        self._peeked: dict[TopicPartition, int] = {}
        self._attempts: dict[TopicPartition, int] = {}
        self._creation: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._has_drained = False

    # Handing out.

    def take(self, count_max: int) -> list[AnyRecord]:
        """Up to so many buffered records. Raises the error of a damaged batch if nothing comes before it."""
        taken: list[AnyRecord] = []
        for tp in list(self._buffers):
            buffer = self._usable(tp)
            if buffer is None:
                continue
            try:
                portion = buffer.take(count_max - len(taken))
            except ApiError:
                if taken:
                    break
                # The next poll begins with the others.
                self._buffers[tp] = self._buffers.pop(tp)
                raise
            self._note_taken(buffer)
            taken = taken + portion if taken else portion
            if len(taken) >= count_max:
                break
        return taken

    def take_singly(self, count_max: int) -> Iterator[AnyRecord]:
        """Up to so many buffered records; positions move record by record, and whatever the user does between two of
        them (seek, pause, assign) counts for the next."""
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
                self._subscription.on_consumed(tp, buffer.generation, buffer.position)
                if record is not None:
                    count_max -= 1
                    yield record
                if self._subscription.find(tp, buffer.generation) is not state:
                    break
                if buffer.is_drained:
                    self._note_taken(buffer)
                    break

    def take_runs(self) -> list[PartitionBuffer]:
        """All that is buffered, as it was fetched. The caller tells with `note_run_taken` how far it came.

        If that takes long, it says `fetch_behind` first, and then `give_back` should it not come to an end.
        """
        found = (self._usable(tp) for tp in list(self._buffers))
        return [buffer for buffer in found if buffer is not None]

    def note_run_taken(self, buffer: PartitionBuffer, *, position: FetchPosition, count: int) -> None:
        state = self._subscription.find(buffer.tp, buffer.generation)
        buffer.position, buffer.is_drained = position, True
        buffer.taken_count += count
        if state is not None and state.ahead is not None and state.ahead.offset != position.offset:
            self._subscription.stop_short(buffer.tp, buffer.generation, position)
            self._drop(buffer)
        else:
            self._note_taken(buffer)

    def fetch_behind(self, buffer: PartitionBuffer, position: FetchPosition) -> None:
        """The caller is at work on this data, and expects to get to `position`: what comes there can be fetched."""
        del self._buffers[buffer.tp]
        self._has_drained = True
        self._subscription.look_ahead(buffer.tp, buffer.generation, position)

    def give_back(self, buffer: PartitionBuffer) -> None:
        """Nothing was taken: the partition is fetched again."""
        self._subscription.stop_short(buffer.tp, buffer.generation, buffer.position)

    def note_run_failed(self, buffer: PartitionBuffer, failure: ApiError) -> None:
        """Nothing of it can be read. The next poll says so; this one hands out what the others have."""
        generation = buffer.generation
        if self._buffers.get(buffer.tp) is buffer:
            buffer.fail(failure)
        else:
            self.give_back(buffer)
            generation = self._subscription.state(buffer.tp).generation
        self._subscription.fail(buffer.tp, generation, failure)

    def _buffered(self, tp: TopicPartition) -> PartitionBuffer | None:
        """What is buffered and still good."""
        buffer = self._buffers.get(tp)
        if buffer is not None and self._subscription.find(tp, buffer.generation) is None:
            self._drop(buffer)
            return None
        return buffer

    def _usable(self, tp: TopicPartition) -> PartitionBuffer | None:
        buffer = self._buffered(tp)
        if buffer is None:
            return None
        state = self._subscription.state(tp)
        if state.is_paused:
            # It may stay for long, and would keep the whole answer in memory.
            buffer.run.detach()
            return None
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

    # Asking.

    def advance(self) -> None:
        """Start what can be started: look-ups of positions, fetches, a refresh of metadata."""
        if self._is_closed:
            return
        self._has_drained = False
        self._positions.advance()
        now_s = asyncio.get_running_loop().time()
        for plan in self._plans(now_s):
            self._give_up_elsewhere(plan, now_s)
            node = self._nodes.setdefault(plan.node, Node())
            node.task = asyncio.get_running_loop().create_task(self._fetch(node, plan))
        self._set_timer(now_s)

    def advance_if_drained(self) -> None:
        """What was drained since the last `advance` can be fetched while the user works."""
        if self._has_drained:
            self.advance()

    def on_change(self) -> None:
        """Positions or metadata changed, or an answer came."""
        self.arrived.set()
        self.advance()

    async def close(self, *, timeout_s: float) -> None:
        """Ends all requests, and tells the brokers to forget our sessions, if they listen."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [node.task for node in self._nodes.values() if node.task is not None]
        if self._creation is not None:
            tasks.append(self._creation)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        open_sessions = [(key, node.session) for key, node in self._nodes.items() if node.session.is_open]
        farewells = (self._close_session(*item) for item in open_sessions)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, _CLOSE_TIMEOUT_S)):
                await asyncio.gather(*farewells)
        self._buffers.clear()

    async def _close_session(self, node: NodeId, session: FetchSession) -> None:
        with suppress(ApiError):
            # Not behind the fetch that may still be parked.
            connection = await self._cluster.connection(node)
            await self._send(connection, session.close(), wait_ms=0)

    def _plans(self, now_s: float) -> list[Plan]:
        empty: dict[NodeId, list[tuple[TopicPartition, PartitionState]]] = {}
        filled: set[NodeId] = set()
        homeless: set[TopicName] = set()
        for tp, state in self._subscription.fetchable(now_s):
            node = self._node_for(tp, state, now_s)
            if node is None:
                homeless.add(tp.topic)
                continue
            buffer = self._buffered(tp)
            if buffer is None:
                empty.setdefault(node, []).append((tp, state))
            elif not buffer.is_stuck:
                # Of a buffer that is stuck nobody drains anything: the others would be peeked at for ever.
                filled.add(node)
        if homeless:
            self._find(homeless)
        plans = []
        for node, items in empty.items():
            self._give_up_waiting(node, items, now_s)
            if self._is_free(node, now_s):
                plan = self._plan(node, items, is_peek=node in filled)
                if plan.asked:
                    plans.append(plan)
        return plans

    def _give_up_waiting(
        self, node: NodeId, items: Iterable[tuple[TopicPartition, PartitionState]], now_s: float
    ) -> None:
        """End a request that waits at the broker, if it does not ask for all of these."""
        known = self._nodes.get(node)
        if known is None or known.task is None or known.waiting is None or now_s < known.give_up_at_s:
            return
        asked = known.waiting.asked
        if any(tp not in asked or asked[tp].generation != state.generation for tp, state in items):
            self._give_up(known, known.task, now_s)

    def _give_up_elsewhere(self, plan: Plan, now_s: float) -> None:
        """End requests that wait at other brokers for the same partitions, which have another leader now.

        One that cannot be given up is let be: of two answers, the later one is not listened to (`_on_row`).
        """
        for node, known in self._nodes.items():
            if node == plan.node or known.task is None or known.waiting is None or now_s < known.give_up_at_s:
                continue
            if not plan.asked.keys().isdisjoint(known.waiting.asked):
                self._give_up(known, known.task, now_s)

    def _give_up(self, node: Node, task: asyncio.Task[None], now_s: float) -> None:
        node.is_given_up, node.waiting = True, None
        node.give_up_at_s = now_s + self._settings.fetch_max_wait_ms / 1000
        node.lane = 1 - node.lane
        task.cancel()

    def _is_free(self, node: NodeId, now_s: float) -> bool:
        known = self._nodes.get(node)
        return known is None or (known.task is None and known.retry_at_s <= now_s)

    def _plan(self, node: NodeId, items: Iterable[tuple[TopicPartition, PartitionState]], *, is_peek: bool) -> Plan:
        plan = Plan(node, {}, {}, is_peek)
        for tp, state in items:
            if is_peek and self._peeked.get(tp) == state.generation:
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
            plan.asked[tp] = Asked(state.generation, position)
            plan.wanted[tp] = Wanted(self._cluster.metadata.topic_id(tp.topic), row)
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
        times = [node.retry_at_s for node in self._nodes.values() if node.retry_at_s > now_s]
        retry_s = self._subscription.next_retry_s(now_s)
        if retry_s is not None:
            times.append(retry_s)
        if times:
            self._timer = asyncio.get_running_loop().call_at(min(times), self.advance)

    def _find(self, topics: set[TopicName]) -> None:
        """The cluster asks for stale topics by itself; topics that do not exist may be created by asking for them."""
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
        self._report_impossible(topics)
        await asyncio.sleep(self._cluster.backoff_s(0))
        self._creation = None
        self.on_change()

    def _report_impossible(self, topics: set[TopicName]) -> None:
        """Names that are invalid, and topics that are forbidden, become readable by no waiting."""
        metadata = self._cluster.metadata
        for tp in self._subscription:
            topic = metadata.topics.get(tp.topic)
            if tp.topic in topics and topic is not None and topic.error and not topic.error.retriable:
                failure = ApiError(topic.error, f"topic {tp.topic}")
                self._subscription.fail(tp, self._subscription.state(tp).generation, failure)

    # One request.

    async def _fetch(self, node: Node, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            response = await self._exchange(node, plan)
        except ApiError as error:
            node.session.fail()
            self._on_lost_broker(node, plan, error)
        except asyncio.CancelledError:
            node.session.fail()
            if not node.is_given_up:
                raise
        else:
            node.attempts, node.retry_at_s = 0, 0.0
            if self._metrics is not None:
                self._metrics.fetch(loop.time() - started_s, response.throttle_time_ms)
            self._on_response(node, plan, response)
        finally:
            node.task = node.waiting = None
            node.is_given_up = False
        self.on_change()

    async def _exchange(self, node: Node, plan: Plan) -> FetchResponse:
        connection = await self._cluster.connection(plan.node, _LANES[node.lane])
        wait_ms = 0 if plan.is_peek else self._settings.fetch_max_wait_ms
        node.waiting = plan if wait_ms else None
        return await self._send(connection, node.session.prepare(plan.wanted), wait_ms=wait_ms)

    async def _send(self, connection: Channel, request: SessionRequest, *, wait_ms: int) -> FetchResponse:
        settings = self._settings
        version = connection.version(ApiKey.FETCH)
        if not request.by_topic_id:
            version = min(version, _LAST_VERSION_BY_NAME)
        body = encode_fetch_request(
            version,
            FetchRequest(
                _CONSUMER,
                wait_ms,
                settings.fetch_min_bytes,
                settings.fetch_max_bytes,
                int(settings.read_committed),
                request.session_id,
                request.session_epoch,
                request.topics,
                request.forgotten,
                settings.common.client_rack,
            ),
        )
        answer = await connection.exchange(ApiKey.FETCH, version, [body], timeout_s=self._timeout_s)
        try:
            return decode_fetch_response(version, answer)
        except ProtocolError as error:
            raise connection.reject_response(error) from None

    def _on_lost_broker(self, node: Node, plan: Plan, error: ApiError) -> None:
        """Perhaps others lead its partitions now, unless it does not let us in."""
        if node.attempts == 0:
            _log.warning("fetch failed", node=plan.node, error=str(error))
        node.retry_at_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(node.attempts)
        node.attempts += 1
        for tp, asked in plan.asked.items():
            self._cluster.mark_stale(tp.topic)
            self._subscription.prefer_replica(tp, asked.generation, None, 0.0)
            if isinstance(error, AuthenticationError):
                self._subscription.fail(tp, asked.generation, error)

    def _on_response(self, node: Node, plan: Plan, response: FetchResponse) -> None:
        code = ErrorCode(response.error_code)
        names = node.session
        if code is not ErrorCode.NONE:
            names.accept(code, response.session_id)
            if code not in _SESSION_ERRORS:
                self._on_refusal(node, plan, code)
            return
        for name, topic_id, rows in response.topics:
            topic = name if topic_id is None else names.name(topic_id)
            for row in rows:
                tp = TopicPartition(topic or "", row.partition)
                if tp in plan.asked:
                    self._on_row(plan, tp, row, response.node_endpoints)
        names.accept(code, response.session_id)
        if plan.is_peek:
            self._peeked.update({tp: asked.generation for tp, asked in plan.asked.items() if tp not in self._buffers})

    def _on_refusal(self, node: Node, plan: Plan, code: ErrorCode) -> None:
        node.retry_at_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(node.attempts)
        node.attempts += 1
        if not code.retriable:
            for tp, asked in plan.asked.items():
                self._subscription.fail(tp, asked.generation, ApiError(code, f"broker {plan.node} refused to fetch"))

    def _on_row(self, plan: Plan, tp: TopicPartition, row: FetchedPartition, endpoints: Sequence[NodeEndpoint]) -> None:
        asked = plan.asked[tp]
        state = self._subscription.find(tp, asked.generation)
        position = None if state is None else state.fetch_position
        if state is None or position is None or position.offset != asked.position.offset or self._buffered(tp):
            # Too late: the user has moved on, or another broker has answered before.
            return
        code = ErrorCode(row.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(plan, tp, row, endpoints)
            return
        self._attempts.pop(tp, None)
        self._subscription.on_fetched(
            tp,
            asked.generation,
            high_watermark=row.high_watermark,
            last_stable=row.last_stable_offset,
            log_start=row.log_start_offset,
        )
        if row.preferred_read_replica >= 0:
            max_age_s = self._settings.common.metadata_max_age_ms / 1000
            until_s = asyncio.get_running_loop().time() + max_age_s
            self._subscription.prefer_replica(tp, asked.generation, row.preferred_read_replica, until_s)
            if self._metrics is not None:
                self._metrics.read_replica(tp, row.preferred_read_replica)
        if not row.records:
            return
        if not has_whole_batch(row.records):
            self._subscription.fail(tp, asked.generation, no_whole_batch(tp, asked.position.offset, len(row.records)))
            return
        run = FetchedRun(
            tp,
            row.records,
            asked.position,
            aborted=(row.aborted_transactions or ()) if self._settings.read_committed else None,
            check_crcs=self._settings.check_crcs,
        )
        self._buffers[tp] = PartitionBuffer(tp, asked.generation, run, deserializers=self._deserializers)
        self._subscription.move_to_end(tp)

    def _on_error(
        self, plan: Plan, tp: TopicPartition, row: FetchedPartition, endpoints: Sequence[NodeEndpoint]
    ) -> None:
        code, asked = ErrorCode(row.error_code), plan.asked[tp]
        generation, offset = asked.generation, asked.position.offset
        if code in _MOVED:
            self._subscription.prefer_replica(tp, generation, None, 0.0)
            if row.current_leader is not None and row.current_leader[0] >= 0:
                self._cluster.learn_leader(tp, *row.current_leader, endpoints)
            else:
                self._cluster.mark_stale(tp.topic)
            self._defer(tp, generation)
        elif code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            # The broker has yet to hear what metadata told us.
            self._defer(tp, generation)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(plan.node, tp, generation, offset)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            failure = CorruptRecordError(
                tp, offset, "the broker found a damaged batch", advice="where it ends is not known: seek further on"
            )
            self._subscription.fail(tp, generation, failure)
        elif code.retriable:
            self._defer(tp, generation)
        else:
            self._subscription.fail(tp, generation, ApiError(code, f"partition {tp}, offset {offset}"))

    def _on_out_of_range(self, node: NodeId, tp: TopicPartition, generation: int, offset: Offset) -> None:
        if node != self._cluster.metadata.leader(*tp):
            # A follower may lack what the leader has.
            self._subscription.prefer_replica(tp, generation, None, 0.0)
            return
        state = self._subscription.find(tp, generation)
        if state is not None and state.ahead is not None:
            # A damaged header led us there. The position itself is good; whoever decodes will tell the next one.
            self._defer(tp, generation)
            return
        failure = None if self._positions.may_reset else partial(OffsetOutOfRangeError, tp, offset)
        self._subscription.on_out_of_range(tp, generation, failure=failure)

    def _defer(self, tp: TopicPartition, generation: int) -> None:
        attempts = self._attempts.get(tp, 0)
        self._attempts[tp] = attempts + 1
        until_s = asyncio.get_running_loop().time() + self._cluster.backoff_s(attempts)
        self._subscription.defer(tp, generation, until_s)
