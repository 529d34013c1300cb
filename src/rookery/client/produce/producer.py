"""The producer: records in, acknowledged offsets out.

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        await producer.send("topic", b"value", key=b"key")               # fire and forget
        metadata = await (await producer.send("topic", b"value"))       # wait for the acknowledgement

`send` puts a record into the batch of its partition and returns a future of where it landed. It waits only for a
topic's metadata and for room in the buffer, both together for `max.block.ms`. What it raises concerns this one record,
which was then not queued; what happens to a queued record is told by its future and by `on_delivery`.

Parts: `accumulator` decides (pure), `sender` talks to the brokers, `receipts` tells the senders, `transactions` knows
what a transaction may do, and `routes` where a topic's records go. The producer starts with its first call, in the
event loop that runs then.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client import arrow
from rookery.client.cluster import Cluster
from rookery.client.errors import (
    ClientStateError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
)
from rookery.client.generics import K, V
from rookery.client.metadata import Partition
from rookery.client.metrics.names import MetricName
from rookery.client.produce.accumulator import Accumulator
from rookery.client.produce.batches import RECORD_OVERHEAD_BYTES, Batch, SealedBatch, headers_size
from rookery.client.produce.making import make_limits, make_metrics, make_split_settings, make_transactions
from rookery.client.produce.partitioners import KeyHashes, PartitionerLike, RoundRobinPartitioner, partition_function
from rookery.client.produce.receipts import Interceptors, Receipts, RecordFuture, SealedGroup
from rookery.client.produce.records import (
    TIMESTAMP_MS_MAX,
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
from rookery.client.produce.room import Room
from rookery.client.produce.routes import Route, Routes
from rookery.client.produce.sender import Sender
from rookery.client.produce.serializing import Serializing
from rookery.client.produce.transaction_calls import Transactions
from rookery.client.produce.transactions import GroupLike, OffsetLike
from rookery.client.settings.producer import ProducerSettings
from rookery.records.batch import HEADER_SIZE
from rookery.records.record import Headers

if TYPE_CHECKING:
    import pyarrow


class Producer(Generic[K, V]):
    """`config` has Kafka's names and defaults. Safe to use from many tasks of one event loop."""

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
        settings = ProducerSettings.parse(config)
        self._settings = settings
        clock = clock or SystemClock()
        self._now_ms, self._clock_s = clock.now_ms, clock.monotonic
        self._randomness = randomness or Random()
        self._serializing = Serializing(key_serializer, value_serializer)
        self._interceptors = Interceptors(interceptors)
        if partitioner is None and settings.partitioner_class is not None:
            partitioner = RoundRobinPartitioner()
        self._choose_partition = None if partitioner is None else partition_function(partitioner)
        self._metrics = make_metrics(settings, self._clock_s)
        self._cluster = Cluster(settings.common, observer=self._metrics.connections, randomness=self._randomness)
        self._accumulator: Accumulator[RecordFuture] = Accumulator(make_limits(settings))
        self._transactions = make_transactions(self._cluster, settings, self._accumulator)
        self._split_settings = make_split_settings(settings, is_batch_size_given="batch.size" in config)
        self._hashes = KeyHashes()
        self._hash_keys = not settings.partitioner_ignore_keys
        self._routes: dict[TopicName, Route] = {}
        self._shell: _Shell | None = None
        self._new_future: Callable[[], RecordFuture]
        self._room = Room(settings, self._metrics, on_change=self._hurry)
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._is_closed = False
        self._close_limit: asyncio.Timeout | None = None
        self._has_closed = asyncio.Event()
        # Records go into their batches as they are: no serializer, interceptor or partitioner has a say.
        self._is_plain = False
        self._has_columns = False

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what was sent, unless the block failed: then what waits is dropped, and a transaction aborted."""
        try:
            if error is not None and self._transactions is not None and self._transactions.is_open:
                with suppress(ApiError, ClientStateError):
                    await self._abort_open_transaction()
        finally:
            await self.close(timeout_s=None if error is None else 0)

    # Sending

    async def send(
        self,
        topic: TopicName,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: PartitionIndex | None = None,
        headers: HeadersLike = (),
        timestamp_ms: TimestampMs | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record; waits only for the topic's metadata and for room in the buffer.

        What this call raises concerns a record that was not queued. The future raises ApiError if a queued record was
        not written. Await it, or give `on_delivery`, which is called once with the metadata or the error; or `flush`
        and look at it later.
        """
        if self._transactions is not None:
            self._transactions.check_may_send()
        pairs: Headers = normalize_headers(headers) if headers else ()
        if self._is_plain:
            future = self._append(topic, key, value, partition, pairs, timestamp_ms, on_delivery)
            if future is not None:
                return future
        record = ProducerRecord(topic, value, key, partition, pairs, timestamp_ms)
        return await self._send_patiently(record, on_delivery)

    def _append(
        self,
        topic: TopicName,
        key: Any,
        value: Any,
        partition: PartitionIndex | None,
        headers: Headers,
        timestamp_ms: TimestampMs | None,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture | None:
        """The hot path: a record of a topic that we know, into an open batch with room. None for every other record."""
        route = self._routes.get(topic)
        if route is None:
            return None
        size_bytes = RECORD_OVERHEAD_BYTES
        if value is not None:
            if value.__class__ is not bytes:
                return None
            size_bytes += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                return None
            size_bytes += len(key)
        if headers:
            size_bytes += headers_size(headers)
        if partition is None:
            if key is None or not self._hash_keys:
                queue = route.keyless
            else:
                queue = route.queues[self._hashes[key] % route.count]
        elif 0 <= partition < route.count:
            queue = route.queues[partition]
        else:
            return None
        batch = queue.open_batch
        if batch is None:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
            return None
        future = self._new_future()
        if not batch.append(timestamp_ms, key, value, headers, size_bytes, future):
            return None
        if on_delivery is not None:
            batch.call_back(on_delivery)
        return future

    async def _send_patiently(
        self, record: ProducerRecord[Any, Any], on_delivery: DeliveryCallback | None
    ) -> RecordFuture:
        """Every other record: it may have to be made bytes, or to wait."""
        shell, transaction = self._start(), self._transaction_number()
        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        record = self._interceptors.on_send(record)
        topic = record.topic
        try:
            headers = normalize_headers(record.headers) if self._interceptors else record.headers
            timestamp_ms = None if record.timestamp_ms is None else check_timestamp(topic, record.timestamp_ms)
            key = self._serializing.key(topic, record.key)
            value = self._serializing.value(topic, record.value)
            route = self._routes.get(topic) or await self._find_route(topic, deadline_s)
            partition = record.partition
            if partition is None and self._choose_partition is not None:
                partition = self._choose_partition(topic, key, value, route.count, available=route.available)
            if partition is not None and not 0 <= partition < route.count:
                await shell.routes.widen(route, partition, deadline_s=deadline_s)
            size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + headers_size(headers)
            self._check_size(topic, size_bytes)
            wanted = _Wanted(route, key, partition, size_bytes, transaction)
            batch = await self._make_room(wanted, deadline_s=deadline_s)
        except ApiError as error:
            self._metrics.errors(topic, 1)
            self._interceptors.on_acknowledgement(None, error)
            if self._transactions is not None and not isinstance(error, SerializationError):
                self._transactions.on_send_failed(error, transaction)
            raise
        future = self._new_future()
        taken_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        is_taken = batch.append(taken_ms, key, value, headers, size_bytes, future)
        assert is_taken, "there is room now"
        if on_delivery is not None:
            batch.call_back(on_delivery)
        shell.sender.wake()
        # Who sends without ever waiting lets others run here: once for each grant of memory.
        await asyncio.sleep(0)
        return future

    def _transaction_number(self) -> int:
        return 0 if self._transactions is None else self._transactions.number

    def _check_may_queue(self, transaction: int) -> None:
        """After a wait: the producer may have been closed, and the transaction may have ended."""
        if self._is_closed:
            raise _closed()
        if self._transactions is not None:
            self._transactions.check_may_still_send(transaction)

    async def _find_route(self, topic: TopicName, deadline_s: float) -> Route:
        shell = self._start()
        started_s = shell.loop.time()
        try:
            return await shell.routes.find(topic, deadline_s=deadline_s)
        finally:
            self._metrics.metadata_waited(shell.loop.time() - started_s)

    def _check_size(self, topic: TopicName, size_bytes: int) -> None:
        for name, limit in (
            ("max.request.size", self._settings.max_request_size),
            ("buffer.memory", self._settings.buffer_memory),
        ):
            if HEADER_SIZE + size_bytes > limit:
                raise RecordTooLargeError(f"topic {topic}: the record has {size_bytes} bytes, {name} is {limit}")

    async def _make_room(self, wanted: "_Wanted", *, deadline_s: float) -> Batch[RecordFuture]:
        """An open batch that has room for the record."""
        now_s, route = self._start().loop.time, wanted.route

        def grant() -> Batch[RecordFuture] | None:
            self._check_may_queue(wanted.transaction)
            route.used_s = now_s()
            if wanted.partition is not None:
                queue = route.queues[wanted.partition]
            elif wanted.key is None or not self._hash_keys:
                queue = route.next_keyless()
            else:
                queue = route.queues[self._hashes[wanted.key] % route.count]
            before = queue.open_batch
            batch = self._accumulator.grant(queue, wanted.size_bytes, route.used_s)
            if batch is not None and batch is not before and self._transactions is not None:
                self._transactions.add(queue.partition)
            return batch

        route.waiting_count += 1
        try:
            return await self._room.obtain(
                grant, topic=route.topic, size_bytes=wanted.size_bytes, deadline_s=deadline_s
            )
        finally:
            route.waiting_count -= 1

    async def send_arrow(
        self, batch: "pyarrow.RecordBatch | pyarrow.Table", topic: TopicName | None = None
    ) -> asyncio.Future[list[BatchMetadata]]:
        """Queue the rows of an Arrow table: the column value and, where they are there, key, topic, partition,
        timestamp and headers.

        All rows go to `topic`, if it is given: a column topic counts only without it. So what was read from one topic
        can be sent to another as it is.

        Whole batches are encoded and compressed in one pass; serializers and interceptors do not see them. They have
        512 KiB unless `batch.size` was given, and at most a quarter of `buffer.memory`. Waits as `send` does,
        `max.block.ms` for each batch. The future has where all of them landed. A call that raises may have queued some
        of the rows; a transaction cannot be committed then.
        """
        shell = self._start()
        if self._transactions is not None:
            self._transactions.check_may_send()
        transaction = self._transaction_number()
        self._check_may_spread(batch)
        group = SealedGroup(shell.loop.create_future(), must_be_seen=self._transactions is None)
        try:
            await self._queue_table(batch, topic, group, transaction)
        except BaseException as error:
            group.abandon()
            is_missed = isinstance(error, ApiError) and not isinstance(error, SerializationError)
            if self._transactions is not None and (is_missed or group.has_batches):
                self._transactions.on_send_failed(_half_sent(error), transaction)
            raise
        finally:
            group.finish()
        return group.future

    async def _queue_table(
        self,
        batch: "pyarrow.RecordBatch | pyarrow.Table",
        topic: TopicName | None,
        group: SealedGroup,
        transaction: int,
    ) -> None:
        shell = self._start()
        if not self._has_columns:
            # The libraries, and on a new machine the compiler: not on the event loop.
            await asyncio.to_thread(arrow.load)
            self._has_columns = True
        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        routes = {name: await self._find_route(name, deadline_s) for name in sorted(arrow.topics_of(batch, topic))}
        packed = arrow.split_for_send(
            batch,
            topic=topic,
            partition_counts={name: route.count for name, route in routes.items()},
            next_partition=lambda name: routes[name].spread(),
            now_ms=self._now_ms(),
            settings=self._split_settings,
        )
        for route in routes.values():
            route.waiting_count += 1
        try:
            for partition, sealed in packed:
                await self._add_sealed(partition, SealedBatch(*sealed), group, transaction)
                routes[partition.topic].used_s = shell.loop.time()
        finally:
            for route in routes.values():
                route.waiting_count -= 1

    def _check_may_spread(self, batch: "pyarrow.RecordBatch | pyarrow.Table") -> None:
        if self._choose_partition is not None and "partition" not in batch.schema.names:
            raise ClientStateError("send_arrow() asks no partitioner but the default one: give a column partition")

    async def _add_sealed(
        self, partition: TopicPartition, sealed: SealedBatch, group: SealedGroup, transaction: int
    ) -> None:
        shell, size_bytes = self._start(), len(sealed.payload)
        self._check_size(partition.topic, size_bytes)

        def add() -> Batch[RecordFuture] | None:
            self._check_may_queue(transaction)
            return self._accumulator.add_sealed(partition, sealed, group, now_s=shell.loop.time())

        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        await self._room.obtain(add, topic=partition.topic, size_bytes=size_bytes, deadline_s=deadline_s)
        group.expect()
        if self._transactions is not None:
            self._transactions.add(partition)
        shell.sender.wake()
        await asyncio.sleep(0)

    # Waiting

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far was acknowledged or has failed."""
        if self._shell is None or self._accumulator.unsettled_count == 0:
            return
        started_s = self._shell.loop.time()
        flush = (self._accumulator.last_ordinal, self._shell.loop.create_future())
        self._flushes.append(flush)
        self._hurry()
        try:
            async with asyncio.timeout(timeout_s):
                await flush[1]
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not everything was acknowledged in {timeout_s:g} s") from None
        finally:
            self._flushes.remove(flush)
            self._hurry()
            self._metrics.flush_time(self._shell.loop.time() - started_s)

    def _hurry(self) -> None:
        """Batches linger unless somebody waits for them, or for their room."""
        self._accumulator.is_urgent = bool(self._flushes or self._room or self._is_closed)
        if self._shell is not None:
            self._on_progress()
            self._shell.sender.wake()

    def _on_progress(self) -> None:
        """Batches were settled: flushes may be over, and the first who waits for room may try again."""
        for ordinal, flushed in self._flushes:
            if not flushed.done() and self._accumulator.is_settled_up_to(ordinal):
                flushed.set_result(None)
        self._room.offer(self._accumulator.free_bytes)
        self._metrics.buffer(self._settings.buffer_memory, self._accumulator.free_bytes)

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait for what was sent, at most that long; then drop what is left, which fails. 0: drop it now.

        A transaction that is open is aborted, unless there is no time.
        """
        if self._is_closed:
            await self._await_close(timeout_s)
            return
        self._is_plain = False
        self._is_closed = True
        try:
            if self._shell is not None:
                self._shell.routes.close()
                self._room.close()
                self._hurry()
                if timeout_s != 0:
                    await self._finish(timeout_s)
        finally:
            # Also if we are cancelled: nothing may go on behind a producer that was closed.
            try:
                await self._stop()
            finally:
                self._has_closed.set()

    async def _await_close(self, timeout_s: float | None) -> None:
        """Another call closes the producer; this one may have less time."""
        limit = self._close_limit
        if limit is not None and timeout_s is not None:
            at_s = asyncio.get_running_loop().time() + timeout_s
            limit.reschedule(min(at_s, limit.when() or inf))
        await self._has_closed.wait()

    async def _stop(self) -> None:
        try:
            if self._shell is not None:
                for batch in self._accumulator.drop_all():
                    self._shell.receipts.refuse(batch, _dropped(batch))
                self._hurry()
                await self._shell.sender.stop()
        finally:
            await self._cluster.close()

    async def _finish(self, timeout_s: float | None) -> None:
        with suppress(ApiError, ClientStateError, TimeoutError):
            async with asyncio.timeout(timeout_s) as limit:
                self._close_limit = limit
                try:
                    await self._settle_all()
                finally:
                    self._close_limit = None

    async def _settle_all(self) -> None:
        await self.flush()
        if self._transactions is not None and self._transactions.is_open:
            await self._abort_open_transaction()

    # Transactions

    async def init_transactions(self) -> None:
        """Take over the transactional id; what an older producer left open is aborted, and it is fenced."""
        self._start()
        with self._timed(self._metrics.txn_init_time):
            await self._transactional().init()

    def begin_transaction(self) -> None:
        with self._timed(self._metrics.txn_begin_time):
            self._transactional().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetLike | Offset], group_metadata: GroupLike
    ) -> None:
        """Commit a consumer group's offsets together with the records."""
        with self._timed(self._metrics.txn_send_offsets_time):
            await self._transactional().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Wait for everything that was sent, then commit; raises the transaction's first error, if it has one."""
        with self._timed(self._metrics.txn_commit_time):
            await self._transactional().end(commit=True, settle=self.flush)

    async def abort_transaction(self) -> None:
        """Drop what was not sent, wait for the rest, and abort."""
        with self._timed(self._metrics.txn_abort_time):
            await self._abort_open_transaction()

    async def _abort_open_transaction(self) -> None:
        async def settle() -> None:
            if self._shell is not None:
                aborted = TransactionAbortableError("the transaction was aborted before the record was sent")
                self._shell.sender.drop_waiting(aborted, with_numbers=False)
            await self.flush()

        await self._transactional().end(commit=False, settle=settle)

    @contextmanager
    def _timed(self, tell: Callable[[float], None]) -> Iterator[None]:
        started_s = self._clock_s()
        try:
            yield
        finally:
            tell(self._clock_s() - started_s)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ClientStateError("this producer has no transactions: set transactional.id")
        return self._transactions

    # Looking

    async def partitions_for(self, topic: TopicName) -> tuple[Partition, ...]:
        """The topic's partitions, with their leaders and replicas."""
        shell = self._start()
        await shell.routes.find(topic, deadline_s=shell.loop.time() + self._settings.max_block_ms / 1000)
        return self._cluster.metadata.topics[topic].partitions

    def metrics(self) -> dict[MetricName, float]:
        """Kafka's names; see `rookery.client.metrics`."""
        return self._metrics.metrics()

    def _start(self) -> "_Shell":
        if self._is_closed:
            raise _closed()
        if self._shell is None:
            self._shell = self._make_shell()
        return self._shell

    def _make_shell(self) -> "_Shell":
        loop = asyncio.get_running_loop()
        self._new_future = partial(asyncio.Future, loop=loop)
        receipts = Receipts(self._interceptors, must_be_seen=self._transactions is None)
        routes = Routes(self._cluster, self._accumulator, self._settings, choose=self._randomness.randrange)
        sender = Sender(
            self._cluster,
            self._accumulator,
            receipts=receipts,
            settings=self._settings,
            metrics=self._metrics,
            transactions=self._transactions,
            on_progress=self._on_progress,
        )
        self._cluster.on_refresh += (lambda _: sender.wake(), lambda _: self._metrics.metadata_refreshed())
        self._routes = routes.known
        self._is_plain = not (self._serializing or self._interceptors or self._choose_partition)
        return _Shell(loop, routes, sender, receipts)


class _Wanted(NamedTuple):
    """Where a record is to go, how large it is, and in which transaction it was sent."""

    route: Route
    key: bytes | None
    partition: PartitionIndex | None
    size_bytes: int
    transaction: int


class _Shell(NamedTuple):
    """What exists once an event loop runs."""

    loop: asyncio.AbstractEventLoop
    routes: Routes
    sender: Sender
    receipts: Receipts


def _closed() -> ClientStateError:
    return ClientStateError("the producer is closed")


def _half_sent(error: BaseException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"send_arrow() was given up: {error!r}")


def _dropped(batch: Batch[RecordFuture]) -> ApiError:
    if batch.is_on_wire or batch.fate_is_unknown:
        text = "the producer was closed before the answer came: the record may have been written"
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"partition {batch.partition}: {text}")
    text = "the producer was closed before the record was sent"
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"partition {batch.partition}: {text}")
