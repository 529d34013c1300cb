"""The sender: takes what is ready from the accumulator, brings it to the leaders, and acts on the answers.

It has no task of its own: `wake` schedules a look at the accumulator, a timer looks again when something lingers, waits
for a retry or expires, and every answer wakes it. A request goes out at once on a connection that is open; what must
wait first (for a connection, for a transaction's partitions) has a task, and all later requests to that node queue up
behind it, so that requests leave in the order of their batches. If there is no connection for the first of them, there
is none for those behind it, either: a batch that overtook another would be out of order.

What an answer means is Kafka's rule (KIP-98, KIP-360):

    written                 none, or a duplicate of an attempt whose answer was lost
    split                   too large with several records
    again, in order         out of order, behind a batch that is open
    again, renumbered       out of order with nothing before it, and not written; a producer that the leader forgot
    again, later            every other retriable error, until retries or delivery.timeout.ms are used up
    failed                  the rest. Also out of order after an attempt that may have been written: a leader that was
                            restarted knows only the last batch again, and another number would write it twice.
                            In a transaction one failed batch ends it: nothing else is tried again

`producer` is the only caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import NO_OFFSET, NO_TIMESTAMP, NO_TOPIC_ID, NodeId, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import DeliveryTimeoutError, RecordTooLargeError
from rookery.client.metrics.producer import ProducerMetrics
from rookery.client.produce.accumulator import Accumulator
from rookery.client.produce.receipts import Receipts, RecordBatch, RecordFuture
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from rookery.client.produce.transaction_calls import Transactions
from rookery.client.settings.producer import Acks, ProducerSettings
from rookery.net.channel import Channel
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import InitProducerIdRequest
from rookery.protocol.produce import (
    OutgoingPartition,
    OutgoingTopic,
    ProducePartitionResult,
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
)
from rookery.records.batch import HEADER_SIZE
from rookery.records.batch_reader import unpack_records
from rookery.records.record import open_batch
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)

Result = TypeVar("Result")

_PRODUCE = int(ApiKey.PRODUCE)
_NO_ERROR = int(ErrorCode.NONE)
# The newest version that does not mean transactions v2 (KIP-890), and the newest that names topics.
_CLASSIC_VERSION_MAX = 11
_NAMES_VERSION_MAX = 12

# The batch was certainly not written; after every other retriable answer it may be there.
_NOT_WRITTEN = frozenset(
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
)
# The picture of the cluster that led there is old.
_MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)
# With acks=0 nobody says where a batch landed.
_UNACKNOWLEDGED = ProducePartitionResult(-1)


class _Request(NamedTuple):
    node: NodeId
    connection: Channel
    version: int
    batches: list[RecordBatch]
    sent_s: float


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator[RecordFuture],
        *,
        receipts: Receipts,
        settings: ProducerSettings,
        metrics: ProducerMetrics,
        transactions: Transactions | None,
        on_progress: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._receipts = receipts
        self._settings = settings
        self._metrics = metrics
        self._transactions = transactions
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._request_timeout_s = settings.common.request_timeout_ms / 1000
        self._connections: dict[NodeId, Channel] = {}
        # Requests that wait before they go out: later ones to the same node go behind them.
        self._held_back: dict[NodeId, asyncio.Task[ApiError | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._identifying: asyncio.Task[None] | None = None
        # After a final error nobody asks for an identity before this.
        self._identify_at_s = -inf
        self._identity_failures = 0
        self._is_awake = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf

    def wake(self) -> None:
        """Look at the accumulator soon."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._look)

    async def stop(self) -> None:
        """Send nothing more and look at no answer."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    # Sending

    def _look(self) -> None:
        self._is_awake = False
        if self._is_stopped:
            return
        now_s = self._loop.time()
        for batch in self._accumulator.expire(now_s):
            self._expired(batch)
        has_more = True
        while has_more:
            drained = self._accumulator.drain(now_s, self._leader_of)
            for node, batches in drained.requests:
                self._start(node, batches)
            has_more = drained.has_more and bool(drained.requests)
        for topic in drained.leaderless:
            self._cluster.mark_stale(topic)
        self._set_timer(min(drained.next_s, self._look_for_identity(now_s)))

    def _look_for_identity(self, now_s: float) -> float:
        """Ask for one if something waits for it; when to look again."""
        accumulator = self._accumulator
        if not accumulator.needs_identity or not accumulator.has_waiting:
            return inf
        if self._identifying is not None or self._transactions is not None:
            return inf
        if now_s < self._identify_at_s:
            return self._identify_at_s
        self._identifying = self._spawn(self._identify())
        return inf

    def _leader_of(self, partition: TopicPartition) -> NodeId | None:
        return self._cluster.metadata.leader(*partition)

    def _set_timer(self, at_s: float) -> None:
        """Look again then. A timer that is earlier stays: a look too many costs less than a timer for each batch."""
        if at_s >= self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_s = None, inf
        self._look()

    def _start(self, node: NodeId, batches: list[RecordBatch]) -> None:
        connection = self._open_connection(node)
        must_wait = (
            node in self._held_back
            or self._settings.acks is Acks.NONE
            or (self._transactions is not None and not self._transactions.is_v2)
        )
        if connection is None or must_wait:
            before = self._held_back.get(node)
            task = self._spawn(self._send_later(before, node, batches))
            self._held_back[node] = task
            task.add_done_callback(partial(self._caught_up, node))
        else:
            self._submit(connection, node, batches)

    def _open_connection(self, node: NodeId) -> Channel | None:
        connection, broker = self._connections.get(node), self._cluster.metadata.brokers.get(node)
        if connection is None or broker is None or connection.is_closed or connection.address != broker.address:
            return None
        return connection

    def _caught_up(self, node: NodeId, task: asyncio.Task[ApiError | None]) -> None:
        if self._held_back.get(node) is task:
            del self._held_back[node]

    async def _send_later(
        self, before: asyncio.Task[ApiError | None] | None, node: NodeId, batches: list[RecordBatch]
    ) -> ApiError | None:
        """Why the node could not be reached, for those who wait behind this request."""
        failure = None
        if before is not None:
            await asyncio.wait([before])
            failure = before.result()
        if failure is None:
            try:
                if self._transactions is not None:
                    await self._transactions.ensure_added([batch.partition for batch in batches])
            except Exception as error:
                self._not_sent(node, batches, _as_api_error(error, batches))
                return None
            try:
                connection = await self._connect(node)
            except Exception as error:
                failure = _as_api_error(error, batches)
        if failure is not None:
            self._not_sent(node, batches, failure)
        elif self._settings.acks is Acks.NONE:
            await self._send_unacknowledged(connection, node, batches)
        else:
            self._submit(connection, node, batches)
        return failure

    async def _connect(self, node: NodeId) -> Channel:
        connection = await self._cluster.connection(node)
        self._connections[node] = connection
        return connection

    def _submit(self, connection: Channel, node: NodeId, batches: list[RecordBatch]) -> None:
        try:
            request = _Request(node, connection, self._version(connection, batches), batches, self._loop.time())
            parts = self._encode(request)
            answer = connection.submit(_PRODUCE, request.version, parts, timeout_s=self._request_timeout_s)
        except Exception as error:
            self._not_sent(node, batches, _as_api_error(error, batches))
        else:
            answer.add_done_callback(partial(self._answered, request))

    async def _send_unacknowledged(self, connection: Channel, node: NodeId, batches: list[RecordBatch]) -> None:
        try:
            request = _Request(node, connection, self._version(connection, batches), batches, self._loop.time())
            await connection.send(_PRODUCE, request.version, self._encode(request))
        except Exception as error:
            self._not_sent(node, batches, _as_api_error(error, batches))
            return
        self._accumulator.end_request(node)
        for batch in batches:
            self._written(batch, _UNACKNOWLEDGED)
        self._progressed()

    def _version(self, connection: Channel, batches: Iterable[RecordBatch]) -> int:
        version = connection.version(ApiKey.PRODUCE)
        if self._transactions is not None and not self._transactions.is_v2:
            return min(version, _CLASSIC_VERSION_MAX)
        if version > _NAMES_VERSION_MAX:
            metadata = self._cluster.metadata
            if any(metadata.topic_id(batch.partition.topic) == NO_TOPIC_ID for batch in batches):
                return _NAMES_VERSION_MAX
        return version

    def _encode(self, request: _Request) -> "list[bytes | bytearray | memoryview]":
        settings, codec = self._settings, self._settings.compression_codec
        transactional = self._transactions is not None
        topics: dict[TopicName, list[OutgoingPartition]] = {}
        record_count = 0
        for batch in request.batches:
            is_first = batch.payload is None or batch.attempts == 0
            packed_size = batch.pack(codec, settings.compression_level)
            parts = batch.parts(codec, transactional=transactional)
            topic, index = batch.partition
            topics.setdefault(topic, []).append((index, parts))
            record_count += batch.record_count
            if is_first:
                size_bytes = HEADER_SIZE + len(parts[1])
                self._metrics.batch_sent(
                    topic,
                    records=batch.record_count,
                    size_bytes=size_bytes,
                    record_size_max=batch.record_size_max,
                    queue_time_s=request.sent_s - batch.created_s,
                    compression_ratio=size_bytes / (HEADER_SIZE + packed_size),
                )
        self._metrics.request_sent(record_count)
        self._metrics.requests_in_flight(self._accumulator.in_flight_count)
        metadata = self._cluster.metadata
        outgoing: list[OutgoingTopic] = [(name, metadata.topic_id(name), rows) for name, rows in topics.items()]
        return encode_produce_request(
            request.version,
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=settings.common.request_timeout_ms,
            topics=outgoing,
        )

    # Answers

    def _not_sent(self, node: NodeId, batches: list[RecordBatch], error: ApiError) -> None:
        """Nothing left this machine."""
        if not self._is_stopped:
            self._accumulator.end_request(node)
            for batch in batches:
                self._refused(batch, error, was_sent=False)
            self._progressed()

    def _answered(self, request: _Request, answer: asyncio.Future[memoryview]) -> None:
        if self._is_stopped or answer.cancelled():
            return
        self._accumulator.end_request(request.node)
        error = answer.exception()
        if error is None:
            try:
                response = decode_produce_response(request.version, answer.result())
            except ProtocolError as problem:
                error = request.connection.reject_response(problem)
            else:
                self._settle(request, response)
        if error is not None:
            assert isinstance(error, ApiError), error
            for batch in request.batches:
                self._refused(batch, error)
        self._progressed()

    def _settle(self, request: _Request, response: ProduceResponse) -> None:
        now_s = self._loop.time()
        self._metrics.request_done(now_s - request.sent_s, response.throttle_time_ms)
        self._metrics.requests_in_flight(self._accumulator.in_flight_count)
        if response.throttle_time_ms:
            self._accumulator.hold(request.node, now_s + response.throttle_time_ms / 1000)
        if len(request.batches) == 1 and len(response.topics) == 1 and len(response.topics[0][2]) == 1:
            # The most frequent request; an answer to it cannot be about anything else.
            self._settle_batch(request.batches[0], response.topics[0][2][0], response)
            return
        results = {
            TopicPartition(topic, result.index): result
            for name, topic_id, rows in response.topics
            if (topic := name or self._cluster.metadata.topic_name(topic_id or NO_TOPIC_ID)) is not None
            for result in rows
        }
        for batch in request.batches:
            result = results.get(batch.partition)
            if result is None:
                text = f"the broker's answer says nothing of {batch.partition}"
                self._refused(batch, ApiError(ErrorCode.NETWORK_EXCEPTION, text))
            else:
                self._settle_batch(batch, result, response)

    def _settle_batch(self, batch: RecordBatch, result: ProducePartitionResult, response: ProduceResponse) -> None:
        if result.error_code == _NO_ERROR:
            self._written(batch, result)
        else:
            self._judge(batch, result, has_new_leader=self._learn(batch.partition, result, response))

    def _learn(self, partition: TopicPartition, result: ProducePartitionResult, response: ProduceResponse) -> bool:
        """A broker that is not the leader may say who is (KIP-951); whether that was news."""
        if result.current_leader is None:
            return False
        return self._cluster.learn_leader(partition, *result.current_leader, response.node_endpoints)

    def _written(self, batch: RecordBatch, result: ProducePartitionResult) -> None:
        was_settled = batch.is_settled
        self._accumulator.complete(batch)
        if not was_settled:
            self._receipts.deliver(batch, result.base_offset, result.log_append_time_ms)

    def _judge(self, batch: RecordBatch, result: ProducePartitionResult, *, has_new_leader: bool) -> None:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._written(batch, result._replace(base_offset=NO_OFFSET, log_append_time_ms=NO_TIMESTAMP))
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_settled:
            self._split(batch)
        elif code is ErrorCode.MESSAGE_TOO_LARGE:
            text = f"partition {batch.partition}: {result.error_message or 'the record exceeds max.message.bytes'}"
            self._fail(batch, RecordTooLargeError(text))
        else:
            reasons = [text for text in (result.error_message, *(row[1] for row in result.record_errors)) if text]
            error = ApiError(code, "; ".join([f"partition {batch.partition}", *dict.fromkeys(reasons)]))
            self._refused(batch, error, has_new_leader=has_new_leader, record_errors=result.record_errors)

    def _split(self, batch: RecordBatch) -> None:
        if batch.sealed is not None and batch.payload is not None:
            header, payload = open_batch(b"".join(batch.parts(self._settings.compression_codec, transactional=False)))
            batch.unseal(unpack_records(header, payload))
        if batch.group is not None:
            batch.group.expect()
        self._accumulator.split(batch)
        self._metrics.batch_split()

    def _refused(
        self,
        batch: RecordBatch,
        error: ApiError,
        *,
        was_sent: bool = True,
        has_new_leader: bool = False,
        record_errors: Iterable[tuple[int, str | None]] = (),
    ) -> None:
        if error.code in _MOVED and not has_new_leader:
            self._cluster.mark_stale(batch.partition.topic)
        batch.last_error = error
        pause_s = 0.0 if has_new_leader else self._cluster.backoff_s(batch.attempts)
        again = self._again(batch, error, pause_s=pause_s, was_sent=was_sent)
        if again is None:
            if batch.fate_is_unknown and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                error = ApiError(error.code, f"{error.message}: an earlier attempt may have been written")
            self._fail(batch, error, record_errors)
        else:
            self._metrics.retries(batch.partition.topic, batch.record_count)
            again()

    def _again(
        self, batch: RecordBatch, error: ApiError, *, pause_s: float, was_sent: bool
    ) -> Callable[[], None] | None:
        """How to try again; None if this was the last time."""
        # Whatever else comes back after a failure, or an abort, would wait behind a gap that nothing closes.
        is_over = self._transactions is not None and self._transactions.is_over
        if batch.is_settled or is_over or batch.attempts >= self._settings.retries:
            return None
        accumulator, now_s = self._accumulator, self._loop.time()
        later_s = now_s + pause_s
        if batch.is_numbered and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if accumulator.is_lowest(batch) and (self._transactions is not None or batch.fate_is_unknown):
                return None
            return partial(accumulator.retry_out_of_order, batch, at_s=later_s, now_s=now_s)
        if batch.is_numbered and error.code is ErrorCode.UNKNOWN_PRODUCER_ID and self._transactions is None:
            return partial(accumulator.retry_renumbered, batch, at_s=later_s)
        if not error.code.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            return None
        unknown = was_sent and error.code not in _NOT_WRITTEN
        return partial(accumulator.retry, batch, at_s=later_s, fate_is_unknown=unknown)

    def _fail(self, batch: RecordBatch, error: ApiError, record_errors: Iterable[tuple[int, str | None]] = ()) -> None:
        was_settled = batch.is_settled
        self._accumulator.fail(batch)
        if not was_settled:
            self._tell_failure(batch, error, record_errors)

    def _expired(self, batch: RecordBatch) -> None:
        reason = "" if batch.last_error is None else f"; the last error was {batch.last_error}"
        error = DeliveryTimeoutError(
            f"partition {batch.partition}: not acknowledged within delivery.timeout.ms "
            f"({self._settings.delivery_timeout_ms}){reason}"
        )
        self._tell_failure(batch, error)
        # Later, since this may be called in the middle of a look.
        self._loop.call_soon(self._on_progress)

    def _tell_failure(
        self, batch: RecordBatch, error: ApiError, record_errors: Iterable[tuple[int, str | None]] = ()
    ) -> None:
        """Senders are told last: they may send again from a callback."""
        told = error
        if self._transactions is not None:
            told = self._transactions.on_batch_failed(batch.partition, error)
        self._metrics.errors(batch.partition.topic, batch.record_count)
        self._receipts.refuse(batch, told, tuple(record_errors))
        if self._transactions is not None:
            # A failure ends the transaction, unless it is being aborted anyway: what waits behind the gap cannot go.
            self.drop_waiting(self._transactions.error or told, with_numbers=True)

    def drop_waiting(self, error: ApiError, *, with_numbers: bool) -> None:
        """Fail what is not on the wire."""
        for batch in self._accumulator.drop_waiting(with_numbers=with_numbers):
            self._metrics.errors(batch.partition.topic, batch.record_count)
            self._receipts.refuse(batch, error)
        self._progressed()

    def _progressed(self) -> None:
        """Something was settled, or may be sent again."""
        self._on_progress()
        self.wake()

    # In the background

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _identify(self) -> None:
        """Get a producer id; without one an idempotent producer sends nothing."""
        try:
            identity = await self._ask_until_answered(self._ask_identity)
        except Exception as error:
            # What waits fails; what is sent later asks again, but not at once.
            self._identifying = None
            self._identify_at_s = self._loop.time() + self._cluster.backoff_s(self._identity_failures)
            self._identity_failures += 1
            self.drop_waiting(_as_api_error(error, ()), with_numbers=True)
        else:
            self._identifying = None
            self._identity_failures = 0
            self._accumulator.set_identity(identity)
            self.wake()

    async def _ask_identity(self) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=NO_IDENTITY.producer_id,
            producer_epoch=NO_IDENTITY.producer_epoch,
            enable2_pc=False,
            keep_prepared_txn=False,
        )
        response = await self._cluster.call(ApiKey.INIT_PRODUCER_ID, request)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), "no producer id")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _ask_until_answered(self, ask: Callable[[], Awaitable[ProducerIdentity]]) -> ProducerIdentity:
        attempt = 0
        while True:
            try:
                return await ask()
            except ApiError as error:
                if not error.code.retriable:
                    raise
            await asyncio.sleep(self._cluster.backoff_s(attempt))
            attempt += 1


def _as_api_error(error: Exception, batches: Iterable[RecordBatch]) -> ApiError:
    """What else is raised is a bug, or bytes that no codec takes: it must not leave senders waiting."""
    if isinstance(error, ApiError):
        return error
    _log.error("a batch cannot be sent", partitions=[str(batch.partition) for batch in batches], exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot be sent: {error!r}")
