"""`Producer` without `await`: the same methods as `rookery.client.Producer`; `send` returns a future immediately.

Theory of operation. The sending thread serializes the record: interceptors and serializers run there, and their errors
are raised there. Then it appends the record to `_queue`, under a lock. The first record of an empty queue wakes the
loop. The loop takes the whole queue and distributes it to pumps, one task for each topic with queued records: so the
records of a topic stay in order, and a record that waits for its topic's metadata does not delay other topics. A pump
appends records to their batches while there is memory, and otherwise waits as `Producer.send` does. The records'
futures are stored in the batches themselves, so an acknowledgement completes them without another hop.

Back-pressure: `_queued_bytes` counts the records that are queued and not in the buffer yet. While it exceeds
`QUEUED_BYTES_MAX`, `send` waits in the calling thread, at most `max.block.ms`.

A queued record that cannot be sent fails alone: its future raises the error, and `on_delivery` is called, once. In a
transaction, it also prevents the commit, as if the broker had rejected it. An error that `send` itself raises concerns
a record that was not queued, and does not affect the transaction.

A forked child must not acquire the lock, which another thread of the parent may have held: check `is_lost` first.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from threading import TIMEOUT_MAX, Condition, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client.errors import (
    BufferExhaustedError,
    ClientStateError,
    SerializationError,
    TransactionAbortableError,
    suppress_abort_errors,
)
from rookery.client.generics import K, V
from rookery.client.metadata import Partition
from rookery.client.metrics.names import MetricName
from rookery.client.prepared import PreparedTransaction
from rookery.client.produce.batches import headers_size
from rookery.client.produce.partitioners import PartitionerLike
from rookery.client.produce.receipts import Interceptors
from rookery.client.produce.records import (
    BatchMetadata,
    DeliveryCallback,
    HeadersLike,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    Serializer,
    check_timestamp,
    normalize_headers,
)
from rookery.client.produce.serialization import Serializers
from rookery.client.produce.transactions import GroupLike, OffsetLike
from rookery.client.sync.delivery import Delivery, SharedCondition
from rookery.client.sync.handoff import LoopProducer, QueuedRecord, make_queued_record
from rookery.client.sync.loop import shared_loop
from rookery.telemetry.library_logs import LibraryLogger

if TYPE_CHECKING:
    import pyarrow


_log = LibraryLogger(__name__)

# The size limit of the queue between the threads and the buffer: some milliseconds of work, so that both sides batch.
QUEUED_BYTES_MAX = 1024 * 1024
# The memory of a queued record in addition to its bytes.
_OVERHEAD_BYTES = 256
# The types of keys and values that need no serializer.
_PLAIN_TYPES = frozenset((bytes, type(None)))


class Producer(Generic[K, V]):
    """`config` holds settings under Kafka's names, with Kafka's defaults. Thread-safe."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: PartitionerLike | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        randomness: Random | None = None,
    ) -> None:
        self._loop = shared_loop()
        self._serializers = Serializers(key_serializer, value_serializer)
        self._interceptors = Interceptors(interceptors)
        self._has_hooks = bool(self._serializers or self._interceptors)

        def make() -> LoopProducer:
            return LoopProducer(
                config, partitioner=partitioner, interceptors=interceptors, clock=clock, randomness=randomness
            )

        self._producer = self._loop.call(make)
        settings = self._producer._settings
        self._max_block_ms = settings.max_block_ms
        self._queued_bytes_max = min(QUEUED_BYTES_MAX, settings.buffer_memory)
        self._lock = Lock()
        self._memory_waiters = Condition(self._lock)
        self._shared_condition = SharedCondition()
        self._queue: list[QueuedRecord] = []
        self._queued_bytes = 0
        self._waiting_count = 0
        # `_is_closed`: no more records are accepted. `_is_close_done`: `close` has completed.
        self._is_closed = False
        self._is_close_done = False
        self._backlogs: dict[TopicName, deque[QueuedRecord | asyncio.Future[None]]] = {}
        self._pumps: dict[TopicName, asyncio.Task[None]] = {}
        # The error of the transaction's first record that did not get into a batch.
        self._failure: ApiError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all records. If the block failed, drop unsent ones and abort an open transaction instead."""
        if error is None:
            self.close()
            return
        try:
            self._loop.run(self._abort_if_open())
        finally:
            self.close(0)

    # Sending, in the calling thread.

    def send(
        self,
        topic: TopicName,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: PartitionIndex | None = None,
        headers: HeadersLike = (),
        timestamp_ms: TimestampMs | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Future[RecordMetadata]:
        """Queue a record; wait only while the queue is full.

        Interceptors and serializers run here, so the key, the value and the headers may be reused immediately. An error
        of this call (SerializationError, BufferExhaustedError) means that the record was not queued; it does not affect
        a transaction. The future raises ApiError if a queued record was not written, and then a transaction cannot be
        committed. `on_delivery` is called once for a queued record, on the clients' thread, with the metadata or the
        error.
        """
        if self._is_closed or self._loop.is_lost:
            raise self._closed_error()
        pairs = normalize_headers(headers) if headers else ()
        if (
            self._has_hooks
            or value.__class__ not in _PLAIN_TYPES
            or key.__class__ not in _PLAIN_TYPES
            or topic.__class__ is not str
            or timestamp_ms is not None
        ):
            record = self._serialize(ProducerRecord(topic, value, key, partition, pairs, timestamp_ms))
            topic, value_bytes, key_bytes, partition, pairs, timestamp_ms = record
        else:
            key_bytes, value_bytes = key, value  # type: ignore[assignment]  # as their classes say
        size_bytes = _OVERHEAD_BYTES
        if value_bytes is not None:
            size_bytes += len(value_bytes)
        if key_bytes is not None:
            size_bytes += len(key_bytes)
        if pairs:
            size_bytes += headers_size(pairs)
        delivery = Delivery(self._shared_condition)
        queued = make_queued_record(
            (topic, key_bytes, value_bytes, partition, pairs, timestamp_ms, on_delivery, delivery, size_bytes)
        )
        with self._lock:
            # Not on the loop's thread: a callback there would wait for itself.
            if self._queued_bytes > self._queued_bytes_max and not self._loop.is_current:
                self._wait_for_space(topic)
            if self._is_closed:
                raise self._closed_error()
            # Wake the loop before appending (`_dispatch` needs the lock): an interrupt between the two leaves an empty
            # queue, not one that no later `send` would dispatch.
            if not self._queue:
                self._loop.call_soon(self._dispatch)
            self._queue.append(queued)
            self._queued_bytes += size_bytes
        return delivery

    def _serialize(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[bytes, bytes]:
        """Run the interceptors and serializers. Raises SerializationError."""
        record = self._interceptors.on_send(record)
        topic = record.topic
        try:
            if not isinstance(topic, str):
                raise SerializationError(f"the topic must be a string, not {topic!r}")
            if record.timestamp_ms is not None:
                check_timestamp(topic, record.timestamp_ms)
            key, value = self._serializers.key(topic, record.key), self._serializers.value(topic, record.value)
            return record._replace(key=key, value=value, headers=normalize_headers(record.headers))
        except ApiError as error:
            self._loop.call_soon(partial(self._producer.count_error, str(topic)))
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _closed_error(self) -> ClientStateError:
        self._loop.check(waits=False)
        return ClientStateError("the producer is closed")

    def _wait_for_space(self, topic: TopicName) -> None:
        """Wait until the queue is short enough. The caller holds the lock, which is released during the wait."""
        self._waiting_count += 1
        try:
            has_space = self._memory_waiters.wait_for(
                lambda: self._is_closed or self._queued_bytes <= self._queued_bytes_max,
                min(self._max_block_ms / 1000, TIMEOUT_MAX),
            )
        finally:
            self._waiting_count -= 1
        if not has_space:
            raise BufferExhaustedError(
                f"topic {topic}: no free memory in buffer.memory within max.block.ms ({self._max_block_ms})"
            )

    # Sending, on the loop.

    def _dispatch(self) -> None:
        """Distribute the queued records to the pumps of their topics."""
        with self._lock:
            records, self._queue = self._queue, []
        backlogs = self._backlogs
        for record in records:
            backlog = backlogs.get(record.topic)
            if backlog is None:
                backlog = backlogs[record.topic] = deque()
                self._pumps[record.topic] = asyncio.get_running_loop().create_task(self._pump(record.topic, backlog))
            backlog.append(record)

    async def _pump(self, topic: TopicName, backlog: "deque[QueuedRecord | asyncio.Future[None]]") -> None:
        sent_bytes = 0
        try:
            while backlog:
                record = backlog.popleft()
                if isinstance(record, asyncio.Future):
                    if not record.done():
                        record.set_result(None)
                elif self._send_now(record):
                    sent_bytes += record.size_bytes
                else:
                    self._release_bytes(sent_bytes)
                    sent_bytes = record.size_bytes
                    await self._send_waiting(record)
        finally:
            # `_drop_queued` may have removed this pump, and a new one may have started for the topic.
            if self._backlogs.get(topic) is backlog:
                del self._backlogs[topic], self._pumps[topic]
            self._release_bytes(sent_bytes)

    def _send_now(self, record: QueuedRecord) -> bool:
        """Return whether the record is sent or has failed; False if it needs to wait."""
        try:
            return self._producer.send_now(record)
        except Exception as error:
            self._fail_record(record, error)
            return True

    async def _send_waiting(self, record: QueuedRecord) -> None:
        try:
            await self._producer.send_waiting(record)
        except asyncio.CancelledError:
            if not self._producer.is_in_batch:
                self._fail_record(record, _dropped_error(record.topic))
            raise
        except ApiError as error:
            self._fail_record(record, error, is_acknowledged=True)
        except Exception as error:
            self._fail_record(record, error)

    def _release_bytes(self, size_bytes: int) -> None:
        """Subtract records that are in the buffer, or have failed, from the queue's size; wake waiting senders."""
        with self._lock:
            self._queued_bytes -= size_bytes
            if self._waiting_count and self._queued_bytes <= self._queued_bytes_max:
                self._memory_waiters.notify_all()

    def _fail_record(self, record: QueuedRecord, error: Exception, *, is_acknowledged: bool = False) -> None:
        """Fail a record that did not get into a batch. `is_acknowledged`: the interceptors were called already."""
        failure = error if isinstance(error, ApiError) else _as_api_error(record.topic, error)
        if self._failure is None:
            self._failure = failure
        if not is_acknowledged:
            self._producer.notify_interceptors(failure)
        record.delivery.set_exception(failure)
        if record.on_delivery is not None:
            try:
                record.on_delivery(None, failure)
            except Exception:
                _log.exception("on_delivery failed", topic=record.topic)

    async def _drain_queue(self) -> None:
        """Wait until all records sent so far are in batches or have failed."""
        self._dispatch()
        markers: list[asyncio.Future[None]] = []
        for backlog in self._backlogs.values():
            markers.append(asyncio.get_running_loop().create_future())
            backlog.append(markers[-1])
        if markers:
            await asyncio.wait(markers)

    async def _drop_queued(self) -> None:
        """Fail the records that are not in batches."""
        self._dispatch()
        # Replace the dictionaries first: later records go to new pumps, and a pump that is cancelled before it starts
        # does not run its `finally`, so it would stay registered and its topic would never be sent again.
        backlogs, self._backlogs = self._backlogs, {}
        pumps, self._pumps = list(self._pumps.values()), {}
        for backlog in backlogs.values():
            while backlog:
                record = backlog.popleft()
                if not isinstance(record, asyncio.Future):
                    self._fail_record(record, _dropped_error(record.topic))
                    self._release_bytes(record.size_bytes)
                elif not record.done():
                    record.set_result(None)
        for pump in pumps:
            pump.cancel()
        if pumps:
            await asyncio.wait(pumps)

    def send_arrow(
        self, batch: "pyarrow.RecordBatch | pyarrow.Table", topic: TopicName | None = None
    ) -> Future[list[BatchMetadata]]:
        """Queue the rows of an Arrow table: the column value, and optionally key, topic, partition, timestamp, headers.

        Whole batches are encoded and compressed in one pass. Waits as `send` does; the future returns the metadata of
        the batches.
        """

        async def send() -> tuple[asyncio.Future[list[BatchMetadata]]]:
            await self._drain_queue()
            # In a tuple: a future that is returned directly would be awaited.
            return (await self._producer.send_arrow(batch, topic),)

        async def delivered(future: asyncio.Future[list[BatchMetadata]]) -> list[BatchMetadata]:
            return await future

        (future,) = self._loop.run(send())
        return self._loop.submit(delivered(future))

    # Waiting

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed."""
        self._loop.run(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._drain_queue()
                await self._producer.flush()
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not everything was acknowledged in {timeout_s:g} s") from None

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for all records, at most `timeout_s`; then drop the rest, which fails. 0 drops them immediately.

        An open transaction is aborted, unless it is prepared.
        """
        if self._is_close_done:
            return
        self._loop.check(waits=True)
        with self._lock:
            self._is_closed = True
            self._memory_waiters.notify_all()
        self._loop.run(self._close(timeout_s))
        # Not set after an interrupt: `close` can be called again then.
        self._is_close_done = True

    async def _close(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        if timeout_s != 0:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._drain_queue()
            except TimeoutError:
                pass
        await self._drop_queued()
        await self._producer.close(None if timeout_s is None else max(0, timeout_s - (loop.time() - started_s)))

    # Transactions

    def init_transactions(self) -> None:
        """Take over the transactional id: fence older producers, and abort the transaction that they left open."""
        self._loop.run(self._producer.init_transactions())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction: commit it at the end; abort it if the block or the commit fails.

        Raises the error of the block or the commit; if the abort fails with ProducerFencedError or FatalProducerError,
        that one. After a commit that timed out, `commit_transaction` continues it.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            with suppress_abort_errors():
                self.abort_transaction()
            raise

    def begin_transaction(self) -> None:
        async def begin() -> None:
            await self._drain_queue()
            self._producer.begin_transaction()
            self._failure = None

        self._loop.run(begin())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetLike | Offset], group_metadata: GroupLike
    ) -> None:
        """Commit a consumer group's offsets together with the records."""
        self._loop.run(self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Wait for all records, then commit. Raises the transaction's first error, if it has one."""

        async def commit() -> None:
            await self._drain_queue_or_raise()
            await self._producer.commit_transaction()

        self._loop.run(commit())

    def prepare_transaction(self) -> PreparedTransaction:
        """Wait for all records, and leave the transaction open for `Admin.end_transaction`, in any process.

        No more records are accepted; this producer may commit or abort it, too. `close` does not abort it.
        """

        async def prepare() -> PreparedTransaction:
            await self._drain_queue_or_raise()
            return await self._producer.prepare_transaction()

        return self._loop.run(prepare())

    async def _drain_queue_or_raise(self) -> None:
        """Wait for queued records. Raises if a record of the transaction did not get into a batch."""
        await self._drain_queue()
        if self._failure is not None:
            raise TransactionAbortableError(
                f"a record of the transaction was not sent: {self._failure.message}", self._failure.code
            )

    def abort_transaction(self) -> None:
        """Drop unsent records, wait for those in flight, and abort."""
        self._loop.run(self._abort())

    async def _abort(self) -> None:
        await self._drop_queued()
        await self._producer.abort_transaction()
        self._failure = None

    async def _abort_if_open(self) -> None:
        if self._producer.has_open_transaction:
            with suppress(ApiError, ClientStateError):
                await self._abort()

    # Queries

    def partitions_for(self, topic: TopicName) -> tuple[Partition, ...]:
        """Return the topic's partitions, with their leaders and replicas."""
        return self._loop.run(self._producer.partitions_for(topic))

    def metrics(self) -> dict[MetricName, float]:
        """Return all metrics under Kafka's names; see `rookery.client.metrics`."""
        return self._loop.call(self._producer.metrics)


def _dropped_error(topic: TopicName) -> ApiError:
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"topic {topic}: dropped before the record was sent")


def _as_api_error(topic: TopicName, error: Exception) -> ApiError:
    """Wrap an exception of the user's code or of the client's state: futures and callbacks get ApiErrors only."""
    failure: ApiError
    if isinstance(error, ClientStateError):
        failure = ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"topic {topic}: {error}")
    else:
        failure = SerializationError(f"topic {topic}: the record cannot be sent: {error!r}")
    failure.__cause__ = error
    return failure
