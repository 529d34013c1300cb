"""The sender: takes ready batches from the accumulator, sends them to the leaders, and acts on the responses.

The sender has no task. `wake` schedules a run of `_send_ready`; a timer schedules the next one for a batch that
lingers, waits for a retry or expires; and every response wakes the sender. A request is sent immediately if its
connection is open. A request that must wait first (for a connection, or for a transaction's partitions) has a task, and
all later requests to that node wait for that task, so that requests are sent in the order of their batches. If the
connection for the first of them fails, the later ones fail too: a batch that overtook another would be out of order.

The result of a batch follows Kafka's rules (KIP-98, KIP-360):

    result            error codes
    written           none, or a duplicate of an attempt whose response was lost
    split             too large with several records
    retry in order    out of order, after a batch that is not settled
    retry renumbered  out of order with nothing before it, and not written; a producer that the leader does not know
    retry later       every other retriable error, until `retries` or `delivery.timeout.ms` are used up
    failed            all others. Also out of order after an attempt that may have been written: a leader that was
                      restarted recognizes only the last batch, and new numbers would write the records twice.
                      In a transaction one failed batch fails the transaction, and nothing is retried any more

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
# The highest version that does not imply transactions v2 (KIP-890), and the highest that has topic names.
_CLASSIC_VERSION_MAX = 11
_NAMES_VERSION_MAX = 12

# With these codes the batch was certainly not written; with every other retriable code it may have been.
_NOT_WRITTEN = frozenset(
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
)
# With these codes the metadata that named the leader is out of date.
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
# The result with acks=0: no response, and so no offset.
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
        # The last request of each node that waits before it is sent; later ones to the node wait for it.
        self._delayed: dict[NodeId, asyncio.Task[ApiError | None]] = {}
        # In the order in which they were started, which is the order in which `stop` cancels them.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._identity_task: asyncio.Task[None] | None = None
        # After an error that is not retriable, the next InitProducerId is not sent before this.
        self._identify_at_s = -inf
        self._identity_failures = 0
        self._is_awake = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf

    def wake(self) -> None:
        """Schedule `_send_ready`, unless it is scheduled already."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._send_ready)

    async def stop(self) -> None:
        """Send no more requests and ignore all responses."""
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

    def _send_ready(self) -> None:
        self._is_awake = False
        if self._is_stopped:
            return
        now_s = self._loop.time()
        for batch in self._accumulator.expire(now_s):
            self._on_expired(batch)
        has_more = True
        while has_more:
            drained = self._accumulator.drain(now_s, self._leader_of)
            for node, batches in drained.requests:
                self._send(node, batches)
            has_more = drained.has_more and bool(drained.requests)
        for topic in drained.leaderless:
            self._cluster.mark_stale(topic)
        self._set_timer(min(drained.next_s, self._request_identity_if_needed(now_s)))

    def _request_identity_if_needed(self, now_s: float) -> float:
        """Start InitProducerId if batches wait for an identity; return when to check again."""
        accumulator = self._accumulator
        if not accumulator.needs_identity or not accumulator.has_waiting:
            return inf
        if self._identity_task is not None or self._transactions is not None:
            return inf
        if now_s < self._identify_at_s:
            return self._identify_at_s
        self._identity_task = self._spawn(self._obtain_identity())
        return inf

    def _leader_of(self, partition: TopicPartition) -> NodeId | None:
        return self._cluster.metadata.leader(*partition)

    def _set_timer(self, at_s: float) -> None:
        """Run `_send_ready` at `at_s`. An earlier timer is kept: a run too many is cheaper than a timer per batch."""
        if at_s >= self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_s = None, inf
        self._send_ready()

    def _send(self, node: NodeId, batches: list[RecordBatch]) -> None:
        connection = self._open_connection(node)
        # A classic transaction must add a partition before its first batch is written. The coordinator writes the
        # markers only to partitions that it knows: the records in others would never be committed, and would hold
        # back the partition's last stable offset. Requests after a delayed one wait too, or batches are reordered.
        must_be_delayed = (
            node in self._delayed
            or self._settings.acks is Acks.NONE
            or (self._transactions is not None and not self._transactions.is_v2)
        )
        if connection is None or must_be_delayed:
            before = self._delayed.get(node)
            task = self._spawn(self._send_delayed(before, node, batches))
            self._delayed[node] = task
            task.add_done_callback(partial(self._on_delay_ended, node))
        else:
            self._submit(connection, node, batches)

    def _open_connection(self, node: NodeId) -> Channel | None:
        connection, broker = self._connections.get(node), self._cluster.metadata.brokers.get(node)
        if connection is None or broker is None or connection.is_closed or connection.address != broker.address:
            return None
        return connection

    def _on_delay_ended(self, node: NodeId, task: asyncio.Task[ApiError | None]) -> None:
        if self._delayed.get(node) is task:
            del self._delayed[node]

    async def _send_delayed(
        self, before: asyncio.Task[ApiError | None] | None, node: NodeId, batches: list[RecordBatch]
    ) -> ApiError | None:
        """Send a request after `before`. Returns the error if the node could not be reached, for the next request.

        Without it, a connection that opens between two attempts would send a later batch of a partition first.
        """
        failure = None
        if before is not None:
            await asyncio.wait([before])
            failure = before.result()
        if failure is None:
            try:
                if self._transactions is not None:
                    await self._transactions.ensure_added([batch.partition for batch in batches])
            except Exception as error:
                # Not returned: it says nothing about the node, and later requests add their own partitions.
                self._on_not_sent(node, batches, _as_api_error(error, batches))
                return None
            try:
                connection = await self._connect(node)
            except Exception as error:
                failure = _as_api_error(error, batches)
        if failure is not None:
            self._on_not_sent(node, batches, failure)
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
            response_future = connection.submit(_PRODUCE, request.version, parts, timeout_s=self._request_timeout_s)
        except Exception as error:
            self._on_not_sent(node, batches, _as_api_error(error, batches))
        else:
            response_future.add_done_callback(partial(self._on_response, request))

    async def _send_unacknowledged(self, connection: Channel, node: NodeId, batches: list[RecordBatch]) -> None:
        try:
            request = _Request(node, connection, self._version(connection, batches), batches, self._loop.time())
            await connection.send(_PRODUCE, request.version, self._encode(request))
        except Exception as error:
            self._on_not_sent(node, batches, _as_api_error(error, batches))
            return
        self._accumulator.end_request(node)
        for batch in batches:
            self._complete(batch, _UNACKNOWLEDGED)
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

    # Responses

    def _on_not_sent(self, node: NodeId, batches: list[RecordBatch], error: ApiError) -> None:
        """Handle the error of a request of which no byte was sent."""
        if not self._is_stopped:
            self._accumulator.end_request(node)
            for batch in batches:
                self._on_error(batch, error, was_sent=False)
            self._progressed()

    def _on_response(self, request: _Request, response_future: asyncio.Future[memoryview]) -> None:
        if self._is_stopped or response_future.cancelled():
            return
        self._accumulator.end_request(request.node)
        error = response_future.exception()
        if error is None:
            try:
                response = decode_produce_response(request.version, response_future.result())
            except ProtocolError as problem:
                error = request.connection.reject_response(problem)
            else:
                self._settle_request(request, response)
        if error is not None:
            assert isinstance(error, ApiError), error
            for batch in request.batches:
                self._on_error(batch, error)
        self._progressed()

    def _settle_request(self, request: _Request, response: ProduceResponse) -> None:
        now_s = self._loop.time()
        self._metrics.request_done(now_s - request.sent_s, response.throttle_time_ms)
        self._metrics.requests_in_flight(self._accumulator.in_flight_count)
        if response.throttle_time_ms:
            self._accumulator.throttle(request.node, now_s + response.throttle_time_ms / 1000)
        if len(request.batches) == 1 and len(response.topics) == 1 and len(response.topics[0][2]) == 1:
            # The most frequent case: a response with one row can only be about the request's one batch.
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
                text = f"the broker's response has no result for {batch.partition}"
                self._on_error(batch, ApiError(ErrorCode.NETWORK_EXCEPTION, text))
            else:
                self._settle_batch(batch, result, response)

    def _settle_batch(self, batch: RecordBatch, result: ProducePartitionResult, response: ProduceResponse) -> None:
        if result.error_code == _NO_ERROR:
            self._complete(batch, result)
        else:
            self._on_error_code(batch, result, has_new_leader=self._learn_leader(batch.partition, result, response))

    def _learn_leader(
        self, partition: TopicPartition, result: ProducePartitionResult, response: ProduceResponse
    ) -> bool:
        """Store the leader that a broker named in its response (KIP-951); return whether it was new."""
        if result.current_leader is None:
            return False
        return self._cluster.learn_leader(partition, *result.current_leader, response.node_endpoints)

    def _complete(self, batch: RecordBatch, result: ProducePartitionResult) -> None:
        was_settled = batch.is_settled
        self._accumulator.complete(batch)
        if not was_settled:
            self._receipts.deliver(batch, result.base_offset, result.log_append_time_ms)

    def _on_error_code(self, batch: RecordBatch, result: ProducePartitionResult, *, has_new_leader: bool) -> None:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # An earlier attempt was written, and its offset is not known. Retrying would never end, and failing would
            # make the user send the records again.
            self._complete(batch, result._replace(base_offset=NO_OFFSET, log_append_time_ms=NO_TIMESTAMP))
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_settled:
            self._split(batch)
        elif code is ErrorCode.MESSAGE_TOO_LARGE:
            text = f"partition {batch.partition}: {result.error_message or 'the record exceeds max.message.bytes'}"
            self._fail(batch, RecordTooLargeError(text))
        else:
            reasons = [text for text in (result.error_message, *(row[1] for row in result.record_errors)) if text]
            error = ApiError(code, "; ".join([f"partition {batch.partition}", *dict.fromkeys(reasons)]))
            self._on_error(batch, error, has_new_leader=has_new_leader, record_errors=result.record_errors)

    def _split(self, batch: RecordBatch) -> None:
        """Replace a batch that is too large for the broker by its halves."""
        if batch.packed is not None and batch.payload is not None:
            header, payload = open_batch(b"".join(batch.parts(self._settings.compression_codec, transactional=False)))
            batch.unpack(unpack_records(header, payload))
        if batch.group is not None:
            # The group counts its batches: with two halves it has one more, and would be done before the second half.
            batch.group.expect()
        self._accumulator.split(batch)
        self._metrics.batch_split()

    def _on_error(
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
        retry = self._find_retry(batch, error, pause_s=pause_s, was_sent=was_sent)
        if retry is None:
            if batch.may_be_written and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                error = ApiError(error.code, f"{error.message}: an earlier attempt may have been written")
            self._fail(batch, error, record_errors)
        else:
            self._metrics.retries(batch.partition.topic, batch.record_count)
            retry()

    def _find_retry(
        self, batch: RecordBatch, error: ApiError, *, pause_s: float, was_sent: bool
    ) -> Callable[[], None] | None:
        """Return the function that queues the batch again; None if it fails."""
        # After a failed batch or an abort, the partition has a gap that is never closed in this transaction: a retried
        # batch would wait until it expires, and the abort with it.
        is_failing = self._transactions is not None and self._transactions.is_failing
        if batch.is_settled or is_failing or batch.attempts >= self._settings.retries:
            return None
        accumulator, now_s = self._accumulator, self._loop.time()
        later_s = now_s + pause_s
        if batch.is_numbered and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The leader does not know the batch, although nothing before it is open. If an attempt was written, the
            # leader has only forgotten it, and under new numbers the records would be written twice. A transaction
            # cannot renumber, because its epoch belongs to the coordinator.
            if accumulator.is_lowest(batch) and (self._transactions is not None or batch.may_be_written):
                return None
            return partial(accumulator.retry_out_of_order, batch, at_s=later_s, now_s=now_s)
        if batch.is_numbered and error.code is ErrorCode.UNKNOWN_PRODUCER_ID and self._transactions is None:
            return partial(accumulator.retry_renumbered, batch, at_s=later_s)
        if not error.code.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            return None
        may_be_written = was_sent and error.code not in _NOT_WRITTEN
        return partial(accumulator.retry, batch, at_s=later_s, may_be_written=may_be_written)

    def _fail(self, batch: RecordBatch, error: ApiError, record_errors: Iterable[tuple[int, str | None]] = ()) -> None:
        was_settled = batch.is_settled
        self._accumulator.fail(batch)
        if not was_settled:
            self._report_failure(batch, error, record_errors)

    def _on_expired(self, batch: RecordBatch) -> None:
        reason = "" if batch.last_error is None else f"; the last error was {batch.last_error}"
        error = DeliveryTimeoutError(
            f"partition {batch.partition}: not acknowledged within delivery.timeout.ms "
            f"({self._settings.delivery_timeout_ms}){reason}"
        )
        self._report_failure(batch, error)
        # Deferred, so that flushes and waiting senders see the state after this run of `_send_ready`.
        self._loop.call_soon(self._on_progress)

    def _report_failure(
        self, batch: RecordBatch, error: ApiError, record_errors: Iterable[tuple[int, str | None]] = ()
    ) -> None:
        """Report a failed batch: to the transaction first, and to the futures and callbacks last.

        A callback may send again, and a transaction that has failed must not accept its record.
        """
        reported = error
        if self._transactions is not None:
            reported = self._transactions.on_batch_failed(batch.partition, error)
        self._metrics.errors(batch.partition.topic, batch.record_count)
        self._receipts.fail(batch, reported, tuple(record_errors))
        if self._transactions is not None:
            # The failure fails the transaction, unless it is being aborted already. What waits after the gap cannot be
            # sent: the leader would reject it. If it stayed, a flush would wait until it expires.
            self.drop_waiting(self._transactions.error or reported, with_numbers=True)

    def drop_waiting(self, error: ApiError, *, with_numbers: bool) -> None:
        """Fail the batches that are not in flight; those with sequence numbers only if `with_numbers` is set."""
        for batch in self._accumulator.drop_waiting(with_numbers=with_numbers):
            self._metrics.errors(batch.partition.topic, batch.record_count)
            self._receipts.fail(batch, error)
        self._progressed()

    def _progressed(self) -> None:
        """A batch was settled or may be sent again: notify the producer, and send what is ready."""
        self._on_progress()
        self.wake()

    # In the background

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _obtain_identity(self) -> None:
        """Obtain a producer id, without which an idempotent producer sends nothing."""
        try:
            identity = await self._retry_until_final(self._request_identity)
        except Exception as error:
            # The waiting batches fail. Batches that are added later cause a new request, after a pause.
            self._identity_task = None
            self._identify_at_s = self._loop.time() + self._cluster.backoff_s(self._identity_failures)
            self._identity_failures += 1
            self.drop_waiting(_as_api_error(error, ()), with_numbers=True)
        else:
            self._identity_task = None
            self._identity_failures = 0
            self._accumulator.set_identity(identity)
            self.wake()

    async def _request_identity(self) -> ProducerIdentity:
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

    async def _retry_until_final(self, request: Callable[[], Awaitable[ProducerIdentity]]) -> ProducerIdentity:
        attempt = 0
        while True:
            try:
                return await request()
            except ApiError as error:
                if not error.code.retriable:
                    raise
            await asyncio.sleep(self._cluster.backoff_s(attempt))
            attempt += 1


def _as_api_error(error: Exception, batches: Iterable[RecordBatch]) -> ApiError:
    """Return `error` as an ApiError.

    Any other exception is a bug, or data that a codec rejects. It fails the batches: if it were raised in a callback of
    the event loop, their futures would never be done.
    """
    if isinstance(error, ApiError):
        return error
    _log.error("a batch cannot be sent", partitions=[str(batch.partition) for batch in batches], exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot be sent: {error!r}")
