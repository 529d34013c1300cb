"""The producer: records in, acknowledged offsets out.

`send` puts a record in its partition's queue and returns a future of where it landed; a sender task takes what is
ready, groups it by leader and sends it. With `acks=all` the producer is idempotent (KIP-98): batches carry sequence
numbers, so that a retry after a lost answer cannot write twice. Pure parts: `partitioner` and `accumulator`.

Ends of a batch: acknowledged; refused (the error is final); or given up when `delivery_timeout_s` has passed. After
the last two a sequence number may be missing, so the producer takes a new identity before it goes on.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_OFFSET, NodeId, Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client.accumulator import NO_IDENTITY, Accumulator, PendingBatch, ProducerIdentity, Sequences
from rookery.client.cluster import Cluster, backoff_s
from rookery.client.partitioner import Partitioner
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import Codec
from rookery.records.record import Headers, Record, build_batch

DEFAULT_BATCH_SIZE_BYTES = 256 * 1024
DEFAULT_BUFFER_SIZE_BYTES = 32 * 1024 * 1024
DEFAULT_DELIVERY_TIMEOUT_S = 120.0
# How long `send` waits for an unknown topic: long enough for a broker that is creating it.
_METADATA_TIMEOUT_S = 10.0


class Acks(IntEnum):
    """Who must have a batch before it counts as written."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Landed(NamedTuple):
    """Where a record was written; offset -1 where the broker does not tell (acks=0)."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs


Token: TypeAlias = "asyncio.Future[Landed]"
Batch: TypeAlias = "PendingBatch[asyncio.Future[Landed]]"


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: Acks = Acks.ALL,
        codec: Codec = Codec.NONE,
        batch_size_bytes: int = DEFAULT_BATCH_SIZE_BYTES,
        buffer_size_bytes: int = DEFAULT_BUFFER_SIZE_BYTES,
        delivery_timeout_s: float = DEFAULT_DELIVERY_TIMEOUT_S,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._batch_size_bytes = batch_size_bytes
        self._buffer_size_bytes = buffer_size_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._clock = clock or SystemClock()
        self._partitioner = Partitioner((randomness or random.Random()).randrange)
        self._accumulator: Accumulator[Token] = Accumulator(batch_size_bytes)
        self._sequences = Sequences()
        self._identity_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._unyielded_bytes = 0
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what was sent, unless the block failed: then waiting records are dropped."""
        await (self.close() if error is None else self.abort())

    async def send(
        self,
        topic: TopicName,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: PartitionIndex | None = None,
        headers: Headers = (),
        timestamp_ms: TimestampMs | None = None,
    ) -> "asyncio.Future[Landed]":
        """Queue a record; waits only for the topic's metadata and for room in the buffer.

        The future raises ApiError if the record was not written. Await it, or `flush` and look at it later.
        """
        assert not self._is_closed, "the producer is closed"
        count = await self._partition_count(topic)
        if partition is None:
            partition = self._partitioner.partition(topic, key, count)
        elif partition >= count:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has only {count} partitions")
        await self._await_room()
        created_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        landed: Token = asyncio.get_running_loop().create_future()
        record = Record(NO_OFFSET, created_ms, key, value, headers)
        self._unyielded_bytes += self._accumulator.add(TopicPartition(topic, partition), record, landed)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._run())
        self._wake.set()
        return landed

    async def flush(self) -> None:
        """Wait until every record sent so far was acknowledged or has failed."""
        async with self._progress:
            await self._progress.wait_for(lambda: self._accumulator.is_empty)

    async def close(self) -> None:
        await self.flush()
        await self.abort()

    async def abort(self) -> None:
        """Stop at once; what was not acknowledged may or may not be written, and its futures are cancelled."""
        self._is_closed = True
        for token in self._accumulator.drop_waiting():
            token.cancel()
        tasks = [*self._deliveries, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _partition_count(self, topic: TopicName) -> int:
        known = self._cluster.metadata.topics.get(topic)
        if known is not None and known.partitions:
            return len(known.partitions)

        async def ask() -> int:
            found = (await self._cluster.refresh([topic], auto_create=True)).topics[topic]
            if found.error != ErrorCode.NONE:
                raise ApiError(found.error, f"topic {topic}")
            return len(found.partitions)

        return await self._cluster.retry(ask, timeout_s=min(_METADATA_TIMEOUT_S, self._cluster.timeout_s))

    async def _await_room(self) -> None:
        if self._unyielded_bytes >= self._batch_size_bytes:
            # A caller that never waits for anything else must let the sender run, too.
            self._unyielded_bytes = 0
            await asyncio.sleep(0)
        if self._accumulator.size_bytes >= self._buffer_size_bytes:
            async with self._progress:
                await self._progress.wait_for(lambda: self._accumulator.size_bytes < self._buffer_size_bytes)

    async def _run(self) -> None:
        """The sender: start the delivery of whatever is ready, whenever something may be."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            # Let everyone who is ready to send do so first: their records then share a batch.
            await asyncio.sleep(0)
            while batches := self._accumulator.take_ready():
                for batch in batches:
                    self._partitioner.on_batch_sent(*batch.partition)
                delivery = asyncio.get_running_loop().create_task(self._deliver(batches))
                self._deliveries.add(delivery)
                delivery.add_done_callback(self._deliveries.discard)

    async def _deliver(self, batches: list[Batch]) -> None:
        """Bring batches to their ends; neither a bug nor `abort` may leave their senders waiting."""
        try:
            await self._attempt_until_done(batches)
        except Exception as error:
            for batch in batches:
                if not all(token.done() for token in batch.tokens):
                    await self._end(batch, error)
            raise
        finally:
            for token in (token for batch in batches for token in batch.tokens):
                token.cancel()

    async def _attempt_until_done(self, batches: list[Batch]) -> None:
        deadline = asyncio.get_running_loop().time() + self._delivery_timeout_s
        remaining, attempt = batches, 0
        while remaining:
            failures = await self._attempt(remaining)
            late = asyncio.get_running_loop().time() + backoff_s(attempt) >= deadline
            final = [(batch, error) for batch, error in failures if late or not error.code.retriable]
            for batch, error in final:
                await self._end(batch, error)
            remaining = [batch for batch, error in failures if not late and error.code.retriable]
            if remaining:
                await asyncio.sleep(backoff_s(attempt))
                self._cluster.forget_leaders()
            attempt += 1

    async def _attempt(self, batches: list[Batch]) -> list[tuple[Batch, ApiError]]:
        """One try for each batch; what failed and why."""
        if self._acks == Acks.ALL:
            try:
                await self._ensure_identity(batches)
            except ApiError as error:
                return [(batch, error) for batch in batches]
        by_leader, failures = await self._group_by_leader(batches)
        results = await asyncio.gather(*(self._produce(node, group) for node, group in by_leader.items()))
        return failures + [failure for some in results for failure in some]

    async def _ensure_identity(self, batches: list[Batch]) -> None:
        """Number the batches that have no number yet, under the identity we have or a new one."""
        async with self._identity_lock:
            if self._sequences.identity == NO_IDENTITY:
                request = Message(
                    transactional_id=None,
                    transaction_timeout_ms=60_000,
                    producer_id=NO_IDENTITY.producer_id,
                    producer_epoch=NO_IDENTITY.producer_epoch,
                    enable2_pc=False,
                    keep_prepared_txn=False,
                )
                response = await self._cluster.call(ApiKey.INIT_PRODUCER_ID, request)
                if response.error_code != ErrorCode.NONE:
                    raise ApiError(ErrorCode(response.error_code), "no producer id")
                self._sequences.reset(ProducerIdentity(response.producer_id, response.producer_epoch))
            self._sequences.stamp(batch for batch in batches if batch.identity == NO_IDENTITY)

    async def _group_by_leader(
        self, batches: list[Batch]
    ) -> tuple[dict[NodeId, list[Batch]], list[tuple[Batch, ApiError]]]:
        """A partition without a leader must not hold up the others."""
        groups: dict[NodeId, list[Batch]] = {}
        failures: list[tuple[Batch, ApiError]] = []
        for batch in batches:
            try:
                leader = await self._cluster.leader(batch.partition)
            except ApiError as error:
                failures.append((batch, error))
            else:
                groups.setdefault(leader, []).append(batch)
        return groups, failures

    async def _produce(self, node: NodeId, batches: list[Batch]) -> list[tuple[Batch, ApiError]]:
        request = Message(
            transactional_id=None,
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=self._topic_data(batches),
        )
        try:
            if self._acks == Acks.NONE:
                await (await self._cluster.connection(node)).send(ApiKey.PRODUCE, request)
                answers = {batch.partition: _UNACKNOWLEDGED for batch in batches}
            else:
                response = await self._cluster.call(ApiKey.PRODUCE, request, node=node)
                answers = self._answers(response)
        except ApiError as error:
            return [(batch, error) for batch in batches]
        return [failure for batch in batches if (failure := await self._settle(batch, answers)) is not None]

    def _topic_data(self, batches: Sequence[Batch]) -> list[Message]:
        topics: dict[TopicName, list[Message]] = {}
        for batch in batches:
            row = Message(index=batch.partition.partition, records=self._encode(batch))
            topics.setdefault(batch.partition.topic, []).append(row)
        return [
            Message(name=name, topic_id=self._cluster.metadata.topic_id(name), partition_data=rows)
            for name, rows in topics.items()
        ]

    def _encode(self, batch: Batch) -> bytearray:
        return build_batch(
            [record._replace(offset=index) for index, record in enumerate(batch.records)],
            codec=self._codec,
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.producer_epoch,
            base_sequence=batch.base_sequence,
        )

    def _answers(self, response: Message) -> dict[TopicPartition, Message]:
        return {
            TopicPartition(name, row.index): row
            for topic in response.responses
            if (name := topic.get("name") or self._cluster.metadata.topic_name(topic.get("topic_id"))) is not None
            for row in topic.partition_responses
        }

    async def _settle(self, batch: Batch, answers: dict[TopicPartition, Message]) -> tuple[Batch, ApiError] | None:
        answer = answers.get(batch.partition)
        if answer is None:
            return batch, ApiError(
                ErrorCode.NETWORK_EXCEPTION, f"the broker's answer says nothing of {batch.partition}"
            )
        code = ErrorCode(answer.error_code)
        # A duplicate was written by an earlier attempt whose answer was lost.
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            await self._end(batch, answer)
            return None
        details = [row.batch_index_error_message for row in answer.get("record_errors") or ()]
        reasons = [text for text in (answer.get("error_message"), *details) if text]
        return batch, ApiError(code, "; ".join([f"partition {batch.partition}", *reasons]))

    async def _end(self, batch: Batch, result: Message | Exception) -> None:
        """Tell the senders, and let the partition go on."""
        if isinstance(result, Exception):
            if batch.identity == self._sequences.identity:
                self._sequences.reset(NO_IDENTITY)
            _fail(batch.tokens, result)
        else:
            self._resolve(batch, result)
        self._accumulator.complete(batch)
        self._wake.set()
        async with self._progress:
            self._progress.notify_all()

    def _resolve(self, batch: Batch, answer: Message) -> None:
        appended_ms = answer.get("log_append_time_ms")
        for index, (record, token) in enumerate(zip(batch.records, batch.tokens, strict=True)):
            offset = answer.base_offset + index if answer.base_offset >= 0 else NO_OFFSET
            timestamp_ms = appended_ms if appended_ms is not None and appended_ms >= 0 else record.timestamp_ms
            if not token.done():
                token.set_result(Landed(*batch.partition, offset, timestamp_ms))


def _fail(tokens: Sequence[Token], error: Exception) -> None:
    """One failure nobody looks at is logged by asyncio, not thousands: the first record speaks for its batch."""
    for index, token in enumerate(tokens):
        if not token.done():
            token.set_exception(error)
            if index:
                token.exception()


_UNACKNOWLEDGED = Message(error_code=ErrorCode.NONE, base_offset=NO_OFFSET)
