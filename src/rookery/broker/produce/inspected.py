"""The batches of a Produce request whose records have to be inspected before they are appended.

`broker.inspections` decides which batches are inspected in stage 1, and runs the others in order. A batch that has to
wait is copied out of the frame. Its result is missing in the list of results until `wait` inserts it.
"""

import asyncio
from functools import partial
from typing import Protocol

from rookery.base.errors import ErrorCode
from rookery.base.types import Buffer, TimestampMs, TopicPartition
from rookery.broker.context import RequestContext
from rookery.broker.inspections import InspectionBudget
from rookery.protocol.produce import ProducePartitionResult
from rookery.replication.replica import NOT_INSPECTED, Appended, Replica
from rookery.storage.producers import Verification


class Appender(Protocol):
    """The part of `append.Appends` that is used here: it appends batches and returns their results."""

    def append(
        self,
        replica: Replica,
        records: memoryview,
        now_ms: TimestampMs,
        verification: Verification | None,
        *,
        is_inspected: bool = False,
    ) -> Appended: ...

    def result(
        self,
        partition: TopicPartition,
        replica: Replica,
        appended: Appended,
        size: int,
        results: list[ProducePartitionResult],
        slot: int,
    ) -> ProducePartitionResult: ...

    def fail(self, partition: TopicPartition, code: ErrorCode) -> ProducePartitionResult: ...


class InspectedAppends:
    """The inspections of one request; made for its first batch that needs one."""

    __slots__ = ("_budget", "_context", "_delayed", "_inspections")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._inspections = context.services.inspections
        self._budget = InspectionBudget()
        # Per list of results (one per topic): the batches whose results are missing in it, by the index of the result.
        self._delayed: list[tuple[list[ProducePartitionResult], dict[int, asyncio.Task[ProducePartitionResult]]]] = []

    @property
    def must_wait(self) -> bool:
        return bool(self._delayed)

    def may_append(self, partition: TopicPartition) -> bool:
        """Return False if an earlier batch of this connection for `partition` waits, which must not be overtaken."""
        return self._inspections.is_free(self._queue_key(partition))

    def append_now(
        self,
        appender: Appender,
        replica: Replica,
        records: memoryview,
        now_ms: TimestampMs,
        verification: Verification | None,
    ) -> Appended | None:
        """Inspect and append a batch; None if the inspection takes too long for stage 1, and nothing was appended."""
        inspected = self._inspections.inspect_now(replica, records, self._budget, now_ms=now_ms)
        return None if inspected is None else _append(appender, replica, inspected, now_ms, verification)

    def delay(
        self,
        appender: Appender,
        partition: TopicPartition,
        records: memoryview,
        verification: Verification | None,
        results: list[ProducePartitionResult],
        slot: int,
    ) -> None:
        """Inspect and append a batch after the earlier ones of its queue. `wait` inserts its result into `results`."""
        replicas = self._context.services.replicas

        def result(appended: Appended) -> ProducePartitionResult:
            replica = replicas.find(partition)
            if isinstance(replica, ErrorCode):
                return appender.fail(partition, replica)
            return appender.result(partition, replica, appended, len(kept), results, slot)

        # The frame is reused when the handler returns.
        kept = memoryview(bytearray(records))
        append = partial(self._append_later, appender, partition, kept, verification)
        if not self._delayed or self._delayed[-1][0] is not results:
            self._delayed.append((results, {}))
        self._delayed[-1][1][slot] = self._inspections.delay(self._queue_key(partition), append, result)

    async def wait(self) -> None:
        """Wait for all batches that were delayed, and insert their results."""
        delayed, self._delayed = self._delayed, []
        await asyncio.gather(*(task for _, tasks in delayed for task in tasks.values()))
        for results, tasks in delayed:
            # `results` has only the results of the batches that were not delayed, in order: fill the gaps between them.
            others = iter(results.copy())
            results[:] = [
                tasks[slot].result() if slot in tasks else next(others) for slot in range(len(results) + len(tasks))
            ]

    def _queue_key(self, partition: TopicPartition) -> str:
        return f"{partition.topic}-{partition.partition} {self._context.connection.peer}"

    async def _append_later(
        self, appender: Appender, partition: TopicPartition, records: memoryview, verification: Verification | None
    ) -> Appended:
        """Inspect and append a batch when it is first in its queue. The partition may be deleted during each wait."""
        services = self._context.services
        replica = services.replicas.find(partition)
        if isinstance(replica, ErrorCode):
            return Appended(replica)
        # A batch that only waited for earlier ones of its queue may need no inspection.
        appended = appender.append(replica, records, services.clock.now_ms(), verification)
        if appended is not NOT_INSPECTED:
            return appended
        now_ms = services.clock.now_ms()
        inspected = await self._inspections.inspect(replica, records, services.slices, now_ms=now_ms)
        # A topic that was deleted and created again has another replica. `replica` has the log of the deleted topic.
        if services.replicas.find(partition) is not replica:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _append(appender, replica, inspected, services.clock.now_ms(), verification)


def _append(
    appender: Appender,
    replica: Replica,
    inspected: Buffer | Appended,
    now_ms: TimestampMs,
    verification: Verification | None,
) -> Appended:
    """Append the batch that an inspection returned, or return the outcome if it rejected the batch."""
    if isinstance(inspected, Appended):
        return inspected
    return appender.append(replica, memoryview(inspected), now_ms, verification, is_inspected=True)
