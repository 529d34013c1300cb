"""The producer's method for Arrow tables, `send_arrow` (see `client.arrow` for the columns).

Its batches go through the same accumulator as records: order, back-pressure, retries and transactions are the same.
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
from rookery.client.packed_batches import PackedBatch
from rookery.client.produce.base import ProducerBase
from rookery.client.produce.batches import Batch
from rookery.client.produce.receipts import PackedGroup, RecordFuture
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
        """Queue the rows of an Arrow table: the column value and the optional columns key, topic, partition, timestamp
        and headers.

        All rows go to `topic` if it is given; a column topic is only used without it. A table that was read from one
        topic can therefore be sent to another unchanged.

        Whole batches are encoded and compressed in one pass; serializers and interceptors do not see them. They have
        512 KiB unless `batch.size` is set, and at most a quarter of `buffer.memory`. Waits as `send` does, up to
        `max.block.ms` for each batch. The future's result is where all batches were written. A call that raises may
        have queued some of the rows; a transaction cannot be committed then.
        """
        shell = self._start()
        if self._transactions is not None:
            self._transactions.check_may_send()
        transaction = self._transaction_number()
        self._check_partitioner(batch)
        group = PackedGroup(shell.loop.create_future(), log_unretrieved=self._transactions is None)
        try:
            await self._queue_table(batch, topic, group, transaction)
        except BaseException as error:
            group.abandon()
            # Rows are missing: the transaction must not be committed without them. As in `send`, an error of the data
            # itself, raised before anything was queued, leaves the transaction as it was.
            is_lost = isinstance(error, ApiError) and not isinstance(error, SerializationError)
            if self._transactions is not None and (is_lost or group.has_batches):
                self._transactions.on_send_failed(_incomplete_error(error), transaction)
            raise
        finally:
            group.finish()
        return group.future

    async def _queue_table(
        self,
        batch: "pyarrow.RecordBatch | pyarrow.Table",
        topic: TopicName | None,
        group: PackedGroup,
        transaction: int,
    ) -> None:
        shell = self._start()
        if not self._has_columns:
            # Importing the libraries, and compiling the kernels the first time, would block the event loop.
            await asyncio.to_thread(arrow.load)
            self._has_columns = True
        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        routes = {name: await self._find_route(name, deadline_s) for name in sorted(arrow.topics_of(batch, topic))}
        batches = arrow.split_for_send(
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
            for partition, packed in batches:
                await self._add_packed(partition, packed, group, transaction)
                routes[partition.topic].used_s = shell.loop.time()
        finally:
            for route in routes.values():
                route.waiting_count -= 1

    def _check_partitioner(self, batch: "pyarrow.RecordBatch | pyarrow.Table") -> None:
        if self._choose_partition is not None and "partition" not in batch.schema.names:
            raise ClientStateError("send_arrow() supports only the default partitioner: give a column partition")

    async def _add_packed(
        self, partition: TopicPartition, packed: PackedBatch, group: PackedGroup, transaction: int
    ) -> None:
        shell, size_bytes = self._start(), len(packed.payload)
        self._check_size(partition.topic, size_bytes)

        def add() -> Batch[RecordFuture] | None:
            self._check_may_queue(transaction)
            return self._accumulator.add_packed(partition, packed, group, now_s=shell.loop.time())

        deadline_s = shell.loop.time() + self._settings.max_block_ms / 1000
        await self._memory_waiters.obtain(add, topic=partition.topic, size_bytes=size_bytes, deadline_s=deadline_s)
        group.expect()
        if self._transactions is not None:
            self._transactions.add(partition)
        shell.sender.wake()
        await asyncio.sleep(0)


def _incomplete_error(error: BaseException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    return ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"send_arrow() did not queue all rows: {error!r}")
