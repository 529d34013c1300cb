"""The consumer: reads partitions that it is told to read, from where it is told to.

`assign` resolves starting points to offsets; `poll` returns the records that arrived, in order per partition, and
remembers the positions. There is one fetch under way per leader, so that a slow broker does not hold up the others.
Every batch's CRC is checked before it is opened. Groups, commits and read_committed come on top of this.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    Buffer,
    NodeId,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicName,
    TopicPartition,
)
from rookery.client.admin import EARLIEST, LATEST, Admin
from rookery.client.cluster import Cluster, backoff_s
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import BatchHeader, compute_crc, iterate_headers
from rookery.records.compression import DECOMPRESSED_SIZE_MAX
from rookery.records.record import Headers, decode_records

DEFAULT_FETCH_SIZE_BYTES = 50 * 1024 * 1024
DEFAULT_PARTITION_FETCH_SIZE_BYTES = 1024 * 1024
DEFAULT_WAIT_MS = 500


class StartOffset(NamedTuple):
    """Start at this offset."""

    offset: Offset


class StartTimestamp(NamedTuple):
    """Start at the first record with this timestamp or a later one; at the end if there is none."""

    timestamp_ms: TimestampMs


Start = StartOffset | StartTimestamp
BEGINNING = StartTimestamp(EARLIEST)
END = StartTimestamp(LATEST)


class ConsumedRecord(NamedTuple):
    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers


class Consumer:
    """`reset` says where to go on when a position no longer exists; None makes that an error."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        reset: Start | None = BEGINNING,
        wait_ms: int = DEFAULT_WAIT_MS,
        fetch_size_bytes: int = DEFAULT_FETCH_SIZE_BYTES,
        partition_fetch_size_bytes: int = DEFAULT_PARTITION_FETCH_SIZE_BYTES,
    ) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._reset = reset
        self._wait_ms = wait_ms
        self._fetch_size_bytes = fetch_size_bytes
        self._partition_fetch_size_bytes = partition_fetch_size_bytes
        self._positions: dict[TopicPartition, Offset] = {}
        self._fetches: dict[NodeId, asyncio.Task[Message]] = {}
        self._failures_in_a_row = 0
        self._failing_since_s: float | None = None
        self._deferred_failure: ApiError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for fetch in self._fetches.values():
            fetch.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await fetch
        self._fetches.clear()

    async def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Read these partitions from now on, and no others."""
        await self.close()
        self._positions = {tp: s.offset for tp, s in starts.items() if isinstance(s, StartOffset)}
        self._positions |= await self._resolve({tp: s for tp, s in starts.items() if isinstance(s, StartTimestamp)})

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the next record to be read."""
        return self._positions[partition]

    def positions(self) -> dict[TopicPartition, Offset]:
        """All partitions that are read, with their positions."""
        return dict(self._positions)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Go on reading an assigned partition from here."""
        self._positions[partition] = offset

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: TimestampMs
    ) -> dict[TopicPartition, Offset]:
        """Offsets by timestamp, or by EARLIEST or LATEST; -1 where no record is so late."""
        return await self._offsets(dict.fromkeys(partitions, timestamp_ms))

    async def poll(self) -> list[ConsumedRecord]:
        """The records that arrive within about `wait_ms`; an empty list if none do."""
        try:
            await self._start_fetches()
            # Brokers answer within the wait they were asked for; a lost one ends by the request's own time-out.
            done, _ = await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
            records = await self._collect(done)
        except ApiError as error:
            await self._pause_or_raise(error)
            return []
        self._failures_in_a_row, self._failing_since_s = 0, None
        return records

    async def _pause_or_raise(self, error: ApiError) -> None:
        """Wait before the next try, unless the error is final or has lasted for the cluster's time-out."""
        now_s = asyncio.get_running_loop().time()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if not error.code.retriable or now_s - self._failing_since_s >= self._cluster.timeout_s:
            raise error
        self._cluster.forget_leaders()
        await asyncio.sleep(backoff_s(self._failures_in_a_row))
        self._failures_in_a_row += 1

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def _start_fetches(self) -> None:
        """One fetch per leader; a partition without a leader must not hold up the others."""
        if self._deferred_failure is not None:
            failure, self._deferred_failure = self._deferred_failure, None
            raise failure
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        leaderless: ApiError | None = None
        for tp in self._positions:
            try:
                by_leader.setdefault(await self._cluster.leader(tp), []).append(tp)
            except ApiError as error:
                leaderless = error
        for node, partitions in by_leader.items():
            if node not in self._fetches:
                timeout_s = self._cluster.timeout_s + self._wait_ms / 1000
                call = self._cluster.call(ApiKey.FETCH, self._request(partitions), node=node, timeout_s=timeout_s)
                self._fetches[node] = asyncio.get_running_loop().create_task(call)
        if leaderless is not None and not self._fetches:
            raise leaderless

    def _request(self, partitions: Iterable[TopicPartition]) -> Message:
        topics: dict[TopicName, list[Message]] = {}
        for tp in partitions:
            row = Message(
                partition=tp.partition,
                current_leader_epoch=NO_LEADER_EPOCH,
                fetch_offset=self._positions[tp],
                partition_max_bytes=self._partition_fetch_size_bytes,
            )
            topics.setdefault(tp.topic, []).append(row)
        return Message(
            replica_id=-1,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_size_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                Message(topic=name, topic_id=self._cluster.metadata.topic_id(name), partitions=rows)
                for name, rows in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id="",
        )

    async def _collect(self, done: "set[asyncio.Task[Message]]") -> list[ConsumedRecord]:
        """The records of finished fetches. A failure is raised now if there are none, else on the next poll."""
        self._fetches = {node: fetch for node, fetch in self._fetches.items() if fetch not in done}
        records: list[ConsumedRecord] = []
        failure: ApiError | None = None
        for fetch in done:
            try:
                rows = list(self._rows(fetch.result()))
            except ApiError as error:
                rows, failure = [], error
            for tp, row in rows:
                try:
                    records += await self._accept(tp, row)
                except ApiError as error:
                    failure = error
        if failure is not None and not records:
            raise failure
        self._deferred_failure = failure
        return records

    def _rows(self, response: Message) -> Iterator[tuple[TopicPartition, Message]]:
        if response.get("error_code", ErrorCode.NONE) != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), "the fetch failed")
        for topic in response.responses:
            name = topic.get("topic") or self._name(topic.get("topic_id", NO_TOPIC_ID))
            for row in topic.partitions:
                yield TopicPartition(name, row.partition_index), row

    def _name(self, topic_id: TopicId) -> TopicName:
        name = self._cluster.metadata.topic_name(topic_id)
        if name is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"the broker answered for topic {topic_id}, which we do not know"
            )
        return name

    async def _accept(self, tp: TopicPartition, row: Message) -> list[ConsumedRecord]:
        code = ErrorCode(row.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(self._reset, StartTimestamp):
            self._positions |= await self._resolve({tp: self._reset})
            return []
        if code != ErrorCode.NONE:
            raise ApiError(code, f"partition {tp}, offset {self._positions[tp]}")
        records, self._positions[tp] = read_fetched(tp, row.records or b"", self._positions[tp])
        return records

    async def _resolve(self, starts: Mapping[TopicPartition, StartTimestamp]) -> dict[TopicPartition, Offset]:
        found = await self._offsets({tp: start.timestamp_ms for tp, start in starts.items()})
        # A time later than every record's: wait for the records to come.
        missing = [tp for tp, offset in found.items() if offset < 0]
        return found | await self._offsets(dict.fromkeys(missing, LATEST))

    async def _offsets(self, wanted: Mapping[TopicPartition, TimestampMs]) -> dict[TopicPartition, Offset]:
        results = await self._admin.list_offsets(wanted)
        for tp, result in results.items():
            if result.error != ErrorCode.NONE:
                raise ApiError(result.error, f"partition {tp}")
        return {tp: result.offset for tp, result in results.items()}


def read_fetched(tp: TopicPartition, data: Buffer, position: Offset) -> tuple[list[ConsumedRecord], Offset]:
    """The records at or after `position` in a fetched run of batches, and the next position.

    The first batch may start before `position`; the last may be cut off, and comes again with the next fetch. Control
    batches (transaction markers) count as positions but hold no records of the user.
    """
    records: list[ConsumedRecord] = []
    view = memoryview(data)
    for start, header in iterate_headers(view):
        batch = view[start : start + header.size_bytes]
        if compute_crc(batch) != header.crc:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"partition {tp}, the batch at {header.base_offset}: bad checksum"
            )
        if not header.is_control:
            records.extend(record for record in _open(tp, batch, header) if record.offset >= position)
        position = max(position, header.last_offset + 1)
    return records, position


def _open(tp: TopicPartition, batch: memoryview, header: BatchHeader) -> Iterator[ConsumedRecord]:
    by_broker = header.is_log_append_time
    for record in decode_records(batch, size_max=DECOMPRESSED_SIZE_MAX):
        yield ConsumedRecord(
            *tp, record.offset, record.timestamp_ms, by_broker, record.key, record.value, record.headers
        )
