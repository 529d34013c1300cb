"""The base of the producer: construction, flush, close and transactions; everything except accepting records.

`producer` adds `send`, and `columns` adds `send_arrow`. The first call creates the shell (sender, connections) in the
event loop that is running then.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from math import inf
from random import Random
from typing import Any, NamedTuple

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import (
    ClientStateError,
    RecordTooLargeError,
    TransactionAbortableError,
    suppress_abort_errors,
)
from rookery.client.metadata import Partition
from rookery.client.metrics.names import MetricName
from rookery.client.prepared import PreparedTransaction
from rookery.client.produce.accumulator import Accumulator
from rookery.client.produce.assembly import make_limits, make_metrics, make_split_settings, make_transactions
from rookery.client.produce.batches import Batch
from rookery.client.produce.memory_waiters import MemoryWaiters
from rookery.client.produce.partitioners import KeyHashes, PartitionerLike, RoundRobinPartitioner, partition_function
from rookery.client.produce.receipts import Interceptors, Receipts, RecordFuture
from rookery.client.produce.records import (
    ProducerInterceptor,
    Serializer,
)
from rookery.client.produce.routes import Route, Routes
from rookery.client.produce.sender import Sender
from rookery.client.produce.serialization import Serializers
from rookery.client.produce.transaction_calls import Transactions
from rookery.client.produce.transactions import GroupLike, OffsetLike
from rookery.client.settings.producer import ProducerSettings
from rookery.records.batch import HEADER_SIZE


class Shell(NamedTuple):
    """The parts of a producer that need a running event loop."""

    loop: asyncio.AbstractEventLoop
    routes: Routes
    sender: Sender
    receipts: Receipts


class ProducerBase:
    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_serializer: Serializer[Any] | None,
        value_serializer: Serializer[Any] | None,
        partitioner: PartitionerLike | None,
        interceptors: Sequence[ProducerInterceptor],
        clock: Clock | None,
        randomness: Random | None,
    ) -> None:
        settings = ProducerSettings.parse(config)
        self._settings = settings
        clock = clock or SystemClock()
        self._now_ms, self._clock_s = clock.now_ms, clock.monotonic
        self._randomness = randomness or Random()
        self._serializers = Serializers(key_serializer, value_serializer)
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
        self._shell: Shell | None = None
        self._new_future: Callable[[], RecordFuture]
        self._memory_waiters = MemoryWaiters(settings, self._metrics, on_change=self._update_urgency)
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._is_closed = False
        self._close_limit: asyncio.Timeout | None = None
        self._has_closed = asyncio.Event()
        # There is no serializer, interceptor or partitioner: records can be appended to their batches unchanged.
        self._is_plain = False

    def _start(self) -> "Shell":
        if self._is_closed:
            raise _closed_error()
        if self._shell is None:
            self._shell = self._make_shell()
        return self._shell

    def _make_shell(self) -> "Shell":
        loop = asyncio.get_running_loop()
        self._new_future = partial(asyncio.Future, loop=loop)
        receipts = Receipts(self._interceptors, log_unretrieved=self._transactions is None)
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
        self._is_plain = not (self._serializers or self._interceptors or self._choose_partition)
        return Shell(loop, routes, sender, receipts)

    def _transaction_number(self) -> int:
        return 0 if self._transactions is None else self._transactions.number

    def _check_may_queue(self, transaction: int) -> None:
        """Raise if the producer was closed, or `transaction` has ended, while a record waited.

        Without this check, the record would be written as part of the next transaction.
        """
        if self._is_closed:
            raise _closed_error()
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

    # Waiting

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far was acknowledged or has failed."""
        if self._shell is None or self._accumulator.unsettled_count == 0:
            return
        started_s = self._shell.loop.time()
        flush = (self._accumulator.last_ordinal, self._shell.loop.create_future())
        self._flushes.append(flush)
        self._update_urgency()
        try:
            async with asyncio.timeout(timeout_s):
                await flush[1]
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not everything was acknowledged in {timeout_s:g} s") from None
        finally:
            self._flushes.remove(flush)
            self._update_urgency()
            self._metrics.flush_time(self._shell.loop.time() - started_s)

    def _update_urgency(self) -> None:
        """Batches linger unless a flush or a close waits for them, or a sender waits for memory."""
        self._accumulator.is_urgent = bool(self._flushes or self._memory_waiters or self._is_closed)
        if self._shell is not None:
            self._on_progress()
            self._shell.sender.wake()

    def _on_progress(self) -> None:
        """After batches were settled: end the flushes that waited for them, and offer the memory to waiting senders."""
        for ordinal, flushed in self._flushes:
            if not flushed.done() and self._accumulator.is_settled_up_to(ordinal):
                flushed.set_result(None)
        self._memory_waiters.offer(self._accumulator.free_bytes)
        self._metrics.buffer(self._settings.buffer_memory, self._accumulator.free_bytes)

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait up to `timeout_s` until every record sent is acknowledged; then drop the others, whose futures fail.

        With 0 they are dropped immediately. An open transaction is aborted if there is time; a prepared one is not.
        """
        if self._is_closed:
            await self._await_close(timeout_s)
            return
        self._is_plain = False
        self._is_closed = True
        try:
            if self._shell is not None:
                self._shell.routes.close()
                self._memory_waiters.close()
                self._update_urgency()
                if timeout_s != 0:
                    await self._finish(timeout_s)
        finally:
            # Also if this call is cancelled: a closed producer must not continue to send.
            try:
                await self._stop()
            finally:
                self._has_closed.set()

    async def _await_close(self, timeout_s: float | None) -> None:
        """Wait for the call that closes the producer, and shorten its time-out if `timeout_s` is shorter."""
        limit = self._close_limit
        if limit is not None and timeout_s is not None:
            at_s = asyncio.get_running_loop().time() + timeout_s
            limit.reschedule(min(at_s, limit.when() or inf))
        await self._has_closed.wait()

    async def _stop(self) -> None:
        try:
            if self._shell is not None:
                for batch in self._accumulator.drop_all():
                    self._shell.receipts.fail(batch, _dropped_error(batch))
                self._update_urgency()
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
        """Take over the transactional id: fence the older producer that uses it, and abort its open transaction."""
        self._start()
        with self._timed(self._metrics.txn_init_time):
            await self._transactional().init()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run a block as a transaction: commit it at the end, abort it if the block or the commit fails.

        Raises the error of the block or of the commit; if the abort shows that the producer is unusable, its
        ProducerFencedError or FatalProducerError. After a commit that timed out, `commit_transaction` continues it.
        """
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            with suppress_abort_errors():
                await self.abort_transaction()
            raise

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
        """Wait until every record sent is written, then commit. Raises the transaction's first error, if it has one."""
        with self._timed(self._metrics.txn_commit_time):
            await self._transactional().end(commit=True, settle=self.flush)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until every record sent is written, and leave the transaction open.

        `Admin.end_transaction` ends it, in any process; this producer may commit or abort it, too. No more records are
        accepted, and `close` leaves the transaction open. Raises the transaction's first error, if it has one.
        """
        return await self._transactional().prepare(settle=self.flush)

    async def abort_transaction(self) -> None:
        """Drop the records that were not sent, wait for the results of the others, and abort."""
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
    def _timed(self, record: Callable[[float], None]) -> Iterator[None]:
        started_s = self._clock_s()
        try:
            yield
        finally:
            record(self._clock_s() - started_s)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ClientStateError("this producer has no transactions: set transactional.id")
        return self._transactions

    # Metadata and metrics

    async def partitions_for(self, topic: TopicName) -> tuple[Partition, ...]:
        """Return the topic's partitions, with their leaders and replicas."""
        shell = self._start()
        await shell.routes.find(topic, deadline_s=shell.loop.time() + self._settings.max_block_ms / 1000)
        return self._cluster.metadata.topics[topic].partitions

    def metrics(self) -> dict[MetricName, float]:
        """Return the metrics by Kafka's names; see `rookery.client.metrics`."""
        return self._metrics.metrics()


def _closed_error() -> ClientStateError:
    return ClientStateError("the producer is closed")


def _dropped_error(batch: Batch[RecordFuture]) -> ApiError:
    if batch.is_on_wire or batch.may_be_written:
        text = "the producer was closed before the response arrived: the record may have been written"
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"partition {batch.partition}: {text}")
    text = "the producer was closed before the record was sent"
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"partition {batch.partition}: {text}")
