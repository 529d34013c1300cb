"""The consumer's Arrow face: polls and whole ranges as `pyarrow.RecordBatch`es (see `client.arrow` for the columns).

`poll_arrow` takes everything that is buffered, moves positions as `poll` does, and may be mixed with it. `read_arrow`
and `iterate_arrow` read a range of a topic and leave assignment and positions alone. Deserializers are not applied:
columns hold bytes. The libraries are loaded by the first call, in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client import arrow
from rookery.client.consume.decoder import PartitionBuffer, end_of, epoch_before
from rookery.client.consume.poll import PollMethods
from rookery.client.consume.positions import EARLIEST, LATEST
from rookery.client.consume.ranges import FetchedRange, OffsetRange, RangeReader
from rookery.client.consume.records import BEGINNING, END, Position, Timestamp
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import CorruptRecordError

if TYPE_CHECKING:
    import pyarrow as pa

# Decoding less takes no longer than asking a thread to do it.
_WORTH_A_THREAD_BYTES = 256 * 1024

# One position for all partitions, or one for each.
Positions: TypeAlias = Position | Mapping[PartitionIndex, Position]


class ColumnMethods(PollMethods):
    _has_columns = False

    async def poll_arrow(self, timeout_s: float = 1.0) -> "pa.RecordBatch":
        """All records that are there; waits for the first of them up to the time-out, and then gives no rows."""
        await self._load_columns()
        with self._turn():
            deadline_s = asyncio.get_running_loop().time() + timeout_s
            while True:
                await self._prepare()
                batch, has_moved = await self._decode(self._fetcher.take_runs())
                self._fetcher.advance_if_drained()
                if batch.num_rows or not (has_moved or await self._wait(deadline_s)):
                    return batch

    async def read_arrow(
        self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END
    ) -> "pa.RecordBatch":
        """The records of a topic between two positions, as far as they exist now; in order within a partition.

        A mapping names the partitions to read. One RecordBatch has room for about 2 GB of keys or values: read more
        with `iterate_arrow`.
        """
        await self._load_columns()
        import pyarrow as pa

        batches = [batch async for batch in self.iterate_arrow(topic, start, end)]
        if not batches:
            return arrow.decode_fetched([]).records
        return pa.concat_batches(batches) if len(batches) > 1 else batches[0]

    async def iterate_arrow(
        self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END
    ) -> "AsyncIterator[pa.RecordBatch]":
        """As `read_arrow`, a fetch at a time: in the order of offsets within a partition."""
        self._check_open()
        _check_positions(start, end)
        await self._load_columns()
        ranges = await self._resolve(topic, start, end)
        async for pieces in RangeReader(self._cluster, self._settings).read(ranges):
            # In a thread, while the next round is on its way.
            batches, failure = await asyncio.to_thread(self._decode_pieces, pieces)
            for batch in batches:
                yield batch
            if failure is not None:
                raise failure

    async def _load_columns(self) -> None:
        if not self._has_columns:
            await asyncio.to_thread(arrow.load)
            self._has_columns = True

    async def _decode(self, buffers: Sequence[PartitionBuffer]) -> "tuple[pa.RecordBatch, bool]":
        """The records, and whether any position moved. Nothing of what the user has moved away from meanwhile."""
        settings = self._settings
        runs = [
            arrow.FetchedRun(
                buffer.tp,
                buffer.run.data,
                buffer.position.offset,
                aborted=buffer.run.aborted,
                read_committed=settings.read_committed,
                check_crcs=settings.check_crcs,
            )
            for buffer in buffers
        ]
        if sum(len(run.data) for run in runs) < _WORTH_A_THREAD_BYTES:
            decoded = arrow.decode_fetched(runs)
        else:
            decoded = await self._decode_and_fetch_on(buffers, runs)
        # No step of this loop can fail: else positions would have moved, and nobody got the records.
        gone = []
        has_moved = False
        for buffer in buffers:
            before, offset = buffer.position, decoded.positions[buffer.tp]
            if self._subscription.find(buffer.tp, buffer.generation) is None:
                gone.append(buffer.tp)
            elif buffer.tp in decoded.failures:
                self._fetcher.note_run_failed(buffer, decoded.failures[buffer.tp])
            else:
                has_moved = has_moved or offset > before.offset
                position = _position_in(buffer, offset)
                self._fetcher.note_run_taken(buffer, position=position, count=offset - before.offset)
        return _without(decoded.records, gone), has_moved

    async def _decode_and_fetch_on(
        self, buffers: Sequence[PartitionBuffer], runs: Sequence[arrow.FetchedRun]
    ) -> arrow.DecodedRuns:
        """Decode in a thread, and let the brokers send what comes next meanwhile."""
        for buffer in buffers:
            self._fetcher.fetch_behind(
                buffer, _position_in(buffer, max(end_of(buffer.run.data), buffer.position.offset))
            )
        self._fetcher.advance()
        try:
            return await asyncio.to_thread(arrow.decode_fetched, runs)
        except BaseException:
            for buffer in buffers:
                self._fetcher.give_back(buffer)
            raise

    def _decode_pieces(
        self, pieces: Sequence[FetchedRange]
    ) -> "tuple[list[pa.RecordBatch], CorruptRecordError | None]":
        """One RecordBatch, or more where one has no room for all, and the error that comes behind them."""
        settings = self._settings
        batches: list[pa.RecordBatch] = []
        runs = [
            arrow.FetchedRun(
                piece.tp,
                piece.data,
                piece.range.position,
                end=piece.range.end,
                aborted=piece.aborted,
                read_committed=settings.read_committed,
                check_crcs=settings.check_crcs,
            )
            for piece in pieces
        ]
        failure: CorruptRecordError | None = None
        while runs:
            try:
                batch, positions, failures = arrow.decode_fetched(runs)
            except CorruptRecordError as error:
                return batches, failure or error
            if batch.num_rows:
                batches.append(batch)
            failure = failure or next(iter(failures.values()), None)
            if all(positions[run.tp] == run.position for run in runs):
                break
            # A run may have found no room at all, where another took it.
            runs = [
                run._replace(position=positions[run.tp])
                for run in runs
                if run.tp not in failures and positions[run.tp] < min(run.end or 0, end_of(run.data))
            ]
        return batches, failure

    async def _resolve(self, topic: TopicName, start: Positions, end: Positions) -> dict[TopicPartition, OffsetRange]:
        partitions = await self._partitions_to_read(topic, start, end)
        ends = await self._queries.resolve(dict.fromkeys(partitions, LATEST), timeout_s=self._api_timeout_s)
        starts = await self._offsets(partitions, start, ends, BEGINNING)
        stops = await self._offsets(partitions, end, ends, END)
        # What does not exist yet is not waited for.
        return {tp: OffsetRange(starts[tp], min(stops[tp], ends[tp])) for tp in partitions}

    async def _partitions_to_read(self, topic: TopicName, start: Positions, end: Positions) -> list[TopicPartition]:
        for named in (start, end):
            if isinstance(named, Mapping):
                return [TopicPartition(topic, index) for index in sorted(named)]
        return [TopicPartition(topic, partition.index) for partition in await self._known_partitions(topic)]

    async def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        wanted: Positions,
        ends: Mapping[TopicPartition, Offset],
        missing: Position,
    ) -> dict[TopicPartition, Offset]:
        positions = {
            tp: wanted.get(tp.partition, missing) if isinstance(wanted, Mapping) else wanted for tp in partitions
        }
        found = {tp: position for tp, position in positions.items() if isinstance(position, int)}
        found |= {tp: ends[tp] for tp, position in positions.items() if position is END}
        times = {tp: _time(position) for tp, position in positions.items() if tp not in found}
        return found | await self._queries.resolve(times, timeout_s=self._api_timeout_s)


def _position_in(buffer: PartitionBuffer, offset: Offset) -> FetchPosition:
    return FetchPosition(offset, epoch_before(buffer.run.data, offset, unknown=buffer.position.leader_epoch))


def _without(records: "pa.RecordBatch", partitions: Sequence[TopicPartition]) -> "pa.RecordBatch":
    """The rows of other partitions."""
    import pyarrow.compute as pc

    for tp in partitions:
        topics, indexes = records.column("topic"), records.column("partition")
        records = records.filter(pc.or_(pc.not_equal(topics, tp.topic), pc.not_equal(indexes, tp.partition)))
    return records


def _check_positions(*given: Positions) -> None:
    for some in given:
        if isinstance(some, Mapping):
            for partition, position in some.items():
                if not isinstance(partition, int) or isinstance(partition, bool):
                    raise TypeError(f"{partition!r} is no partition: a mapping has an int for each, and its position")
                _check_position(position)
        else:
            _check_position(some)


def _check_position(position: object) -> None:
    forms = "a position is an offset, BEGINNING, END or Timestamp(milliseconds)"
    number = position.timestamp_ms if isinstance(position, Timestamp) else position
    if position is BEGINNING or position is END:
        return
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{position!r} is no position: {forms}")
    if number < 0:
        raise ValueError(f"{position!r} is negative: {forms}")


def _time(position: Position) -> TimestampMs:
    return position.timestamp_ms if isinstance(position, Timestamp) else EARLIEST
