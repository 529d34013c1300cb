"""The producer's Arrow face: whole tables as batches (see `client.arrow` for the columns).

They go through the same accumulator as records, so that order, back-pressure, retries and transactions are the same.
"""

import asyncio
from typing import TYPE_CHECKING

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicName, TopicPartition
from rookery.client import arrow
from rookery.client.errors import (
    ClientStateError,
    SerializationError,
)
from rookery.client.packed_batches import SealedBatch
from rookery.client.produce.base import ProducerBase
from rookery.client.produce.batches import Batch
from rookery.client.produce.receipts import RecordFuture, SealedGroup
from rookery.client.produce.records import (
    BatchMetadata,
)

if TYPE_CHECKING:
    import pyarrow


class ColumnMethods(ProducerBase):
    _has_columns = False

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
                await self._add_sealed(partition, sealed, group, transaction)
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


def _half_sent(error: BaseException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"send_arrow() was given up: {error!r}")
