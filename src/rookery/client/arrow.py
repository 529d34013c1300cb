"""Arrow columns in both directions: fetched bytes to a RecordBatch, and Arrow data to batches for sending. Pure.

The batches of fetched runs are checked one by one, by the rules of `consume.decoder` for single records: the same
batches are skipped (control batches, aborted transactions, those before the position), and the same are rejected. The
others are decoded in one compiled pass (`records.columnar`).

Errors keep their position. A run that is damaged in the middle returns the records before the damage, and its next
position is the damaged batch. A run that is damaged at its position returns no records, and its `CorruptRecordError` is
returned with the records of the other runs; it is raised if none of them returns any.

The first call loads numpy, pyarrow and numba, which takes about half a second, and some seconds more when the kernels
are compiled for the first time on a machine. `load` does only that, so that a caller can do it in a thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rookery.base.distribution import install_hint
from rookery.base.errors import ApiError, ErrorCode, InvalidBatchError
from rookery.base.types import (
    NO_PRODUCER_ID,
    Offset,
    PartitionIndex,
    ProducerId,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from rookery.client.errors import ClientStateError, CorruptRecordError, RecordTooLargeError, SerializationError
from rookery.client.packed_batches import PackedBatch, SharedBuffer
from rookery.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, Codec, compute_crc, read_header
from rookery.records.batch_reader import unpack_records
from rookery.records.compression import compress
from rookery.records.control import read_marker
from rookery.records.record import open_records

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.records import columnar, input_columns
    from rookery.records.kernels import Int32s, Int64s

_INT64_MAX = 2**63 - 1
# The limits of one RecordBatch, for record bytes and for topic names; the next call returns the rest.
_DECODED_SIZE_MAX = 2**30
_TOPIC_NAMES_SIZE_MAX = 2**31 - 1
# Rows without partition and key are kept together in portions of at least this size, however small `batch.size` is.
_SMALLEST_PORTION_BYTES = 1024


class FetchedRun(NamedTuple):
    """Consecutive fetched batches of a partition; the last one may be incomplete."""

    tp: TopicPartition
    data: memoryview
    position: Offset
    # Records from this offset on are not returned.
    end: Offset | None = None
    # The broker's list of aborted transactions: producer id and first offset.
    aborted: Sequence[tuple[ProducerId, Offset]] | None = None
    read_committed: bool = False
    check_crcs: bool = True


class SplitSettings(NamedTuple):
    """The producer's settings of these names, for `split_for_send`."""

    batch_size: int
    max_request_size: int
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    partitioner_ignore_keys: bool = False


def load() -> None:
    """Import the libraries and compile the kernels."""
    _check_installed()
    from rookery.records import kernels

    kernels.load_kernels()


def _check_installed() -> None:
    try:
        import rookery.records.input_columns  # noqa: F401
    except ImportError as error:
        message = f"Arrow columns need numpy, pyarrow and numba ({error}): {install_hint('columns')}"
        raise ClientStateError(message) from error


class DecodedRuns(NamedTuple):
    records: "pa.RecordBatch"
    # The next position of each run.
    positions: dict[TopicPartition, Offset]
    # The errors of runs that are damaged at their position.
    failures: dict[TopicPartition, CorruptRecordError]


def decode_fetched(runs: Sequence[FetchedRun]) -> DecodedRuns:
    """Return the records of `runs`, at most one run per partition, and the next position of each.

    A run that exceeds the size of a RecordBatch stops before its end. Raises CorruptRecordError if a run is damaged and
    no run advances.
    """
    _check_installed()
    from rookery.records.columnar import decode_columns

    readers = [_RunReader(run) for run in runs]
    budget = _Budget()
    for reader in readers:
        reader.read(budget)
    decoded = decode_columns([chunk for reader in readers for chunk in reader.chunks()])
    malformed = iter(decoded.malformed)
    for reader in readers:
        reader.stop_at_malformed([next(malformed) for _ in range(reader.part_count)])
    positions = {reader.run.tp: reader.next_position() for reader in readers}
    failures = {reader.run.tp: reader.failure for reader in readers if reader.failure is not None}
    if failures and all(positions[run.tp] == run.position for run in runs):
        raise next(iter(failures.values()))
    return DecodedRuns(decoded.records, positions, failures)


class _Budget:
    """The size that is left in one RecordBatch."""

    def __init__(self) -> None:
        self._bytes = 0
        self._topic_bytes = 0
        self.is_spent = False

    def take(self, size: int, topic_size: int) -> bool:
        """Take the sizes if they fit, and return whether they do. The first batch always fits."""
        bytes_after, topic_bytes_after = self._bytes + size, self._topic_bytes + topic_size
        if self._bytes and (bytes_after > _DECODED_SIZE_MAX or topic_bytes_after > _TOPIC_NAMES_SIZE_MAX):
            self.is_spent = True
            return False
        self._bytes, self._topic_bytes = bytes_after, topic_bytes_after
        return True


class _Part:
    """Batches of a run whose records are in one buffer: the fetched one, or one joined from decompressed payloads."""

    def __init__(self, *, compressed: bool) -> None:
        self.compressed = compressed
        self.payloads: list[bytes] = []
        self.size = 0
        self.batches: list[columnar.BatchRange] = []
        # For each batch, where it starts in the run, and the position before it.
        self.starts: list[tuple[int, Offset]] = []


class _RunReader:
    """Iterates over the batches of one run and selects those to decode."""

    def __init__(self, run: FetchedRun) -> None:
        from rookery.records.columnar import BatchRange

        self.run = run
        self._range = BatchRange
        self._check_crcs, self._read_committed = run.check_crcs, run.read_committed
        self._end = _INT64_MAX if run.end is None else run.end
        self._position = run.position
        self._start = 0
        self._parts: list[_Part] = []
        self._failure: CorruptRecordError | None = None
        self._coming_aborts = sorted(run.aborted or (), key=lambda transaction: transaction[1], reverse=True)
        self._aborted_producers: set[ProducerId] = set()

    @property
    def part_count(self) -> int:
        return len(self._parts)

    def read(self, budget: _Budget) -> None:
        """Select batches until the run or the budget ends, or a batch is damaged."""
        data, end, size_left = self.run.data, self.run.end, len(self.run.data)
        try:
            while size_left >= HEADER_SIZE and not budget.is_spent:
                header = read_header(data, self._start)
                size, last_offset = header.size_bytes, header.last_offset
                if not _is_valid(header):
                    raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, f"an impossible header (format v{header.magic})")
                if size > size_left:
                    return
                if end is not None and header.base_offset >= end:
                    self._position = max(self._position, end)
                    return
                if self._is_wanted(header, size, last_offset) and not self._add(header, size, budget):
                    return
                self._start += size
                size_left -= size
                if last_offset >= self._position:
                    self._position = last_offset + 1
        except InvalidBatchError as error:
            self._failure = self._corrupt(self._start, str(error))

    def _is_wanted(self, header: BatchHeader, size: int, last_offset: Offset) -> bool:
        """Whether the batch has records to return. Raises InvalidBatchError if its checksum does not match."""
        if self._check_crcs and compute_crc(self.run.data[self._start : self._start + size]) != header.crc:
            raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, "its checksum does not match")
        if self._read_committed and header.producer_id != NO_PRODUCER_ID and self._is_aborted(header, size):
            return False
        # Compaction keeps the header of a producer's last batch without its records.
        is_empty = size == HEADER_SIZE and header.record_count == 0
        return last_offset >= self._position and not header.is_control and not is_empty

    def _is_aborted(self, header: BatchHeader, size: int) -> bool:
        while self._coming_aborts and self._coming_aborts[-1][1] <= header.last_offset:
            self._aborted_producers.add(self._coming_aborts.pop()[0])
        if header.is_control:
            marker = read_marker(self.run.data[self._start : self._start + size])
            if marker is not None and not marker.committed:
                self._aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_producers

    def _add(self, header: BatchHeader, size: int, budget: _Budget) -> bool:
        """Add a batch, and return whether the budget allowed it."""
        payload, start = None, self._start + HEADER_SIZE
        payload_size, compressed = size - HEADER_SIZE, header.codec_id != Codec.NONE
        if compressed:
            payload = open_records(header, self.run.data[self._start : self._start + size])
            payload_size = len(payload)
        if not budget.take(payload_size, header.record_count * len(self.run.tp.topic)):
            return False
        if not self._parts or self._parts[-1].compressed != compressed:
            self._parts.append(_Part(compressed=compressed))
        part = self._parts[-1]
        if payload is not None:
            start = part.size
            part.payloads.append(payload)
            part.size += payload_size
        part.starts.append((self._start, self._position))
        part.batches.append(
            self._range(
                start,
                start + payload_size,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp_ms,
                int(header.is_log_append_time),
                header.max_timestamp_ms,
                self._position,
                self._end,
            )
        )
        return True

    def chunks(self) -> "list[columnar.Chunk]":
        from rookery.records.columnar import Chunk

        tp, data = self.run.tp, self.run.data
        return [Chunk(tp, b"".join(part.payloads) if part.compressed else data, part.batches) for part in self._parts]

    def stop_at_malformed(self, malformed: Sequence[int | None]) -> None:
        """Set the position to the first malformed batch. `malformed` has its index in each part, or None."""
        for part, index in zip(self._parts, malformed, strict=True):
            if index is not None:
                start, self._position = part.starts[index]
                self._failure = self._corrupt(start, self._reason(start))
                return

    @property
    def failure(self) -> CorruptRecordError | None:
        """The error if the run is damaged at its position. Later damage is reported when the position reaches it."""
        return self._failure if self._position == self.run.position else None

    def next_position(self) -> Offset:
        """Return the position after the records that were read."""
        end = self.run.end
        return self._position if end is None else min(self._position, max(end, self.run.position))

    def _reason(self, start: int) -> str:
        """Return the error of the plain decoder for a batch: the compiled pass only detects that it is malformed."""
        try:
            header = read_header(self.run.data, start)
            unpack_records(header, open_records(header, self.run.data[start : start + header.size_bytes]))
        except InvalidBatchError as error:
            return str(error)
        return "malformed"

    def _corrupt(self, start: int, reason: str) -> CorruptRecordError:
        """Return the error of a damaged batch. It has the batch's last offset, so that seeking after it skips it."""
        data, header = self.run.data, read_header(self.run.data, start)
        first = max(self._position, header.base_offset)
        last, end = header.last_offset, start + header.size_bytes
        # The header of the next batch is more reliable, if there is one: the damage may be in this batch's header.
        if header.size_bytes >= HEADER_SIZE and len(data) - end >= HEADER_SIZE:
            following = read_header(data, end)
            if following.magic == MAGIC_V2 and following.base_offset > header.base_offset:
                last = following.base_offset - 1
        last = max(first, last)
        text = f"the batch of offsets {header.base_offset} to {last} cannot be read: {reason}"
        return CorruptRecordError(self.run.tp, last, text)


def _is_valid(header: BatchHeader) -> bool:
    return (
        header.magic == MAGIC_V2
        and header.size_bytes >= HEADER_SIZE
        and header.record_count >= 0
        and header.base_offset >= 0
        and 0 <= header.last_offset_delta <= _INT64_MAX - header.base_offset
    )


def topics_of(data: Any, topic: TopicName | None) -> frozenset[TopicName]:
    """Return the topics whose partition counts `split_for_send` needs."""
    _check_installed()
    from rookery.records import input_columns

    try:
        table = input_columns.as_table(data)
        input_columns.check_columns(table)
        return input_columns.topics_of(table, topic)
    except input_columns.ColumnError as error:
        raise SerializationError(str(error)) from None


def split_for_send(
    data: Any,
    *,
    topic: TopicName | None,
    partition_counts: Mapping[TopicName, int],
    next_partition: Callable[[TopicName], PartitionIndex],
    now_ms: TimestampMs,
    settings: SplitSettings,
) -> Iterator[tuple[TopicPartition, PackedBatch]]:
    """Return Arrow data as batches, in the order of the rows for each partition. All rows are checked before the first.

    All rows go to `topic`, or without it to the topic of their column. `next_partition` chooses the partition of rows
    without partition and key, for each `batch.size` bytes of them.
    """
    _check_installed()
    from rookery.records import input_columns

    try:
        table = input_columns.as_table(data)
        input_columns.check_columns(table)
        parts = list(input_columns.slices(table, topic=topic, now_ms=now_ms))
    except input_columns.ColumnError as error:
        raise SerializationError(str(error)) from None
    for part in parts:
        _check_sizes(part, settings)
        _check_partitions(part, partition_counts)
    return _encode(parts, partition_counts, next_partition, settings)


def _check_sizes(part: "input_columns.InputRows", settings: SplitSettings) -> None:
    from rookery.records.columnar import largest_row_size, row_sizes

    limit = settings.max_request_size - HEADER_SIZE
    if largest_row_size(part.rows) > limit:
        sizes = row_sizes(part.rows)
        row = int((sizes > limit).argmax())
        raise RecordTooLargeError(
            f"row {part.start + row}: a record of {sizes[row]} bytes does not fit max.request.size="
            f"{settings.max_request_size}"
        )


def _check_partitions(part: "input_columns.InputRows", counts: Mapping[TopicName, int]) -> None:
    import numpy as np

    limits = np.array([counts.get(name, 0) for name in part.topics], np.int64)
    for name in part.topics:
        if counts.get(name, 0) <= 0:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} is not known")
    beyond = part.partitions >= (limits if len(limits) == 1 else limits[part.topic_codes])
    if beyond.any():
        row = int(beyond.argmax())
        name = part.topics[part.topic_codes[row]]
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"column partition, row {part.start + row}: topic {name} has {counts[name]} partitions, and none is "
            f"{part.partitions[row]}",
        )


def _encode(
    parts: "Sequence[input_columns.InputRows]",
    counts: Mapping[TopicName, int],
    next_partition: Callable[[TopicName], PartitionIndex],
    settings: SplitSettings,
) -> Iterator[tuple[TopicPartition, PackedBatch]]:
    from rookery.records.columnar import encode_columns

    size_max = min(settings.batch_size, settings.max_request_size) - HEADER_SIZE
    codec, level = settings.codec, settings.compression_level
    for part in parts:
        targets = [TopicPartition(name, index) for name in part.topics for index in range(counts[name])]
        groups = _group(part, counts, next_partition, settings)
        shared_buffer = None if codec else SharedBuffer()
        try:
            for batch in encode_columns(part.rows, groups, group_count=len(targets), batch_size_max=size_max):
                if shared_buffer is not None:
                    shared_buffer.grow(len(batch.payload))
                packed = PackedBatch(
                    compress(codec, batch.payload, level) if codec else batch.payload,
                    batch.record_count,
                    batch.base_timestamp_ms,
                    batch.max_timestamp_ms,
                    len(batch.payload),
                    batch.record_size_max,
                    shared_buffer,
                )
                yield targets[batch.group], packed
        finally:
            if shared_buffer is not None:
                shared_buffer.complete()


def _group(
    part: "input_columns.InputRows",
    counts: Mapping[TopicName, int],
    next_partition: Callable[[TopicName], PartitionIndex],
    settings: SplitSettings,
) -> "Int32s":
    """Return the group of each row: its partition's number, counted through the partitions of all topics."""
    import numpy as np

    from rookery.records.columnar import hash_keys, row_sizes

    limits = np.array([counts[name] for name in part.topics], np.int32)
    firsts = np.cumsum(limits, dtype=np.int32) - limits
    one = len(limits) == 1
    partitions = part.partitions
    is_unset = partitions < 0
    if is_unset.any():
        partitions = partitions.copy()
        if not settings.partitioner_ignore_keys:
            hashes = hash_keys(part.rows.keys, len(part))
            chosen = hashes % (limits[0] if one else limits[part.topic_codes])
            np.copyto(partitions, chosen, where=is_unset & (hashes >= 0))
        rest = np.flatnonzero(partitions < 0)
        if len(rest):
            sizes = row_sizes(part.rows)
            for code, name in enumerate(part.topics):
                mine = rest if one else rest[part.topic_codes[rest] == code]
                choose = partial(next_partition, name)
                _spread(partitions, mine, sizes if len(mine) == len(part) else sizes[mine], settings.batch_size, choose)
    return partitions if one else firsts[part.topic_codes] + partitions


def _spread(
    partitions: "Int32s", rows: "Int64s", sizes: "Int64s", batch_size: int, choose: Callable[[], PartitionIndex]
) -> None:
    """Set the partition of rows without partition and key: a new one for every `batch_size` bytes."""
    import numpy as np

    ends = np.cumsum(sizes)
    if not len(ends):
        return
    # Each portion ends with the row that reaches the next multiple of its size.
    portion = max(batch_size, _SMALLEST_PORTION_BYTES)
    limits = np.arange(1, ends[-1] // portion + 1) * portion
    stops = np.unique(np.append(np.searchsorted(ends, limits) + 1, len(rows)).clip(max=len(rows)))
    lengths = np.diff(stops, prepend=0)
    partitions[rows] = np.repeat(np.array([choose() for _ in lengths], np.int32), lengths)
