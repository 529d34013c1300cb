"""The producer: accepts records and returns their offsets when they are acknowledged.

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        await producer.send("topic", b"value", key=b"key")               # fire and forget
        metadata = await (await producer.send("topic", b"value"))       # wait for the acknowledgement

`send` appends a record to the batch of its partition and returns a future of its offset. It waits only for the topic's
metadata and for memory in the buffer, together up to `max.block.ms`. An error that it raises concerns this one record,
which was not queued. The result of a queued record is reported by its future and by `on_delivery`.

Parts: `accumulator` decides what is sent when (pure), `sender` exchanges requests with the brokers, `receipts` resolves
the futures, `transactions` holds the state of the transaction, and `routes` maps topics to partition queues. The
producer starts with its first call, in the event loop that is running then.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self

from rookery.base.clock import Clock
from rookery.base.errors import ApiError
from rookery.base.types import PartitionIndex, TimestampMs, TopicName
from rookery.client.errors import (
    ClientStateError,
    SerializationError,
)
from rookery.client.generics import K, V
from rookery.client.produce.batches import RECORD_OVERHEAD_BYTES, Batch, headers_size
from rookery.client.produce.columns import ColumnMethods
from rookery.client.produce.partitioners import PartitionerLike
from rookery.client.produce.receipts import RecordFuture
from rookery.client.produce.records import (
    TIMESTAMP_MS_MAX,
    DeliveryCallback,
    HeadersLike,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    Serializer,
    check_timestamp,
    normalize_headers,
)
from rookery.client.produce.routes import Route
from rookery.records.record import Headers


class Producer(ColumnMethods, Generic[K, V]):
    """A Kafka producer. `config` has Kafka's names and defaults. Safe to use from many tasks of one event loop."""

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
        super().__init__(
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            clock=clock,
            randomness=randomness,
        )

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until every record sent is acknowledged. If the block failed, drop them and abort the transaction."""
        try:
            if error is not None and self._transactions is not None and self._transactions.is_open:
                with suppress(ApiError, ClientStateError):
                    await self._abort_open_transaction()
        finally:
            await self.close(timeout_s=None if error is None else 0)

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
        """Queue a record; waits only for the topic's metadata and for memory in the buffer.

        If this call raises, the record was not queued. The future raises ApiError if a queued record was not written.
        Await it, or pass `on_delivery`, which is called once with the metadata or the error; or call `flush` and check
        the future afterwards.
        """
        if self._transactions is not None:
            self._transactions.check_may_send()
        pairs: Headers = normalize_headers(headers) if headers else ()
        if self._is_plain:
            future = self._append(topic, key, value, partition, pairs, timestamp_ms, on_delivery)
            if future is not None:
                return future
        record = ProducerRecord(topic, value, key, partition, pairs, timestamp_ms)
        return await self._queue_record(record, on_delivery)

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
        """Append a record to an open batch that has memory for it; return None if that is not possible.

        The hot path: only for plain bytes and a topic with a route.
        """
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

    async def _queue_record(
        self, record: ProducerRecord[Any, Any], on_delivery: DeliveryCallback | None
    ) -> RecordFuture:
        """Queue a record that `_append` did not take: it may have to be serialized, or to wait."""
        shell, transaction = self._start(), self._transaction_number()
        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        record = self._interceptors.on_send(record)
        topic = record.topic
        try:
            headers = normalize_headers(record.headers) if self._interceptors else record.headers
            timestamp_ms = None if record.timestamp_ms is None else check_timestamp(topic, record.timestamp_ms)
            key = self._serializers.key(topic, record.key)
            value = self._serializers.value(topic, record.value)
            route = self._routes.get(topic) or await self._find_route(topic, deadline_s)
            partition = record.partition
            if partition is None and self._choose_partition is not None:
                partition = self._choose_partition(topic, key, value, route.count, available=route.available)
            if partition is not None and not 0 <= partition < route.count:
                await shell.routes.require_partition(route, partition, deadline_s=deadline_s)
            size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + headers_size(headers)
            self._check_size(topic, size_bytes)
            placement = _Placement(route, key, partition, size_bytes, transaction)
            batch = await self._reserve(placement, deadline_s=deadline_s)
        except ApiError as error:
            self._metrics.errors(topic, 1)
            self._interceptors.on_acknowledgement(None, error)
            # Fail the transaction: otherwise a commit would succeed without the record. An error of the record itself
            # does not, so that the caller may skip the record.
            if self._transactions is not None and not isinstance(error, SerializationError):
                self._transactions.on_send_failed(error, transaction)
            raise
        future = self._new_future()
        taken_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        is_taken = batch.append(taken_ms, key, value, headers, size_bytes, future)
        assert is_taken, "_reserve has granted the memory"
        if on_delivery is not None:
            batch.call_back(on_delivery)
        shell.sender.wake()
        # Yield to other tasks once for each grant of memory: a caller that only sends would never do so otherwise.
        await asyncio.sleep(0)
        return future

    async def _reserve(self, placement: "_Placement", *, deadline_s: float) -> Batch[RecordFuture]:
        """Return an open batch that has memory for the record."""
        now_s, route = self._start().loop.time, placement.route

        def grant() -> Batch[RecordFuture] | None:
            self._check_may_queue(placement.transaction)
            route.used_s = now_s()
            if placement.partition is not None:
                queue = route.queues[placement.partition]
            elif placement.key is None or not self._hash_keys:
                queue = route.next_keyless()
            else:
                queue = route.queues[self._hashes[placement.key] % route.count]
            before = queue.open_batch
            batch = self._accumulator.grant(queue, placement.size_bytes, route.used_s)
            if batch is not None and batch is not before and self._transactions is not None:
                self._transactions.add(queue.partition)
            return batch

        route.waiting_count += 1
        try:
            return await self._memory_waiters.obtain(
                grant, topic=route.topic, size_bytes=placement.size_bytes, deadline_s=deadline_s
            )
        finally:
            route.waiting_count -= 1


class _Placement(NamedTuple):
    """The target of a record, its size, and the number of the transaction in which it was sent."""

    route: Route
    key: bytes | None
    partition: PartitionIndex | None
    size_bytes: int
    transaction: int
