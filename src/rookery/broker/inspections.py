"""Batches that have to be opened before they are appended: which at once, which later, and in what order.

Most batches never come here: their header tells all that a topic's configuration asks for. `records.inspection` says
what is done with the others, one step after the other. A request may have some of that done as it comes in: `Effort`.
What is more is done between other callbacks of the event loop, a step at a time, and outside of Python in a worker
thread; one batch at a time for the whole broker, so that the memory for decompressed records does not grow with the
number of requests.

A batch that waits keeps its place: later ones of its line, which is for one partition and one connection, go behind
it, even those that need no look. If one has to be tried again because schemas cannot be read, those behind it have to
be, too: a producer that numbers its batches would be told that they are out of order. Other partitions of the same
request, and other connections, do not wait for the line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rookery.base.bounds import INSPECTED_BYTES_ON_LOOP, INSPECTED_RECORDS_ON_LOOP, INSPECTIONS_AT_ONCE
from rookery.base.errors import InvalidBatchError
from rookery.base.slices import Slices
from rookery.base.types import Buffer, TimestampMs
from rookery.broker.schema_checks import UNREADABLE, SchemaChecks, SchemaJudge
from rookery.broker.turns import Turns
from rookery.records.batch import read_header
from rookery.records.inspection import Inspection, finish, inspect
from rookery.replication.replica import Appended, Replica

ResultT = TypeVar("ResultT")


class Effort:
    """What may still be done for one request as it comes in: records to read, and bytes that they may expand to."""

    __slots__ = ("bytes_left", "records_left")

    def __init__(self) -> None:
        self.records_left = INSPECTED_RECORDS_ON_LOOP
        self.bytes_left = INSPECTED_BYTES_ON_LOOP


class Inspections:
    """One for all connections of a broker."""

    def __init__(self, schemas: SchemaChecks) -> None:
        self._schemas = schemas
        self._turns = Turns()
        # The lines in which one could not be judged, as long as a batch waits in them.
        self._held_up: set[str] = set()
        self._open = asyncio.Semaphore(INSPECTIONS_AT_ONCE)

    @property
    def is_idle(self) -> bool:
        return self._turns.is_idle

    def is_free(self, line: str) -> bool:
        return self._turns.is_free(line)

    def inspect_now(
        self, replica: Replica, batch: Buffer, effort: Effort, *, now_ms: TimestampMs
    ) -> Buffer | Appended | None:
        """What to append, or why it may not be; None if that is more than the effort that is left, or has to wait."""
        judge = self._judge(replica, batch)
        inspected = _inspect_small(replica, batch, judge, now_ms, effort)
        return None if judge is not None and judge.found_unknown else inspected

    def delay(
        self, line: str, append: Callable[[], Awaitable[Appended]], result: Callable[[Appended], ResultT]
    ) -> "asyncio.Task[ResultT]":
        """Append when all before in the line are done; `result` is called with the outcome, in the same turn."""
        task = self._turns.take(line, lambda: self._append(line, append, result))
        task.add_done_callback(lambda _: self._leave(line))
        return task

    async def _append(
        self, line: str, append: Callable[[], Awaitable[Appended]], result: Callable[[Appended], ResultT]
    ) -> ResultT:
        appended = UNREADABLE if line in self._held_up else await append()
        if appended is UNREADABLE:
            self._held_up.add(line)
        return result(appended)

    def _leave(self, line: str) -> None:
        if self._turns.is_free(line):
            self._held_up.discard(line)

    async def inspect(
        self, replica: Replica, batch: Buffer, slices: Slices, *, now_ms: TimestampMs
    ) -> Buffer | Appended:
        """What to append, or why it may not be; however long that takes."""
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
            inspected = _inspect_small(replica, batch, judge, now_ms, Effort())
            # Before the next may begin: thousands that wait would all have their turn in this one of the loop.
            await slices.pause()
            if inspected is not None:
                return inspected
            try:
                inspection = _begin(replica, batch, judge, now_ms, replica.policy.decompressed_size_max)
                return await _run(inspection, slices)
            except InvalidBatchError as error:
                return replica.reject(error)

    def _judge(self, replica: Replica, batch: Buffer) -> SchemaJudge | None:
        """None where no schemas are checked: a batch that is in the log already keeps its answer."""
        rules = replica.log.config.schema_rules
        if rules is None or replica.is_duplicate(read_header(batch)):
            return None
        return self._schemas.judge(replica.state.topic_partition.topic, rules)


def _inspect_small(
    replica: Replica, batch: Buffer, judge: SchemaJudge | None, now_ms: TimestampMs, effort: Effort
) -> Buffer | Appended | None:
    """Do it at once; None if it is more than the effort that is left."""
    record_count = read_header(batch).record_count
    if record_count > effort.records_left or not effort.bytes_left:
        return None
    inspection = _begin(replica, batch, judge, now_ms, effort.bytes_left)
    open_records = next(inspection)
    assert open_records is not None
    try:
        payload = open_records()
    except InvalidBatchError:
        # Too large for now, or no good; the second look tells. A request with thousands of such batches must not try it
        # with each of them.
        effort.bytes_left = 0
        return None
    effort.bytes_left -= len(payload)
    effort.records_left -= record_count
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
