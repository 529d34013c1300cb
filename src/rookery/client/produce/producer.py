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
        """Wait for what was sent, unless the block failed: then what waits is dropped, and a transaction aborted."""
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


class _Wanted(NamedTuple):
    """Where a record is to go, how large it is, and in which transaction it was sent."""

    route: Route
    key: bytes | None
    partition: PartitionIndex | None
    size_bytes: int
    transaction: int
