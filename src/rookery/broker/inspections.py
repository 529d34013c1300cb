"""Inspects the batches that have to be opened before they are appended: when, how much at a time, and in which order.

Most batches are not inspected: their header is enough for what the topic's configuration requires. For the others,
`records.inspection` defines the work as a sequence of steps. Stage 1 of a request may do a bounded amount of it
(`InspectionBudget`). The rest runs later, one step at a time between other callbacks of the event loop; compression and
decompression run in a worker thread. At most `INSPECTIONS_AT_ONCE` batches are open in the whole broker, so that the
memory for decompressed records does not grow with the number of requests.

A batch that waits keeps its place in a queue, one per partition and connection: later batches of the queue are appended
after it, even if they need no inspection. If a batch fails with a retriable error because the schemas cannot be read,
the batches after it fail with the same error. If they were appended, the retry of the first one would be out of order
for an idempotent producer. Other partitions of the request, and other connections, do not wait for the queue.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rookery.base.bounds import INSPECTED_BYTES_ON_LOOP, INSPECTED_RECORDS_ON_LOOP, INSPECTIONS_AT_ONCE
from rookery.base.errors import InvalidBatchError
from rookery.base.slices import Slices
from rookery.base.types import Buffer, TimestampMs
from rookery.broker.schema_checks import UNREADABLE, SchemaChecks, SchemaJudge
from rookery.broker.work_queues import WorkQueues
from rookery.records.batch import read_header
from rookery.records.inspection import Inspection, finish, inspect
from rookery.replication.replica import Appended, Replica

ResultT = TypeVar("ResultT")


class InspectionBudget:
    """How much stage 1 of one request may still inspect: records, and bytes that they may expand to."""

    __slots__ = ("bytes_left", "records_left")

    def __init__(self) -> None:
        self.records_left = INSPECTED_RECORDS_ON_LOOP
        self.bytes_left = INSPECTED_BYTES_ON_LOOP


class Inspections:
    """The inspections of all connections of a broker. `queue` is the key of a batch's queue."""

    def __init__(self, schemas: SchemaChecks) -> None:
        self._schemas = schemas
        self._queues = WorkQueues()
        # The queues in which a batch failed because the schemas could not be read, until they are empty.
        self._failed: set[str] = set()
        self._open = asyncio.Semaphore(INSPECTIONS_AT_ONCE)

    @property
    def is_idle(self) -> bool:
        return self._queues.is_idle

    def is_free(self, queue: str) -> bool:
        return self._queues.is_free(queue)

    def inspect_now(
        self, replica: Replica, batch: Buffer, budget: InspectionBudget, *, now_ms: TimestampMs
    ) -> Buffer | Appended | None:
        """Return the batch to append, or the outcome if it is rejected; None if it must be inspected later.

        That is the case if it exceeds the `budget`, or has a schema id that this node has not read yet.
        """
        judge = self._judge(replica, batch)
        inspected = _inspect_small(replica, batch, judge, now_ms, budget)
        return None if judge is not None and judge.found_unknown else inspected

    def delay(
        self, queue: str, append: Callable[[], Awaitable[Appended]], result: Callable[[Appended], ResultT]
    ) -> "asyncio.Task[ResultT]":
        """Append after the earlier batches of the queue, and call `result` with the outcome in the same turn.

        In a later turn the leader epoch could have changed: the acknowledgement would wait for records of another
        epoch.
        """
        task = self._queues.run(queue, lambda: self._append_next(queue, append, result))
        task.add_done_callback(lambda _: self._on_done(queue))
        return task

    async def _append_next(
        self, queue: str, append: Callable[[], Awaitable[Appended]], result: Callable[[Appended], ResultT]
    ) -> ResultT:
        appended = UNREADABLE if queue in self._failed else await append()
        if appended is UNREADABLE:
            self._failed.add(queue)
        return result(appended)

    def _on_done(self, queue: str) -> None:
        if self._queues.is_free(queue):
            self._failed.discard(queue)

    async def inspect(
        self, replica: Replica, batch: Buffer, slices: Slices, *, now_ms: TimestampMs
    ) -> Buffer | Appended:
        """Return the batch to append, or the outcome if it is rejected, however long that takes."""
        judge = self._judge(replica, batch)
        inspected = await self._inspect(replica, batch, slices, judge, now_ms)
        if judge is None or not judge.found_unknown:
            return inspected
        is_read = await self._schemas.catch_up()
        judge = self._judge(replica, batch)
        inspected = await self._inspect(replica, batch, slices, judge, now_ms)
        return UNREADABLE if judge is not None and judge.found_unknown and not is_read else inspected

    async def _inspect(
        self, replica: Replica, batch: Buffer, slices: Slices, judge: SchemaJudge | None, now_ms: TimestampMs
    ) -> Buffer | Appended:
        async with self._open:
            inspected = _inspect_small(replica, batch, judge, now_ms, InspectionBudget())
            # Before the semaphore is released: otherwise thousands of waiting batches would all be inspected in one
            # turn of the event loop.
            await slices.pause()
            if inspected is not None:
                return inspected
            try:
                inspection = _begin(replica, batch, judge, now_ms, replica.policy.decompressed_size_max)
                return await _run(inspection, slices)
            except InvalidBatchError as error:
                return replica.reject(error)

    def _judge(self, replica: Replica, batch: Buffer) -> SchemaJudge | None:
        """Return the check of a batch's schema ids; None if it needs none.

        A duplicate is not checked: it is acknowledged with its old offset even if its schema was deleted since.
        """
        rules = replica.log.config.schema_rules
        if rules is None or replica.is_duplicate(read_header(batch)):
            return None
        return self._schemas.judge(replica.state.topic_partition.topic, rules)


def _inspect_small(
    replica: Replica, batch: Buffer, judge: SchemaJudge | None, now_ms: TimestampMs, budget: InspectionBudget
) -> Buffer | Appended | None:
    """Inspect a batch in one call; None if it exceeds the budget."""
    record_count = read_header(batch).record_count
    if record_count > budget.records_left or not budget.bytes_left:
        return None
    inspection = _begin(replica, batch, judge, now_ms, budget.bytes_left)
    open_records = next(inspection)
    assert open_records is not None
    try:
        payload = open_records()
    except InvalidBatchError:
        # Either the records exceed the budget, or they are invalid: the later inspection finds out. The rest of the
        # budget is dropped, so that a request with thousands of such batches does not decompress each of them here.
        budget.bytes_left = 0
        return None
    budget.bytes_left -= len(payload)
    budget.records_left -= record_count
    try:
        return finish(inspection, payload)
    except InvalidBatchError as error:
        return replica.reject(error)


def _begin(
    replica: Replica, batch: Buffer, judge: SchemaJudge | None, now_ms: TimestampMs, size_max: int
) -> Inspection:
    partition = replica.state.topic_partition
    return inspect(
        batch,
        replica.policy,
        partition=f"{partition.topic}-{partition.partition}",
        now_ms=now_ms,
        size_max=size_max,
        check=judge,
    )


async def _run(inspection: Inspection, slices: Slices) -> Buffer:
    loop = asyncio.get_running_loop()
    result: bytes | None = None
    try:
        while True:
            work = inspection.send(result)
            if work is None:
                result = None
                await slices.pause()
            else:
                result = await loop.run_in_executor(None, work)
    except StopIteration as end:
        batch: Buffer = end.value
        return batch
