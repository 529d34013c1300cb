"""The consumer's Arrow methods: polls and ranges of offsets as `pyarrow.RecordBatch`es (columns: see `client.arrow`).

`poll_arrow` takes everything that is buffered, moves positions as `poll` does, and may be mixed with it. `read_arrow`
and `iterate_arrow` read a range of a topic and change neither the assignment nor positions. Deserializers are not
applied: columns hold bytes. The first call loads the Arrow libraries, in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.client import arrow
from rookery.client.consume.decoder import PartitionBuffer, end_offset, epoch_before
from rookery.client.consume.poll import PollMethods
from rookery.client.consume.positions import EARLIEST, LATEST
from rookery.client.consume.ranges import FetchedRange, OffsetRange, RangeReader
from rookery.client.consume.records import BEGINNING, END, Position, Timestamp
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import CorruptRecordError

if TYPE_CHECKING:
    import pyarrow as pa

# Below this size, decoding on the event loop takes no longer than handing the work to a thread.
_THREAD_MIN_BYTES = 256 * 1024

# One position for all partitions, or one for each.
Positions: TypeAlias = Position | Mapping[PartitionIndex, Position]


class ColumnMethods(PollMethods):
    _is_arrow_loaded = False

    async def poll_arrow(self, timeout_s: float = 1.0) -> "pa.RecordBatch":
        """Return all buffered records; wait for the first of them up to the time-out, then return no rows."""
        await self._load_arrow()
        with self._exclusive_poll():
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
        """Return the records of a topic between two positions that exist now, in order within a partition.

        A mapping names the partitions to read. One RecordBatch holds at most about 2 GB of keys or values: use
        `iterate_arrow` to read more.
        """
        await self._load_arrow()
        import pyarrow as pa

        batches = [batch async for batch in self.iterate_arrow(topic, start, end)]
        if not batches:
            return arrow.decode_fetched([]).records
        return pa.concat_batches(batches) if len(batches) > 1 else batches[0]

    async def iterate_arrow(
        self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END
    ) -> "AsyncIterator[pa.RecordBatch]":
        """Like `read_arrow`, but yield the records of one fetch at a time, in order within a partition."""
        self._check_open()
        _check_positions(start, end)
        await self._load_arrow()
        ranges = await self._resolve(topic, start, end)
        async for pieces in RangeReader(self._cluster, self._settings).read(ranges):
            # In a thread, while the next round of fetches is in flight.
            batches, failure = await asyncio.to_thread(self._decode_pieces, pieces)
            for batch in batches:
                yield batch
            if failure is not None:
                raise failure

    async def _load_arrow(self) -> None:
        if not self._is_arrow_loaded:
            await asyncio.to_thread(arrow.load)
            self._is_arrow_loaded = True

    async def _decode(self, buffers: Sequence[PartitionBuffer]) -> "tuple[pa.RecordBatch, bool]":
        """Return the records, and whether any position moved.

        Records of partitions that the user has sought or unassigned while they were decoded are left out.
        """
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
        if sum(len(run.data) for run in runs) < _THREAD_MIN_BYTES:
            decoded = arrow.decode_fetched(runs)
        else:
            decoded = await self._decode_and_fetch_ahead(buffers, runs)
        # No step of this loop may raise: positions would have moved, and the records would not be returned.
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
        return _drop_rows(decoded.records, gone), has_moved

    async def _decode_and_fetch_ahead(
        self, buffers: Sequence[PartitionBuffer], runs: Sequence[arrow.FetchedRun]
    ) -> arrow.DecodedRuns:
        """Decode in a thread; meanwhile fetch the records after these."""
        for buffer in buffers:
            self._fetcher.fetch_ahead(
                buffer, _position_in(buffer, max(end_offset(buffer.run.data), buffer.position.offset))
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
        """Return one RecordBatch, or several if one cannot hold all records, and the error to raise after them."""
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
            # Decode what did not fit. The runs share a RecordBatch: one may have filled it, and another not begun.
            runs = [
                run._replace(position=positions[run.tp])
                for run in runs
                if run.tp not in failures and positions[run.tp] < min(run.end or 0, end_offset(run.data))
            ]
        return batches, failure

    async def _resolve(self, topic: TopicName, start: Positions, end: Positions) -> dict[TopicPartition, OffsetRange]:
        partitions = await self._partitions_to_read(topic, start, end)
        ends = await self._queries.resolve(dict.fromkeys(partitions, LATEST), timeout_s=self._api_timeout_s)
        starts = await self._offsets(partitions, start, ends, BEGINNING)
        stops = await self._offsets(partitions, end, ends, END)
        # The range ends at the current end offset: records that do not exist yet are not waited for.
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


def _drop_rows(records: "pa.RecordBatch", partitions: Sequence[TopicPartition]) -> "pa.RecordBatch":
    """Return `records` without the rows of `partitions`."""
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
                    raise TypeError(f"{partition!r} is not a partition: a mapping's keys are partition indexes")
                _check_position(position)
        else:
            _check_position(some)


def _check_position(position: object) -> None:
    forms = "a position is an offset, BEGINNING, END or Timestamp(milliseconds)"
    number = position.timestamp_ms if isinstance(position, Timestamp) else position
    if position is BEGINNING or position is END:
        return
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{position!r} is not a position: {forms}")
    if number < 0:
        raise ValueError(f"{position!r} is negative: {forms}")


def _time(position: Position) -> TimestampMs:
    return position.timestamp_ms if isinstance(position, Timestamp) else EARLIEST
