"""`Producer` without `await`: the same methods as `rookery.client.Producer`; `send` returns a future at once.

Theory of operation. The thread that sends makes the record bytes: interceptors and serializers run there, and what they
refuse is raised there. Then it puts the record into `_queue`, under a lock. The first one of a bulk wakes the loop;
what comes until the loop runs goes with it. The loop takes the whole bulk and deals it out to pumps, one for each topic
that has something to send: so records of a topic stay in order, and one that waits for its topic's metadata holds up no
other topic. A pump appends records to their batches while there is room, and waits as `Producer.send` does where there
is none. The records' futures lie in the batches themselves, so nothing is passed on when a batch is acknowledged.

Back-pressure: what was handed over and has no place in the buffer yet is counted in `_handed_bytes`. While that is more
than `HANDED_BYTES_MAX`, `send` waits in the calling thread, at most `max.block.ms`.

A record that was handed over and cannot be sent fails alone: its future says why, and `on_delivery` is called, once. In
a transaction it also keeps the transaction from being committed, as if it had failed on its way. What `send` itself
raises is told already, and concerns no transaction.

A forked child must not wait for the lock, which another thread of its parent may have held: `is_lost` comes first.
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
from rookery.client.sync.delivery import Delivery, Waiting
from rookery.client.sync.handoff import Handed, HandedProducer, make_handed
from rookery.client.sync.loop import shared_loop
from rookery.telemetry.library_logs import LibraryLogger

if TYPE_CHECKING:
    import pyarrow


_log = LibraryLogger(__name__)

# What may lie between the threads and the buffer: some milliseconds' worth, so that both sides work in bulk.
HANDED_BYTES_MAX = 1024 * 1024
# For the objects around a record's bytes.
_OBJECTS_BYTES = 256
# Keys and values of these need no serializer.
_AS_THEY_ARE = frozenset((bytes, type(None)))


class Producer(Generic[K, V]):
    """`config` has Kafka's names and defaults. Safe to use from many threads."""

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

        def make() -> HandedProducer:
            return HandedProducer(
                config, partitioner=partitioner, interceptors=interceptors, clock=clock, randomness=randomness
            )

        self._producer = self._loop.call(make)
        settings = self._producer._settings
        self._max_block_ms = settings.max_block_ms
        self._handed_bytes_max = min(HANDED_BYTES_MAX, settings.buffer_memory)
        self._lock = Lock()
        self._memory_waiters = Condition(self._lock)
        self._waiting = Waiting()
        self._queue: list[Handed] = []
        self._handed_bytes = 0
        self._waiting_count = 0
        # No more records; and: nothing is left to close.
        self._is_closed = False
        self._is_ended = False
        self._backlogs: dict[TopicName, deque[Handed | asyncio.Future[None]]] = {}
        self._pumps: dict[TopicName, asyncio.Task[None]] = {}
        # The first record of the transaction that did not get into a batch.
        self._failure: ApiError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what was sent, unless the block failed: then what waits is dropped, and a transaction aborted."""
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
        """Queue a record; waits only for room in the buffer.

        Interceptors and serializers run here, so the key, the value and the headers may be used again at once. What
        this call raises (SerializationError, BufferExhaustedError) concerns a record that was not queued; it does not
        touch a transaction. The future raises ApiError if a queued record was not written, and then a transaction
        cannot be committed. `on_delivery` is called once for a queued record, on the clients' own thread, with the
        metadata or the error.
        """
        if self._is_closed or self._loop.is_lost:
            raise self._unusable()
        pairs = normalize_headers(headers) if headers else ()
        if (
            self._has_hooks
            or value.__class__ not in _AS_THEY_ARE
            or key.__class__ not in _AS_THEY_ARE
            or topic.__class__ is not str
            or timestamp_ms is not None
        ):
            record = ProducerRecord(topic, value, key, partition, pairs, timestamp_ms)
            topic, made_value, made_key, partition, pairs, timestamp_ms = self._make_bytes(record)
        else:
            made_key, made_value = key, value  # type: ignore[assignment]  # as their classes say
        size_bytes = _OBJECTS_BYTES
        if made_value is not None:
            size_bytes += len(made_value)
        if made_key is not None:
            size_bytes += len(made_key)
        if pairs:
            size_bytes += headers_size(pairs)
        delivery = Delivery(self._waiting)
        handed = make_handed(
            (topic, made_key, made_value, partition, pairs, timestamp_ms, on_delivery, delivery, size_bytes)
        )
        with self._lock:
            # A callback on the loop's own thread would wait for itself.
            if self._handed_bytes > self._handed_bytes_max and not self._loop.is_current:
                self._wait_for_room(topic)
            if self._is_closed:
                raise self._unusable()
            # First the loop is woken, which needs the lock to go on: an interrupt leaves no queue that nobody deals.
            if not self._queue:
                self._loop.call_soon(self._deal)
            self._queue.append(handed)
            self._handed_bytes += size_bytes
        return delivery

    def _make_bytes(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[bytes, bytes]:
        """The record as it is to be stored. Raises SerializationError."""
        record = self._interceptors.on_send(record)
        topic = record.topic
        try:
            if not isinstance(topic, str):
                raise SerializationError(f"a topic is a name, not {topic!r}")
            if record.timestamp_ms is not None:
                check_timestamp(topic, record.timestamp_ms)
            key, value = self._serializers.key(topic, record.key), self._serializers.value(topic, record.value)
            return record._replace(key=key, value=value, headers=normalize_headers(record.headers))
        except ApiError as error:
            self._loop.call_soon(partial(self._producer.count_error, str(topic)))
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _unusable(self) -> ClientStateError:
        self._loop.check(waits=False)
        return ClientStateError("the producer is closed")

    def _wait_for_room(self, topic: TopicName) -> None:
        """With the lock, which is let go while we wait."""
        self._waiting_count += 1
        try:
            has_room = self._memory_waiters.wait_for(
                lambda: self._is_closed or self._handed_bytes <= self._handed_bytes_max,
                min(self._max_block_ms / 1000, TIMEOUT_MAX),
            )
        finally:
            self._waiting_count -= 1
        if not has_room:
            raise BufferExhaustedError(
                f"topic {topic}: no free memory in buffer.memory within max.block.ms ({self._max_block_ms})"
            )

    # Sending, on the loop.

    def _deal(self) -> None:
        """Give each pump its share of a bulk."""
        with self._lock:
            bulk, self._queue = self._queue, []
        backlogs = self._backlogs
        for record in bulk:
            backlog = backlogs.get(record.topic)
            if backlog is None:
                backlog = backlogs[record.topic] = deque()
                self._pumps[record.topic] = asyncio.get_running_loop().create_task(self._pump(record.topic, backlog))
            backlog.append(record)

    async def _pump(self, topic: TopicName, backlog: "deque[Handed | asyncio.Future[None]]") -> None:
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
                    self._let_in(sent_bytes)
                    sent_bytes = record.size_bytes
                    await self._send_patiently(record)
        finally:
            # Others may have taken our place already.
            if self._backlogs.get(topic) is backlog:
                del self._backlogs[topic], self._pumps[topic]
            self._let_in(sent_bytes)

    def _send_now(self, record: Handed) -> bool:
        """True if nothing is left to do for this record."""
        try:
            return self._producer.send_now(record)
        except Exception as error:
            self._refuse(record, error)
            return True

    async def _send_patiently(self, record: Handed) -> None:
        try:
            await self._producer.send_patiently(record)
        except asyncio.CancelledError:
            if not self._producer.is_in_batch:
                self._refuse(record, _dropped(record.topic))
            raise
        except ApiError as error:
            self._refuse(record, error, is_acknowledged=True)
        except Exception as error:
            self._refuse(record, error)

    def _let_in(self, size_bytes: int) -> None:
        """So much has found its place; others may hand over."""
        with self._lock:
            self._handed_bytes -= size_bytes
            if self._waiting_count and self._handed_bytes <= self._handed_bytes_max:
                self._memory_waiters.notify_all()

    def _refuse(self, record: Handed, error: Exception, *, is_acknowledged: bool = False) -> None:
        """It did not get into a batch; `is_acknowledged` says that the interceptors know."""
        failure = error if isinstance(error, ApiError) else _as_api_error(record.topic, error)
        if self._failure is None:
            self._failure = failure
        if not is_acknowledged:
            self._producer.tell_interceptors(failure)
        record.delivery.set_exception(failure)
        if record.on_delivery is not None:
            try:
                record.on_delivery(None, failure)
            except Exception:
                _log.exception("on_delivery failed", topic=record.topic)

    async def _hand_over(self) -> None:
        """Until all that was sent so far is in batches, or has failed."""
        self._deal()
        markers: list[asyncio.Future[None]] = []
        for backlog in self._backlogs.values():
            markers.append(asyncio.get_running_loop().create_future())
            backlog.append(markers[-1])
        if markers:
            await asyncio.wait(markers)

    async def _drop_handed(self) -> None:
        """Fail what has not got into batches."""
        self._deal()
        # Out of the way first: what comes from now on is for other pumps, and one that never began cleans up nothing.
        backlogs, self._backlogs = self._backlogs, {}
        pumps, self._pumps = list(self._pumps.values()), {}
        for backlog in backlogs.values():
            while backlog:
                record = backlog.popleft()
                if not isinstance(record, asyncio.Future):
                    self._refuse(record, _dropped(record.topic))
                    self._let_in(record.size_bytes)
                elif not record.done():
                    record.set_result(None)
        for pump in pumps:
            pump.cancel()
        if pumps:
            await asyncio.wait(pumps)

    def send_arrow(
        self, batch: "pyarrow.RecordBatch | pyarrow.Table", topic: TopicName | None = None
    ) -> Future[list[BatchMetadata]]:
        """Queue the rows of an Arrow table: columns value and, where they are there, key, topic, partition, timestamp
        and headers.

        Whole batches are encoded and compressed in one pass. Waits as `send` does; the future has where they landed.
        """

        async def send() -> tuple[asyncio.Future[list[BatchMetadata]]]:
            await self._hand_over()
            # In a tuple: a future that is returned by itself would be waited for.
            return (await self._producer.send_arrow(batch, topic),)

        async def delivered(future: asyncio.Future[list[BatchMetadata]]) -> list[BatchMetadata]:
            return await future

        (future,) = self._loop.run(send())
        return self._loop.submit(delivered(future))

    # Waiting

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far was acknowledged or has failed."""
        self._loop.run(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._hand_over()
                await self._producer.flush()
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not everything was acknowledged in {timeout_s:g} s") from None

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for what was sent, at most that long; then drop what is left, which fails. 0: drop it now.

        A transaction that is open is aborted; not one that was prepared.
        """
        if self._is_ended:
            return
        self._loop.check(waits=True)
        with self._lock:
            self._is_closed = True
            self._memory_waiters.notify_all()
        self._loop.run(self._close(timeout_s))
        # Not if it was interrupted: then it can be called again.
        self._is_ended = True

    async def _close(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        if timeout_s != 0:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._hand_over()
            except TimeoutError:
                pass
        await self._drop_handed()
        await self._producer.close(None if timeout_s is None else max(0, timeout_s - (loop.time() - started_s)))

    # Transactions

    def init_transactions(self) -> None:
        """Take over the transactional id; what an older producer left open is aborted, and it is fenced."""
        self._loop.run(self._producer.init_transactions())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at the end of the block; aborted if the block or the commit fails.

        Raises what failed; or, if the abort finds that the producer cannot go on, its ProducerFencedError or
        FatalProducerError. After a commit that ran out of time, `commit_transaction` goes on with it.
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
            await self._hand_over()
            self._producer.begin_transaction()
            self._failure = None

        self._loop.run(begin())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetLike | Offset], group_metadata: GroupLike
    ) -> None:
        """Commit a consumer group's offsets together with the records."""
        self._loop.run(self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Wait for everything that was sent, then commit; raises the transaction's first error, if it has one."""

        async def commit() -> None:
            await self._hand_over_all()
            await self._producer.commit_transaction()

        self._loop.run(commit())

    def prepare_transaction(self) -> PreparedTransaction:
        """Wait for everything that was sent, and leave the transaction open: `Admin.end_transaction` ends it, anywhere.

        No more records are taken; this producer may commit or abort it, too. `close` leaves it as it is.
        """

        async def prepare() -> PreparedTransaction:
            await self._hand_over_all()
            return await self._producer.prepare_transaction()

        return self._loop.run(prepare())

    async def _hand_over_all(self) -> None:
        """Raises if a record of the transaction did not get into a batch."""
        await self._hand_over()
        if self._failure is not None:
            raise TransactionAbortableError(
                f"a record of the transaction was not sent: {self._failure.message}", self._failure.code
            )

    def abort_transaction(self) -> None:
        """Drop what was not sent, wait for the rest, and abort."""
        self._loop.run(self._abort())

    async def _abort(self) -> None:
        await self._drop_handed()
        await self._producer.abort_transaction()
        self._failure = None

    async def _abort_if_open(self) -> None:
        if self._producer.has_open_transaction:
            with suppress(ApiError, ClientStateError):
                await self._abort()

    # Looking

    def partitions_for(self, topic: TopicName) -> tuple[Partition, ...]:
        """The topic's partitions, with their leaders and replicas."""
        return self._loop.run(self._producer.partitions_for(topic))

    def metrics(self) -> dict[MetricName, float]:
        """Kafka's names; see `rookery.client.metrics`."""
        return self._loop.call(self._producer.metrics)


def _dropped(topic: TopicName) -> ApiError:
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"topic {topic}: dropped before the record was sent")


def _as_api_error(topic: TopicName, error: Exception) -> ApiError:
    """What futures and callbacks are promised, for what users' own code or the client's state brought up."""
    failure: ApiError
    if isinstance(error, ClientStateError):
        failure = ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"topic {topic}: {error}")
    else:
        failure = SerializationError(f"topic {topic}: the record cannot be sent: {error!r}")
    failure.__cause__ = error
    return failure
