"""Decodes fetched bytes into records, one batch at a time, when polls take them. Pure.

`FetchedRun` iterates over the batches of one partition in a fetch response. It skips records before the position,
control batches (transaction markers) and, for read_committed, the batches of aborted transactions. The response lists
those as (producer id, first offset): from that offset on, the producer's batches are skipped until its abort marker.

`PartitionBuffer` adds what polls need: any number of records at a time, the position after them, and errors in order:
the records before a damaged batch, or before a record that cannot be deserialized, are returned first; then the error
is raised by every call until the user seeks.

`fetcher` fills and empties these. Bytes are copied once, from the response into keys and values.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from rookery.base.errors import ApiError, InvalidBatchError
from rookery.base.types import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId, TopicName, TopicPartition
from rookery.client.consume.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Deserializer
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import CorruptRecordError, SerializationError
from rookery.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, compute_crc, iterate_headers, read_header
from rookery.records.batch_reader import RecordColumns, unpack_records
from rookery.records.control import read_marker
from rookery.records.dense import unpack_dense
from rookery.records.record import open_records

AnyRecord: TypeAlias = ConsumerRecord[Any, Any]
AbortedTransactions: TypeAlias = Sequence[tuple[ProducerId, Offset]]
_Deserialize: TypeAlias = Callable[[TopicName, bytes], Any]


class OpenedBatch(NamedTuple):
    """The records of a batch that are at or after the position."""

    columns: RecordColumns
    timestamp_type: int
    leader_epoch: LeaderEpoch


class FetchedRun:
    """Iterates over the batches in `data`. The last one may be cut off; the next fetch returns it again.

    `position` is the position after the batches that were opened or skipped so far. `aborted` is None for
    read_uncommitted.
    """

    def __init__(
        self,
        tp: TopicPartition,
        data: memoryview,
        position: FetchPosition,
        *,
        aborted: AbortedTransactions | None,
        check_crcs: bool,
    ) -> None:
        self.position = position
        self.data = data
        self.aborted = aborted
        self._tp = tp
        self._check_crcs = check_crcs
        self._start = 0
        # Aborted transactions that begin after the current batch, the next one last.
        self._pending_aborts = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
        self._aborted_producers: set[ProducerId] = set()

    def next_batch(self) -> OpenedBatch | None:
        """Return the next batch with records for the user; None at the end.

        Raises CorruptRecordError at a damaged batch, and does not move past it.
        """
        while (header := self._next_header()) is not None:
            batch = self.data[self._start : self._start + header.size_bytes]
            if self._check_crcs and compute_crc(batch) != header.crc:
                raise self._corrupt(header, "fails its checksum")
            try:
                opened = self._open(batch, header)
            except InvalidBatchError as error:
                raise self._corrupt(header, f"cannot be read ({error})") from None
            self._start += header.size_bytes
            if header.last_offset >= self.position.offset:
                self.position = FetchPosition(header.last_offset + 1, header.leader_epoch)
            if opened is not None:
                return opened
        return None

    def detach(self) -> None:
        """Copy the data if it is a slice of a larger response, so that the response can be freed."""
        if len(self.data) < memoryview(self.data.obj).nbytes:
            self.data = memoryview(bytes(self.data))

    @property
    def is_at_end(self) -> bool:
        """Whether no whole batch is left. A damaged batch counts as left: `next_batch` raises its error."""
        left = len(self.data) - self._start
        return left < HEADER_SIZE or HEADER_SIZE <= read_header(self.data, self._start).size_bytes > left

    def _next_header(self) -> BatchHeader | None:
        left = len(self.data) - self._start
        if left < HEADER_SIZE:
            return None
        header = read_header(self.data, self._start)
        if header.magic != MAGIC_V2 or header.size_bytes < HEADER_SIZE:
            raise self._corrupt(header, f"has the unknown format v{header.magic}, or an impossible length")
        return header if header.size_bytes <= left else None

    def _open(self, batch: memoryview, header: BatchHeader) -> OpenedBatch | None:
        if self.aborted is not None and header.producer_id != NO_PRODUCER_ID and self._is_aborted(batch, header):
            return None
        if header.is_control or header.last_offset < self.position.offset:
            return None
        payload = open_records(header, batch)
        columns = unpack_dense(header, payload) or unpack_records(header, payload)
        before = bisect_left(columns.offsets, self.position.offset)
        if before:
            # The fetch position lies within this batch: the records before it were returned earlier.
            columns = _skip_first(columns, before)
        if not columns.offsets:
            return None
        timestamp_type = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        return OpenedBatch(columns, timestamp_type, header.leader_epoch)

    def _is_aborted(self, batch: memoryview, header: BatchHeader) -> bool:
        while self._pending_aborts and self._pending_aborts[-1][1] <= header.last_offset:
            self._aborted_producers.add(self._pending_aborts.pop()[0])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.committed:
                # The aborted transaction ends here: without this, the producer's next transaction, which may be
                # committed, would be skipped, too.
                self._aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_producers

    def _corrupt(self, header: BatchHeader, reason: str) -> CorruptRecordError:
        """Return an error with the batch's last offset: a seek to the offset after it skips the whole batch."""
        first = max(self.position.offset, header.base_offset)
        last = max(first, self._last_offset(header))
        return CorruptRecordError(self._tp, last, f"the batch of offsets {header.base_offset} to {last} {reason}")

    def _last_offset(self, header: BatchHeader) -> Offset:
        """Return the batch's last offset, computed from the next batch if there is one: this header may be damaged."""
        end = self._start + header.size_bytes
        if header.size_bytes >= HEADER_SIZE and len(self.data) - end >= HEADER_SIZE:
            following = read_header(self.data, end)
            if following.magic == MAGIC_V2 and following.base_offset > header.base_offset:
                return following.base_offset - 1
        return header.last_offset


def _skip_first(columns: RecordColumns, count: int) -> RecordColumns:
    offsets, timestamps_ms, keys, values, headers = columns
    rest = None if headers is None else headers[count:]
    return RecordColumns(offsets[count:], timestamps_ms[count:], keys[count:], values[count:], rest)


def epoch_before(data: memoryview, offset: Offset, *, unknown: LeaderEpoch) -> LeaderEpoch:
    """Return the leader epoch of the last batch in `data` that begins before `offset`; `unknown` if there is none."""
    epoch = unknown
    for header in _plausible_headers(data):
        if header.base_offset >= offset:
            break
        epoch = header.leader_epoch
    return epoch


def end_offset(data: memoryview) -> Offset:
    """Return the offset after the last whole batch that a decoder can reach; 0 if there is none."""
    return max((header.last_offset + 1 for header in _plausible_headers(data)), default=0)


def has_whole_batch(data: memoryview) -> bool:
    """Return whether the first batch is complete. If not, it stays incomplete: the next fetch returns the same."""
    if len(data) < HEADER_SIZE:
        return False
    return read_header(data).size_bytes <= len(data)


def no_whole_batch_error(tp: TopicPartition, offset: Offset, size_bytes: int) -> CorruptRecordError:
    """Return the error for a response that breaks the rule that brokers send at least one whole batch, or nothing."""
    reason = f"the broker sent {size_bytes} bytes that hold no whole batch"
    return CorruptRecordError(tp, offset, reason, advice="if it persists, seek to a later offset")


def _plausible_headers(data: memoryview) -> Iterator[BatchHeader]:
    """Yield the headers of whole batches up to the first with impossible numbers. Checksums are not verified."""
    for _, header in iterate_headers(data):
        if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
            return
        yield header


def make_records(
    tp: TopicPartition,
    batch: OpenedBatch,
    *,
    keys: Sequence[Any] | None = None,
    values: Sequence[Any] | None = None,
) -> list[AnyRecord]:
    """Build records. `keys` and `values` are deserialized columns; if one is shorter, the records end with it."""
    columns = batch.columns
    rows = map(
        ConsumerRecord,
        repeat(tp.topic),
        repeat(tp.partition),
        columns.offsets,
        columns.timestamps_ms,
        repeat(batch.timestamp_type),
        columns.keys if keys is None else keys,
        columns.values if values is None else values,
        columns.headers if columns.headers is not None else repeat(()),
        repeat(batch.leader_epoch),
    )
    return list(rows)


class Deserializers:
    """The deserializers of keys and of values; where one is missing, bytes stay bytes."""

    def __init__(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        self._key = _callable_of(key)
        self._value = _callable_of(value)

    def make_records(self, tp: TopicPartition, batch: OpenedBatch) -> tuple[list[AnyRecord], ApiError | None]:
        """Return the records before the first that cannot be deserialized, and the error of that one."""
        if self._key is None and self._value is None:
            return make_records(tp, batch), None
        columns = batch.columns
        keys, key_error = _deserialized(self._key, tp.topic, columns.keys)
        values, value_error = _deserialized(self._value, tp.topic, columns.values)
        records = make_records(tp, batch, keys=keys, values=values)
        if key_error is None and value_error is None:
            return records, None
        part, cause = ("key", key_error) if len(keys) == len(records) and key_error else ("value", value_error)
        return records, _deserialization_error(tp, columns.offsets[len(records)], part, cause)


def _callable_of(deserializer: Deserializer[Any] | None) -> _Deserialize | None:
    if deserializer is None or callable(deserializer):
        return deserializer
    return deserializer.deserialize


def _deserialized(
    deserialize: _Deserialize | None, topic: TopicName, column: list[bytes | None]
) -> tuple[list[Any], Exception | None]:
    if deserialize is None:
        return column, None
    done: list[Any] = []
    try:
        for data in column:
            done.append(None if data is None else deserialize(topic, data))
    except Exception as error:
        return done, error
    return done, None


def _deserialization_error(
    tp: TopicPartition, offset: Offset, part: str, cause: Exception | None
) -> SerializationError:
    failure = SerializationError(
        f"topic {tp.topic}, partition {tp.partition}, offset {offset}: the {part} cannot be deserialized "
        f"({type(cause).__name__}: {cause}); seek to {offset + 1} to skip it"
    )
    failure.__cause__ = cause
    return failure


class PartitionBuffer:
    """The fetched data of a partition that polls have not taken yet. `generation` is that of the fetch."""

    __slots__ = (
        "_deserializers",
        "_failure",
        "_next",
        "_records",
        "generation",
        "is_drained",
        "position",
        "run",
        "taken_count",
        "tp",
    )

    def __init__(self, tp: TopicPartition, generation: int, run: FetchedRun, *, deserializers: Deserializers) -> None:
        self.tp = tp
        self.generation = generation
        self.run = run
        # The position after the records that were taken.
        self.position = run.position
        self.is_drained = False
        self.taken_count = 0
        self._deserializers = deserializers
        self._records: list[AnyRecord] = []
        self._next = 0
        self._failure: ApiError | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether an error comes next, so that only a seek leads past it."""
        return self._failure is not None and self._next >= len(self._records)

    def fail(self, failure: ApiError) -> None:
        """Raise `failure` from the next call, unless there are decoded records left: `columns` could decode none."""
        if self._next >= len(self._records):
            self._failure = failure

    def take(self, count_max: int) -> list[AnyRecord]:
        """Return up to `count_max` records; fewer at the end, or before an error, which the next call raises."""
        taken: list[AnyRecord] = []
        while len(taken) < count_max and self._fill(is_first=not taken):
            portion = self._records[self._next : self._next + count_max - len(taken)]
            self._next += len(portion)
            taken = taken + portion if taken else portion
        if taken:
            self._move_position(taken[-1], len(taken))
        return taken

    def take_one(self) -> AnyRecord | None:
        """Return the next record; None at the end."""
        if self._next >= len(self._records) and not self._fill(is_first=True):
            return None
        record = self._records[self._next]
        self._next += 1
        self._move_position(record, 1)
        return record

    def _fill(self, *, is_first: bool) -> bool:
        """Decode the next batch if no record is left; return False at the end.

        An error is raised only if the caller has taken no record yet (`is_first`): else those records would be lost.
        """
        while self._next >= len(self._records):
            if self._failure is not None:
                if is_first:
                    raise self._failure
                return False
            try:
                batch = self.run.next_batch()
            except CorruptRecordError as error:
                self._failure = error
                continue
            if batch is None:
                self.position, self.is_drained = self.run.position, True
                return False
            self._records, self._failure = self._deserializers.make_records(self.tp, batch)
            self._next = 0
        return True

    def _move_position(self, last: AnyRecord, count: int) -> None:
        self.taken_count += count
        if self._next < len(self._records) or self._failure is not None:
            self.position = FetchPosition(last.offset + 1, last.leader_epoch)
        else:
            # The run's position, not the offset after `last`: a batch may end with offsets that compaction removed, or
            # that were skipped. Fetching from before them would return the same batch again.
            self.position, self.is_drained = self.run.position, self.run.is_at_end
